// One topic: its records, partitions, settings, groups and producers, and what can be done with it.

import { get, part, post, request } from "../api.js";
import { ask, askName, badge, card, field, fill, h, head, notice, toast } from "../dom.js";
import { bytes, number, plural, time } from "../format.js";
import { pagedTable, repeat, table } from "../table.js";
import { topicAcls } from "./access.js";
import { groupLink, stateBadge } from "./groups.js";
import { produce } from "./produce.js";
import { showRecords } from "./records.js";
import { settingsCard } from "./settings.js";

const TABS = [["", "Records"], ["partitions", "Partitions"], ["settings", "Settings"], ["groups", "Consumers"], ["producers", "Producers"], ["access", "Access"]];

export async function showTopic({ main, parts, values, signal, session }) {
  const [name, tab = ""] = parts;
  const path = `/api/topics/${part(name)}`;
  const info = await get(path, { size: 1 }, signal);
  const count = info.partitions.total;
  const place = h("div");
  fill(main,
    head(name, summary(info), [
      h("button", { type: "button", class: "primary", onclick: () => produce(path, name, count, session.registry) }, "Produce"),
      h("button", { type: "button", onclick: () => grow(path, name, count) }, "Add partitions"),
      h("button", { type: "button", onclick: () => trim(path, name) }, "Delete records"),
      h("button", { type: "button", class: "danger", onclick: () => remove(path, name) }, "Delete topic"),
    ], h("a", { href: "#/topics" }, "Topics")),
    h("nav", { class: "tabs", "aria-label": "Parts of the topic" }, TABS.map(([key, label]) => h("a", { href: `#/topics/${part(name)}${key ? `/${key}` : ""}`, "aria-current": key === tab ? "page" : false }, label))),
    place);
  main.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (tab === "partitions") fill(place, partitionTable(path, signal).card);
  else if (tab === "settings") fill(place, await settingsCard(`${path}/settings`, signal, name));
  else if (tab === "groups") groupCard(place, path, signal);
  else if (tab === "access") fill(place, await topicAcls(name, signal));
  else if (tab === "producers") fill(place, await producerCard(path, name, signal));
  else await showRecords(place, { path, name, count, values, signal, hasRegistry: session.registry });
}

/** Say in a line what a topic holds. */
function summary(info) {
  return [plural(info.partitions.total, "partition"), info.records === null ? "" : plural(info.records, "record"), info.bytes === null ? "" : bytes(info.bytes), info.internal ? "internal" : ""].filter(Boolean).join(" · ");
}

function partitionTable(path, signal) {
  return pagedTable({
    title: "Partitions", label: "partitions", signal, placeholder: "Filter by number", size: 50,
    load: async (values) => (await get(path, values, signal)).partitions,
    columns: [
      { label: "Partition", sort: "number", number: true, cell: (row) => row.partition },
      { label: "Leader", number: true, cell: (row) => (row.leader < 0 ? badge("none", "bad") : row.leader) },
      { label: "Replicas", cell: (row) => row.replicas.join(", ") },
      { label: "In sync", cell: (row) => (row.in_sync.length < row.replicas.length ? badge(row.in_sync.join(", ") || "none", "warn") : row.in_sync.join(", ")) },
      { label: "First", number: true, cell: (row) => number(row.first) },
      { label: "Next", number: true, cell: (row) => number(row.next) },
      { label: "Records", number: true, cell: (row) => number(row.records) },
      { label: "Size", number: true, class: "nowrap", cell: (row) => bytes(row.bytes) },
    ],
  });
}

function groupCard(place, path, signal) {
  repeat(async () => {
    try {
      const answer = await get(`${path}/groups`, {}, signal);
      fill(place, card("Groups that read it, or have committed offsets of it", table([
        { label: "Group", class: "name", cell: (row) => groupLink(row.group) },
        { label: "Kind", class: "wide", cell: (row) => badge(row.kind) },
        { label: "State", cell: (row) => stateBadge(row.state) },
        { label: "Members", number: true, class: "wide", cell: (row) => number(row.members) },
        { label: "Partitions", number: true, class: "wide", cell: (row) => number(row.partitions) },
        { label: "Lag", number: true, title: "Records of this topic that the group has not committed yet", cell: (row) => (row.error ? badge(row.error, "bad") : row.lag ? badge(number(row.lag), "warn") : number(row.lag)) },
      ], answer.groups, { caption: "Groups", empty: answer.looked_at < answer.total ? `None of the first ${number(answer.looked_at)} groups.` : "No group reads this topic, or has committed offsets of it." })));
    } catch (error) {
      if (error.name !== "AbortError" && !signal.aborted) fill(place, notice(error.message, "bad"));
    }
  }, 10000, signal);  // of up to 200 groups
}

