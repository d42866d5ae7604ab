// Dead letters: the choice of them, what a redrive would send, and the outcome of each.

import { part, post } from "../api.js";
import { ask, badge, field, fill, h, notice } from "../dom.js";
import { number, plural } from "../format.js";
import { table } from "../table.js";

/** Make the box that chooses a record, if that is a dead letter. */
export const boxOf = (record) => (record.dead_letter ? h("input", { type: "checkbox", class: "letter", value: `${record.partition}:${record.offset}`, "aria-label": `Choose ${record.partition}:${record.offset}` }) : null);

/** Make the bar over the dead letters among rows; `fit` after these have changed. */
export function letterBar(rows, path) {
  const boxes = () => [...rows.querySelectorAll("input.letter")];
  const chosen = () => boxes().filter((box) => box.checked).map((box) => box.value);
  const all = h("input", { type: "checkbox", onchange: () => { for (const box of boxes()) box.checked = all.checked; fit(); } });
  const status = h("span", { class: "soft", "aria-live": "polite" });
  const button = h("button", { type: "button", class: "small", onclick: send }, "Redrive");
  const bar = h("div", { class: "bar", role: "group", "aria-label": "Dead letters", hidden: true }, h("label", { class: "inline" }, all, "All that are shown"), status, h("span", { class: "spacer" }), button);
  function fit() {
    const [count, picked] = [boxes().length, chosen().length];
    bar.hidden = !count;
    all.checked = count > 0 && picked === count;
    all.indeterminate = picked > 0 && picked < count;
    status.textContent = `${number(picked)} of ${plural(count, "dead letter")}`;
    button.disabled = !picked;
  }
  async function send() {
    const sent = await redrive(path, chosen());
    for (const box of boxes()) if (sent.has(box.value)) box.checked = false;
    fit();
  }
  rows.addEventListener("change", fit);
  return { bar, fit };
}

/** Say which record a dead letter stands for, and why. */
export function originOf(letter) {
  const place = letter.partition === null || letter.offset === null ? null : `partition=${letter.partition}&offset=${letter.offset}`;
  return h("p", { class: "notice warn" }, "Dead letter of ", h("a", { href: `#/topics/${part(letter.topic)}${place ? `?${place}` : ""}` }, nameOf(letter)), `, given up by ${[letter.kind, letter.reader].filter(Boolean).join(" ")}${letter.reason ? `: ${letter.reason}` : ""}`);
}

const nameOf = ({ topic, partition, offset }) => `${topic}${partition === null ? "" : `-${partition}`}${offset === null ? "" : `, offset ${offset}`}`;

function outcomes(rows, caption, isSent) {
  const place = (row) => (row.sent ? nameOf({ topic: row.topic, ...row.sent }) : row.error ? "–" : nameOf({ topic: row.topic, partition: row.to_partition, offset: null }));
  return table([
    { label: "Letter", class: "mono nowrap", cell: (row) => `${row.partition}:${row.offset}` },
    { label: "Record", cell: (row) => (row.origin ? nameOf(row.origin) : "–") },
    { label: isSent ? "Sent" : "To", cell: place },
    { label: "Headers", number: true, class: "wide", cell: (row) => number(row.headers) },
    { label: "", cell: (row) => [row.error ? badge(isSent ? "not sent" : "will not be sent", "bad") : isSent ? badge("sent", "good") : null, " ", row.error || row.note] },
  ], rows, { caption });
}

/** Show what would be sent, ask, send it, and show the outcome of each; `ids` are PARTITION:OFFSET. Returns those sent. */
export async function redrive(path, ids) {
  const offsets = {};
  for (const id of ids) { const [partition, offset] = id.split(":"); (offsets[partition] ??= []).push(Number(offset)); }
  const target = h("input", { name: "target", autocomplete: "off", spellcheck: "false", placeholder: "the topic of each record", onchange: look });
  const plan = h("div", { "aria-live": "polite" }, h("p", { class: "soft" }, "Reading …"));
  const payload = () => ({ offsets, target: target.value.trim() });
  async function look() {
    try {
      const { rows, failed } = await post(`${path}/redrive`, payload());
      fill(plan, failed ? notice(`${plural(failed, "dead letter")} of ${number(rows.length)} will not be sent.`, "warn") : null, outcomes(rows, "What is sent", false));
    } catch (error) {
      fill(plan, notice(error.message, "bad"));
    }
  }
  look();
  let answer = { rows: [] };
  const isDone = await ask({
    title: `Redrive ${plural(ids.length, "dead letter")}`, submit: "Redrive",
    content: [
      h("p", {}, "The records will be appended once more, with their keys, values and headers. Every group that reads the topic gets them, also those that have processed them; the dead letters stay where they are."), h("br"),
      field("Send to", target, "a topic; without one each goes to the topic that its headers name, to the partition that the record had"), plan,
    ],
    act: async () => { answer = await post(`${path}/redrive`, { ...payload(), execute: true }); },
  });
  if (isDone) await ask({ title: `${number(answer.rows.length - answer.failed)} of ${number(answer.rows.length)} sent`, submit: "Close", cancel: "", content: outcomes(answer.rows, "Outcomes", true), act: () => true });
  return new Set(answer.rows.filter((row) => row.sent).map((row) => `${row.partition}:${row.offset}`));
}
