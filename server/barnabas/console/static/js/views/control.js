// The test bench: faults on purpose, the broker's clock, snapshots.

import { part, post } from "../api.js";
import { ask, askName, badge, card, field, fill, h, head, notice, toast } from "../dom.js";
import { duration, number, time, zone } from "../format.js";
import { table } from "../table.js";

/** Names and values of what the control API tells of the clock. */
const CLOCK = { now_ms: ["Now", (value) => `${time(value)} ${zone()} (${value})`], ahead_ms: ["Ahead of this machine", (value) => (value ? duration(value) : "no")], frozen: ["Stopped", (value) => (value ? "yes" : "no")], factor: ["Speed", (value) => `${value} ×`] };
const steer = (path, payload = {}) => post(`/api/control/${part(path)}`, payload);

export async function show({ main, signal }) {
  const faults = h("div");
  const clock = h("div");
  const snapshots = h("div");
  fill(main, head("Test bench", "What goes wrong on purpose, what time it is for the broker, and where to go back to."), faults, h("div", { class: "columns" }, clock, snapshots));

  async function guarded(place, work) {
    try { await work(); } catch (error) { if (!signal.aborted) fill(place, card(null, h("div", { class: "body" }, notice(error.message)))); }
  }
  const drawFaults = () => guarded(faults, async () => {
    const answer = await steer("faults");
    const panel = card("Faults", table([
      { label: "Fault", class: "name mono", cell: (row) => [row.name, h("div", { class: "soft" }, ["on", "when", "do"].filter((part) => row[part] && Object.keys(row[part]).length).map((part) => `${part} ${JSON.stringify(row[part])}`).join(" "))] },
      { label: "Hits", number: true, cell: (row) => number(row.hits) },
      { label: "State", cell: (row) => badge(row.enabled === false ? "off" : "on", row.enabled === false ? "" : "warn") },
      { label: "", cell: (row) => h("button", { type: "button", class: "small danger", "aria-label": `Remove ${row.name}`, onclick: async () => { await steer(`faults/${part(row.name)}`, { method: "DELETE" }); drawFaults(); } }, "Remove") },
    ], answer.faults, { caption: "Faults", empty: "No faults." }));
    panel.firstElementChild.append(h("button", { type: "button", class: "primary", onclick: addFault }, "Add fault"));
    fill(faults, panel);
  });
  async function addFault() {
    const rule = h("input", { required: true, autocomplete: "off", placeholder: "Produce topic=t nth=3 -> error=NOT_LEADER_OR_FOLLOWER", spellcheck: "false" });
    if (await ask({ title: "Add fault", submit: "Add", content: field("Rule", rule, "as for barnabas serve --fault"), act: () => steer("faults", { method: "POST", short: rule.value }) })) drawFaults();
  }
  const drawClock = () => guarded(clock, async () => {
    const state = await steer("clock");
    const seconds = h("input", { type: "number", min: "0", value: "60", "aria-label": "Seconds to advance" });
    const act = (path, payload) => async () => { try { await steer(path, { method: "POST", ...payload?.() }); drawClock(); } catch (error) { toast(error.message, "bad"); } };
    fill(clock, card("Clock", h("div", { class: "body" }, h("dl", {}, Object.entries(state).map(([name, value]) => { const [label, text] = CLOCK[name] ?? [name, String]; return [h("dt", {}, label), h("dd", {}, text(value))]; })), h("br"),
      h("div", { class: "actions" }, seconds, h("button", { type: "button", onclick: act("clock/advance", () => ({ ms: Number(seconds.value) * 1000 })) }, "Advance"), h("button", { type: "button", onclick: act("clock/freeze") }, "Freeze"), h("button", { type: "button", onclick: act("clock/resume") }, "Resume")))));
  });
  const drawSnapshots = () => guarded(snapshots, async () => {
    const answer = await steer("snapshots");
    const panel = card("Snapshots", table([
      { label: "Snapshot", class: "name", cell: (row) => row },
      { label: "", cell: (row) => [h("button", { type: "button", class: "small danger", onclick: () => restore(row) }, "Restore"), " ", h("button", { type: "button", class: "small", onclick: async () => { await steer(`snapshots/${part(row)}`, { method: "DELETE" }); drawSnapshots(); } }, "Remove")] },
    ], answer.snapshots, { caption: "Snapshots", empty: "No snapshots yet." }));
    panel.firstElementChild.append(h("button", { type: "button", class: "primary", onclick: take }, "Take snapshot"));
    fill(snapshots, panel);
  });
  async function take() {
    const name = h("input", { required: true, autocomplete: "off" });
    if (await ask({ title: "Take snapshot", submit: "Take", content: field("Name", name), act: () => steer("snapshots", { method: "POST", name: name.value }) })) drawSnapshots();
  }
  async function restore(name) {
    const path = `snapshots/${part(name)}/restore`;
    if (await askName({ title: "Restore snapshot", name, submit: "Restore", text: `The broker goes back to ${name}: all that came since is lost, and clients are cut off for a moment.`, act: () => steer(path, { method: "POST", confirm: path }) })) toast(`The broker holds what ${name} held.`);
  }
  await Promise.all([drawFaults(), drawClock(), drawSnapshots()]);
}