async function producerCard(path, name, signal) {
  const place = h("div");
  async function refresh() {
    const answer = await get(`${path}/producers`, {}, signal);
    fill(place, answer.error ? notice(answer.error, "warn") : null, card("Producers that its partitions know", table([
      { label: "Producer", class: "name mono", cell: (row) => row.producer_id }, { label: "Partition", number: true, cell: (row) => row.partition }, { label: "Epoch", number: true, cell: (row) => row.epoch },
      { label: "Last sequence", number: true, cell: (row) => number(row.last_sequence) }, { label: "Last record", class: "nowrap", cell: (row) => time(row.last_at_ms) },
      { label: "Transaction", cell: (row) => (row.transaction_offset === null ? "–" : [badge(`open since offset ${row.transaction_offset}`, "warn"), " ", h("button", { type: "button", class: "small danger", onclick: () => abort(row) }, "Abort")]) },
    ], answer.producers, { caption: "Producers", empty: "No idempotent producer has written here lately." })));
  }
  async function abort(row) {
    const target = `${name}-${row.partition}`;
    const isDone = await askName({ title: "Abort transaction", name: target, submit: "Abort transaction", text: `The transaction that producer ${row.producer_id} has open in ${target} will be aborted: consumers with isolation.level=read_committed never read its records. Do this where the producer is gone.`, act: (_, confirm) => post("/api/transactions/abort", { topic: name, partition: row.partition, producer_id: row.producer_id, confirm }) });
    if (isDone) { toast("The transaction was aborted."); refresh(); }
  }
  await refresh();
  return place;
}

async function grow(path, name, count) {
  const input = h("input", { name: "count", type: "number", min: String(count + 1), value: String(count + 1), required: true });
  const isDone = await ask({
    title: `Add partitions to ${name}`, submit: "Add",
    content: [notice("Partitions cannot be taken away again, and keys go to other partitions from then on.", "warn"), field("Partitions in all", input, `it has ${count}`)],
    act: () => post(`${path}/partitions`, { count: Number(input.value) }),
  });
  if (isDone) { toast(`${name} has ${input.value} partitions.`); window.dispatchEvent(new HashChangeEvent("hashchange")); }
}

async function trim(path, name) {
  const plan = await post(`${path}/trim`, { check: true });
  if (!plan.records) { toast(`${name} holds no records.`); return; }
  const rows = plan.rows.map((row) => ({ ...row, input: h("input", { type: "number", min: String(row.first), max: String(row.before), value: String(row.before), "aria-label": `Offset of partition ${row.partition}` }) }));
  let before = {};
  const isChosen = await ask({
    title: `Delete records of ${name}`, submit: "Continue", danger: true,
    content: [h("p", {}, "All records before these offsets go. As it stands: all."), table([{ label: "Partition", number: true, cell: (row) => row.partition }, { label: "First", number: true, cell: (row) => number(row.first) }, { label: "Delete before", cell: (row) => row.input }], rows, { caption: "Offsets" })],
    act: () => { before = Object.fromEntries(rows.map((row) => [row.partition, Number(row.input.value)])); },
  });
  if (!isChosen) return;
  const { records } = await post(`${path}/trim`, { check: true, before });
  const isDone = await askName({ title: "Delete records", name, submit: "Delete records", text: `${plural(records, "record")} of ${name} will be deleted. This cannot be undone.`, act: (_, confirm) => post(`${path}/trim`, { before, confirm }) });
  if (isDone) { toast(`${plural(records, "record")} deleted.`); window.dispatchEvent(new HashChangeEvent("hashchange")); }
}

async function remove(path, name) {
  const plan = await post(`${path}/trim`, { check: true }).catch(() => null);
  const isDone = await askName({ title: "Delete topic", name, submit: "Delete topic", text: `${name} will be deleted${plan ? ` with all its ${plural(plan.records, "record")}` : ""}. This cannot be undone.`, act: (_, confirm) => request("DELETE", path, { confirm }) });
  if (isDone) { toast(`Topic ${name} was deleted.`); location.hash = "#/topics"; }
}
