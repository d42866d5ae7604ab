// All topics, and the one that is chosen.

import { get, part, post, request } from "../api.js";
import { ask, askName, badge, broken, check, field, fill, h, head, toast } from "../dom.js";
import { bytes, number, plural, rate, settingValue } from "../format.js";
import { pagedTable } from "../table.js";

export const topicLink = (name) => h("a", { href: `#/topics/${part(name)}` }, broken(name));

export function topicTable({ signal, session }, { choosing = null, ...options } = {}) {
  return pagedTable({
    title: "Topics", label: "topics", signal, placeholder: "Filter topics",
    load: (values) => get("/api/topics", values, signal),
    empty: session.user ? `No topics that ${session.user} may see.` : "No topics yet.",
    filters: [{ names: ["internal", "unhealthy"], make: (change, values) => [check("Internal", { checked: values.internal === "true", onchange: (event) => change({ internal: event.target.checked || "" }) }), check("Unhealthy only", { checked: values.unhealthy === "true", onchange: (event) => change({ unhealthy: event.target.checked || "" }) })] }],
    columns: [
      ...(choosing ? [{ label: "Choose", class: "choice", cell: (row) => h("input", { type: "checkbox", "aria-label": `Choose ${row.name}`, checked: choosing.chosen.has(row.name), onchange: (event) => choosing.choose(row, event.target.checked) }) }] : []),
      { label: "Name", sort: "name", class: "name", cell: (row) => [topicLink(row.name), row.internal ? [" ", badge("internal")] : null] },
      { label: "Partitions", sort: "partitions", number: true, class: "wide", cell: (row) => number(row.partitions) },
      { label: "Replicas", sort: "replication", number: true, class: "wide", cell: (row) => number(row.replication) },
      { label: "Records", sort: "records", number: true, cell: (row) => number(row.records) },
      { label: "Size", sort: "bytes", number: true, class: "nowrap", cell: (row) => bytes(row.bytes) },
      { label: "Rate", sort: "rate", number: true, class: "nowrap", title: "Records a second between two looks: known some seconds after the page was opened", cell: (row) => rate(row.rate) },
      { label: "Lag", sort: "lag", number: true, class: "wide", title: "Records that the group furthest behind has not committed yet: known some seconds after the console was opened", cell: (row) => (row.lag ? badge(number(row.lag), "warn") : number(row.lag)) },
      { label: "Health", sort: "under_replicated", cell: (row) => (row.offline ? badge(`${row.offline} offline`, "bad") : row.under_replicated ? badge(`${row.under_replicated} under-replicated`, "warn") : badge("in sync", "good")) },
    ],
    ...options,
  });
}

export async function show(context) {
  if (context.parts[0]) {
    const { showTopic } = await import("./topic.js");
    await showTopic(context);
    return;
  }
  const { main } = context;
  const chosen = new Map();
  const count = h("span", { class: "soft", role: "status" });
  const acts = h("span", { class: "actions", hidden: true }, count,
    h("button", { type: "button", onclick: () => { chosen.clear(); fit(); list.refresh(); } }, "Choose none"),
    h("button", { type: "button", class: "danger", onclick: () => doToAll(EMPTYING) }, "Delete records"),
    h("button", { type: "button", class: "danger", onclick: () => doToAll(DELETING) }, "Delete topics"));
  function fit() {
    acts.hidden = !chosen.size;
    count.textContent = `${plural(chosen.size, "topic")} chosen`;
  }
  async function doToAll(act) {
    await doTo([...chosen.values()], act, (name) => chosen.delete(name));
    fit();
    list.refresh();
  }
  const list = topicTable(context, { choosing: { chosen, choose: (row, isChosen) => { if (isChosen) chosen.set(row.name, row); else chosen.delete(row.name); fit(); } } });
  fill(main, head("Topics", "", [acts, h("button", { type: "button", class: "primary", onclick: () => createTopic(list.refresh) }, "Create topic")]), list.card);
}

const DELETING = { title: "Delete topics", does: "will be deleted with all they hold", done: "deleted", act: (name) => request("DELETE", `/api/topics/${part(name)}`, { confirm: name }) };
const EMPTYING = { title: "Delete records", does: "will lose all their records", done: "emptied", act: (name) => post(`/api/topics/${part(name)}/trim`, { confirm: name }) };

/** Ask, and do something to one topic after the other; those that fail are named, and stay chosen. */
async function doTo(rows, { title, does, done, act }, forget) {
  const failures = [];
  const sum = (measure) => rows.reduce((total, row) => total + (row[measure] ?? 0), 0);
  const isDone = await askName({
    title, submit: title, name: plural(rows.length, "topic"), text: `${plural(rows.length, "topic")} ${does}: ${plural(sum("records"), "record")}, ${bytes(sum("bytes"))}. This cannot be undone.`,
    more: h("ul", { class: "names", tabindex: "0", "aria-label": "Topics" }, rows.map((row) => h("li", { class: "mono" }, row.name))),
    act: async () => {
      for (const row of rows) {
        try { await act(row.name); forget(row.name); } catch (error) { failures.push(`${row.name}: ${error.message}`); }
      }
    },
  });
  if (!isDone) return;
  if (rows.length > failures.length) toast(`${plural(rows.length - failures.length, "topic")} ${done}.`);
  for (const failure of failures.slice(0, 5)) toast(failure, "bad");
}

/** Ask for a new topic. */
async function createTopic(refresh) {
  const name = h("input", { name: "name", required: true, autocomplete: "off", spellcheck: "false", pattern: "[a-zA-Z0-9._\\-]{1,249}", title: "letters, digits, dots, underscores and dashes, at most 249" });
  const partitions = h("input", { name: "partitions", type: "number", min: "1", placeholder: "broker's default" });
  const replication = h("input", { name: "replication", type: "number", min: "1", placeholder: "broker's default" });
  const retention = h("input", { name: "retention", placeholder: "7 days, 12 h, -1 for ever" });
  const policy = h("select", { name: "policy" }, [["", "broker's default"], ["delete", "delete"], ["compact", "compact"], ["compact,delete", "compact and delete"]].map(([value, text]) => h("option", { value }, text)));
  const others = h("textarea", { name: "others", rows: "3", placeholder: "max.message.bytes=1048576" });
  const isDone = await ask({
    title: "Create topic", submit: "Create",
    content: [field("Name", name), h("div", { class: "fields" }, field("Partitions", partitions), field("Replicas", replication)), h("div", { class: "fields" }, field("Cleanup", policy), field("Retention", retention, "in ms without a unit")), field("Other settings", others, "one KEY=VALUE a line")],
    act: async () => {
      const settings = {};
      for (const line of others.value.split("\n").filter((line) => line.trim())) {
        const at = line.indexOf("=");
        if (at < 1) throw new Error(`"${line}" is not KEY=VALUE`);
        const name = line.slice(0, at).trim();
        settings[name] = settingValue(name, line.slice(at + 1).trim());
      }
      if (policy.value) settings["cleanup.policy"] = policy.value;
      if (retention.value.trim()) settings["retention.ms"] = settingValue("retention.ms", retention.value.trim());
      await post("/api/topics", { name: name.value, partitions: partitions.value ? Number(partitions.value) : -1, replication: replication.value ? Number(replication.value) : -1, settings });
    },
  });
  if (isDone) { toast(`Topic ${name.value} was created.`); refresh(); }
}
