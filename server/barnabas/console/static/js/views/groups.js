// Groups of every kind, and the one that is chosen.

import { get, part, post, request } from "../api.js";
import { ask, askName, badge, body, broken, card, field, fill, h, head, notice, select, tile, toast } from "../dom.js";
import { plot } from "../chart.js";
import { number, plural } from "../format.js";
import { pagedTable, table } from "../table.js";

const STATES = { Stable: "good", Empty: "", Dead: "bad", PreparingRebalance: "warn", CompletingRebalance: "warn", Assigning: "warn", Reconciling: "warn" };
export const stateBadge = (state) => badge(state || "unknown", STATES[state] ?? "");
export const groupLink = (name) => h("a", { href: `#/groups/${part(name)}` }, name ? broken(name) : "(no name)");

export async function show(context) {
  if (context.parts[0]) { await showGroup(context); return; }
  const { main, signal } = context;
  const list = pagedTable({
    title: "Consumer groups", label: "groups", signal, placeholder: "Filter groups", empty: context.session.user ? `No groups that ${context.session.user} may see.` : "No groups yet.",
    load: (values) => get("/api/groups", values, signal),
    filters: [{ names: ["kind"], make: (change, values) => select([["", "All kinds"], ["classic"], ["consumer"], ["share"], ["streams"]].map(([kind, text]) => [kind, text, kind === values.kind]), { "aria-label": "Kind", onchange: (event) => change({ kind: event.target.value }) }) }],
    columns: [
      { label: "Group", sort: "name", class: "name", cell: (row) => groupLink(row.name) },
      { label: "Kind", sort: "kind", class: "wide", cell: (row) => badge(row.kind) },
      { label: "State", sort: "state", cell: (row) => stateBadge(row.state) },
      { label: "Members", number: true, class: "wide", cell: (row) => number(row.members) },
      { label: "Topics", number: true, class: "wide", cell: (row) => number(row.topics) },
      { label: "Lag", number: true, cell: (row) => (row.error ? badge(row.error, "bad") : number(row.lag)) },
      { label: "Coordinator", number: true, class: "wide", cell: (row) => row.coordinator },
    ],
  });
  fill(main, head("Consumer groups", "Classic, consumer, share and streams groups, with how far behind they are."), list.card);
}

async function showGroup({ main, parts, signal }) {
  const name = parts[0];
  const path = `/api/groups/${part(name)}`;
  let groupState = await get(path, {}, signal);
  const tiles = h("div", { class: "cards" });
  const plotPlace = h("div", { class: "plot" });
  const members = h("div");
  const chart = plot(plotPlace, ["lag"], signal);
  const partitions = pagedTable({
    title: "Partitions", label: "partitions", signal, placeholder: "Filter by topic or client", every: 5000,
    load: async (values) => { groupState = await get(path, values, signal); show(groupState); return groupState.partitions; },
    empty: "It has committed nothing and reads nothing.",
    columns: [
      { label: "Topic", sort: "topic", class: "name", cell: (row) => h("a", { href: `#/topics/${part(row.topic)}` }, broken(row.topic)) },
      { label: "Partition", number: true, cell: (row) => row.partition },
      { label: "Committed", number: true, cell: (row) => number(row.committed) },
      { label: "End", number: true, cell: (row) => number(row.next) },
      { label: "Lag", sort: "lag", number: true, cell: (row) => (row.error ? badge(row.error, "bad") : row.lag ? badge(number(row.lag), "warn") : number(row.lag)) },
      { label: "Read by", cell: (row) => (row.member ? [row.client_id, h("div", { class: "soft" }, row.host)] : "–") },
      { label: "", cell: (row) => h("button", { type: "button", class: "small", "aria-label": `Set the offset of ${row.topic}-${row.partition}`, onclick: () => reset(path, name, partitions.refresh, row) }, "Set") },
    ],
  });
  function show(group) {
    fill(tiles, tile("State", stateBadge(group.state), group.kind === "classic" ? "classic protocol" : `${group.kind} group, epoch ${group.epoch}`, null, true), tile("Lag", number(group.lag), "records, all partitions"), tile("Members", number(group.members_total)), tile("Assignor", group.assignor || "–", `coordinator: broker ${group.coordinator}`, null, true), group.dead_letter_topic ? tile("Dead letters", broken(group.dead_letter_topic), "records that the group has given up", `#/topics/${part(group.dead_letter_topic)}`, true) : null);
    chart.update(group.history.map((sample) => sample.at / 1000), [group.history.map((sample) => sample.lag)]);
    fill(members, table([
      { label: "Member", class: "name", cell: (row) => [row.instance_id ?? row.client_id, h("div", { class: "soft mono" }, row.id)] },
      { label: "Host", class: "mono", cell: (row) => row.host },
      { label: "Epoch", number: true, cell: (row) => row.epoch ?? "–" },
      { label: "Assignment", cell: (row) => Object.entries(row.assignment).map(([topic, numbers]) => h("div", {}, `${topic} `, h("span", { class: "soft" }, ranges(numbers)))) },
    ], group.members, { caption: "Members", empty: "No members now." }));
  }
  fill(main, head(name || "(no name)", "", [
    h("button", { type: "button", onclick: () => reset(path, name, partitions.refresh) }, "Reset offsets"),
    h("button", { type: "button", class: "danger", onclick: () => remove(path, name) }, "Delete group"),
  ], h("a", { href: "#/groups" }, "Consumer groups")), tiles, card("Lag over time", body(plotPlace)), card("Members", members), partitions.card);
  show(groupState);
}

