// Two versions of a schema beside each other: verdicts by level, lines that differ, and both in full.

import { get } from "../api.js";
import { badge, body, broken, card, fill, h, notice, select } from "../dom.js";
import { table } from "../table.js";
import { differing, summary } from "./difference.js";
import { visible, whole } from "./payload.js";

/** Make the card in which two versions of a subject are chosen and compared; `numbers` are all versions. */
export function comparing(path, numbers, chosen, signal) {
  const before = numbers[Math.max(numbers.indexOf(chosen) - 1, 0)];
  const [first, second] = before === chosen ? [chosen, numbers[1]] : [before, chosen];
  const choice = (label, selected) => select(numbers.map((version) => [String(version), `Version ${version}`, version === selected]), { "aria-label": label });
  const leftChoice = choice("One version", first);
  const rightChoice = choice("The other version", second);
  const status = h("span", { class: "soft", "aria-live": "polite" });
  const place = h("div", {});
  async function compare(event) {
    event.preventDefault();
    const [older, newer] = [Number(leftChoice.value), Number(rightChoice.value)].sort((a, b) => a - b);
    if (older === newer) { status.textContent = "Choose two versions that are not the same."; fill(place); return; }
    status.textContent = "Comparing …";
    try {
      const comparison = await get(`${path}/compare`, { older, newer }, signal);
      status.textContent = `Version ${newer} after version ${older}: ${summary(comparison.difference)}.`;
      fill(place, shown(comparison));
    } catch (error) {
      if (error.name === "AbortError") return;
      status.textContent = "";
      fill(place, notice(error.message, "bad"));
    }
  }
  return card("Versions beside each other", body(h("form", { class: "versions", onsubmit: compare }, leftChoice, h("span", { class: "soft" }, "and"), rightChoice, h("button", { type: "submit", class: "primary" }, "Compare"), status), place));
}

function shown(comparison) {
  const [before, after] = [comparison.older, comparison.newer].map((version) => `Version ${version.version}`);
  return [
    h("h3", {}, `May ${after.toLowerCase()} follow ${before.toLowerCase()}?`),
    comparison.levels.length ? verdicts(comparison) : notice(`Compatibility cannot be checked: ${comparison.problems.map(visible).join("; ")}`, "warn"),
    h("h3", {}, comparison.newer.normalized && comparison.older.normalized ? "What differs, normalised" : "What differs"),
    differing(comparison.difference, "What differs between the two versions", before, after),
    h("div", { class: "sides" }, side(before, comparison.older), side(after, comparison.newer))];
}

function verdicts({ levels, compatibility, left_out: leftOut }) {
  const columns = [
    { label: "Level", class: "level", cell: (row) => [broken(row.level), row.level === compatibility ? [" ", badge("this subject's", "info")] : null] },
    { label: "Verdict", cell: (row) => badge(row.compatible ? "compatible" : "breaks", row.compatible ? "good" : "bad") },
    { label: "Against", cell: (row) => (row.against.length > 4 ? `${row.against.length} versions from ${row.against[0]} to ${row.against.at(-1)}` : row.against.join(", ")) },
  ];
  return [
    h("div", { class: "verdicts" }, table(columns, levels, { caption: "Verdict of each level of compatibility" })),
    leftOut ? h("p", { class: "soft" }, `${leftOut} versions between were skipped.`) : null,
    reasons(levels)];
}

/** List what is broken, each once, with the levels that it breaks. */
function reasons(levels) {
  const labelsByText = new Map();
  for (const row of levels) {
    const label = row.against.length > 1 ? `${row.level} (version ${row.broken})` : row.level;
    for (const text of row.messages) labelsByText.set(text, [...(labelsByText.get(text) ?? []), label]);
    if (row.messages.length < row.messages_total) { const more = `and ${row.messages_total - row.messages.length} more`; labelsByText.set(more, [...(labelsByText.get(more) ?? []), label]); }
  }
  if (!labelsByText.size) return null;
  return h("ul", { class: "reasons", "aria-label": "What is broken" }, [...labelsByText].map(([text, labels]) => h("li", {}, h("span", { class: "mono" }, visible(text)), h("p", { class: "soft" }, labels.join(", ")))));
}

function side(label, version) {
  return h("section", { class: "side", "aria-label": label }, h("h4", {}, label), h("p", { class: "soft" }, `Id ${version.id}, ${version.type}${version.normalized ? ", normalised" : ""}`), whole({ form: version.type === "PROTOBUF" ? "text" : "json", text: version.text, size: version.text.length, cut: version.cut }));
}
