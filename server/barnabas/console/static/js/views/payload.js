// Keys and values: a preview in one line, and the whole, coloured where it is JSON.

import { h } from "../dom.js";
import { bytes } from "../format.js";

const FORMS = { null: "null", json: "JSON", text: "text", hex: "hex", msgpack: "MessagePack", cbor: "CBOR" };
const COLOURED_MAX = 200000;
const PREVIEW_MAX = 300;
const MARK_SEEN = 60;
const BEFORE_MARK = 30;
const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;

export const formOf = (payload) => `${FORMS[payload.form] ?? payload.form}${payload.schema_id ? ` · schema ${payload.schema_id}` : ""}`;

export function preview(payload) {
  if (payload.form === "null") return h("span", { class: "preview soft" }, "null");
  if (payload.text === "") return h("span", { class: "preview soft" }, "empty");
  const marks = payload.marks ?? [];
  const from = marks.length && marks[0][0] > MARK_SEEN ? marks[0][0] - BEFORE_MARK : 0;
  return h("span", { class: "preview" }, from ? "… " : null, ...marked(payload.text.slice(from, from + PREVIEW_MAX), from, marks));
}

/** Yield a piece of a text that begins at a place, with what is marked of it. */
function* marked(text, from, marks) {
  let last = 0;
  for (const [first, end] of marks) {
    const [start, stop] = [Math.max(first - from, last), Math.min(end - from, text.length)];
    if (start >= stop) continue;
    if (start > last) yield visible(text.slice(last, start));
    yield h("mark", {}, visible(text.slice(start, stop)));
    last = stop;
  }
  if (last < text.length) yield visible(text.slice(last));
}

/** Make control characters and those that turn text around visible. */
export const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Show all of a payload. */
export function whole(payload) {
  if (payload.form === "null") return h("p", { class: "soft" }, "null");
  const isJson = payload.form !== "text" && payload.form !== "hex";
  let text = payload.text;
  let marks = payload.marks ?? [];
  if (isJson && !payload.cut) { try { [text, marks] = pretty(text, marks); } catch { /* as it is */ } }
  const code = h("pre", { class: "code", tabindex: "0" });
  code.append(...(isJson && text.length < COLOURED_MAX ? coloured(text, marks) : marked(text, 0, marks)));
  return [code, payload.problem ? h("p", { class: "bad" }, payload.problem) : null, payload.cut ? h("p", { class: "soft" }, `The first ${text.length.toLocaleString("en")} characters of ${bytes(payload.size)}.`) : null];
}

/** Indent JSON without reading its numbers, which may be larger than a browser can count; its marks move with it. */
function pretty(text, marks) {
  JSON.parse(text);
  let depth = 0;
  let formatted = "";
  const bounds = marks.flat();
  const moved = [];
  for (let at = 0; at < text.length; at += 1) {
    while (moved.length < bounds.length && bounds[moved.length] <= at) moved.push(formatted.length);
    const character = text[at];
    if (character === '"') {
      const from = at;
      for (at += 1; text[at] !== '"'; at += 1) if (text[at] === "\\") at += 1;
      while (moved.length < bounds.length && bounds[moved.length] <= at) moved.push(formatted.length + bounds[moved.length] - from);
      formatted += text.slice(from, at + 1);
    } else if (character === "{" || character === "[") {
      const next = text.slice(at + 1).match(/^\s*([}\]])/);
      if (next) { formatted += character + next[1]; at += next[0].length; } else { depth += 1; formatted += `${character}\n${"  ".repeat(depth)}`; }
    } else if (character === "}" || character === "]") { depth -= 1; formatted += `\n${"  ".repeat(depth)}${character}`; }
    else if (character === ",") formatted += `,\n${"  ".repeat(depth)}`;
    else if (character === ":") formatted += ": ";
    else if (!/\s/.test(character)) formatted += character;
  }
  while (moved.length < bounds.length) moved.push(formatted.length);
  return [formatted, marks.map((_, index) => [moved[2 * index], moved[2 * index + 1]])];
}

function* coloured(text, marks) {
  let last = 0;
  const piece = (from, to) => marked(text.slice(from, to), from, marks);
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > last) yield* piece(last, match.index);
    const [all, string, colon, digits] = match;
    const end = match.index + (string ?? all).length;
    yield h("span", { class: string ? (colon ? "json-key" : "json-text") : digits ? "json-number" : "json-word" }, ...piece(match.index, end));
    last = match.index + all.length;
    if (last > end) yield* piece(end, last);
  }
  if (last < text.length) yield* piece(last, text.length);
}