/** Write 0, 1, 2, 5 as 0–2, 5. */
export function ranges(numbers) {
  const ranges = [];
  for (const value of numbers) {
    const last = ranges[ranges.length - 1];
    if (last && last[1] === value - 1) last[1] = value;
    else ranges.push([value, value]);
  }
  return ranges.map(([first, last]) => (first === last ? String(first) : `${first}–${last}`)).join(", ");
}

/** Reset offsets, of one partition if that is given. */
async function reset(path, name, refresh, partition = null) {
  const to = select([["earliest", "the first record"], ["latest", "the end"], ["offset", "an offset", partition], ["time", "a time"], ["shift", "a number of records forward or back"]], { name: "to" });
  const value = h("input", { name: "value", type: "number", value: String(partition?.committed ?? 0) });
  const time = h("input", { name: "time", type: "datetime-local", step: "1" });
  const topics = h("input", { name: "topics", placeholder: "all that it has committed", autocomplete: "off", value: partition ? `${partition.topic}:${partition.partition}` : "" });
  const plan = h("div", { "aria-live": "polite" });
  const valueField = field("Value", value);
  const timeField = field("Time (local)", time);
  const fit = () => { valueField.hidden = !["offset", "shift"].includes(to.value); timeField.hidden = to.value !== "time"; };
  to.addEventListener("change", fit);
  fit();
  const payload = () => ({ to: to.value, value: to.value === "time" ? new Date(time.value).getTime() : Number(value.value), topics: topics.value.split(",").map((topic) => topic.trim()).filter(Boolean) });
  const showPlan = (planned) => fill(plan, planned.active ? notice(`The group is ${planned.active}: its members must stop first.`, "warn") : null, table([
    { label: "Partition", cell: (row) => `${row.topic}-${row.partition}` }, { label: "Committed", number: true, cell: (row) => number(row.committed) }, { label: "New", number: true, cell: (row) => number(row.new) }, { label: "", cell: (row) => (row.error ? badge(row.error, "bad") : "") },
  ], planned.rows, { caption: "What would be set" }));
  const isSure = await ask({
    title: `Reset offsets of ${name}`, submit: "Continue",
    content: [h("div", { class: "fields" }, field("Read on from", to), valueField, timeField), field("Topics", topics, "TOPIC or TOPIC:PARTITION, with commas between them"), h("button", { type: "button", onclick: async () => { try { showPlan(await post(`${path}/offsets`, payload())); } catch (error) { fill(plan, notice(error.message, "bad")); } } }, "Show what would be set"), plan],
    act: async () => { showPlan(await post(`${path}/offsets`, payload())); },
  });
  if (!isSure) return;
  const rows = (await post(`${path}/offsets`, payload())).rows;
  const isDone = await askName({
    title: "Reset offsets", name, submit: "Reset offsets", text: `${plural(rows.length, "offset")} of ${name} will be reset. Its consumers continue from there: records are read again, or skipped.`,
    act: async (_, confirm) => { const done = await post(`${path}/offsets`, { ...payload(), execute: true, confirm }); const failed = done.rows.find((row) => row.error); if (failed) throw new Error(`${failed.topic}-${failed.partition}: ${failed.error}`); },
  });
  if (isDone) { toast(`Offsets of ${name} were set.`); refresh(); }
}

async function remove(path, name) {
  const isDone = await askName({ title: "Delete group", name, submit: "Delete group", text: `${name} will be deleted with all its offsets. Consumers that come back begin as new ones.`, act: (_, confirm) => request("DELETE", path, { confirm }) });
  if (isDone) { toast(`Group ${name} was deleted.`); location.hash = "#/groups"; }
}
