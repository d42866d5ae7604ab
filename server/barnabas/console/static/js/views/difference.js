// What differs between two texts: by JSON path, or line by line. The rule: a change has a word, not a colour alone.

import { badge, h } from "../dom.js";
import { number, plural } from "../format.js";
import { visible } from "./payload.js";

const KINDS = { added: "good", removed: "bad", changed: "warn" };
const SIGNS = { added: "+", removed: "−", same: "" };

/** Say in a few words how much differs. */
export function summary(difference) {
  const count = difference.rows.filter((row) => row.change in KINDS).length;
  if (!count) return difference.cut ? "no difference in the part that was compared" : "no difference";
  return `${difference.cut ? "more than " : ""}${plural(count, difference.by === "path" ? "difference" : "line", difference.by === "path" ? "differences" : "lines")}${difference.by === "path" ? "" : " added or removed"}`;
}

/** Show a difference as a table; `before` and `after` name both sides. */
export function differing(difference, caption, before, after) {
  if (!difference.rows.length) return h("p", { class: "soft" }, difference.cut ? "No difference in the part that was compared; the rest is too long." : "No difference.");
  const rows = difference.by === "path" ? byPath(difference.rows, before, after) : byLine(difference.rows, before, after);
  return [
    h("div", { class: "scroll difference", tabindex: "0", role: "region", "aria-label": caption }, h("table", { "aria-label": caption }, rows)),
    difference.cut ? h("p", { class: "soft" }, "There is more, which is not shown.") : null];
}

const heads = (labels, classes = []) => h("thead", {}, h("tr", {}, labels.map((label, index) => h("th", { scope: "col", class: classes[index] }, label))));
const text = (value) => (value === null ? h("span", { class: "soft" }, "–") : visible(value));

function byPath(rows, before, after) {
  return [heads(["Path", "Change", before, after]), h("tbody", {}, rows.map((row) => h("tr", {},
    h("td", { class: "code" }, visible(row.path)), h("td", {}, badge(row.change, KINDS[row.change])), h("td", { class: "code" }, text(row.before)), h("td", { class: "code" }, text(row.after)))))];
}

function byLine(rows, before, after) {
  return [heads([before, after, "Change", "Line"], ["wide place", "wide place", "place"]), h("tbody", {}, rows.map((row) => (row.change === "skipped"
    ? h("tr", { class: "skipped" }, h("td", { colspan: "4", class: "soft" }, `${plural(row.count, "line")} the same`))
    : h("tr", { class: row.change }, h("td", { class: "wide soft" }, row.before === null ? "" : number(row.before)), h("td", { class: "wide soft" }, row.after === null ? "" : number(row.after)),
      h("td", {}, row.change === "same" ? "" : badge(`${SIGNS[row.change]} ${row.change}`, KINDS[row.change])), h("td", { class: "code" }, visible(row.text))))))];
}
