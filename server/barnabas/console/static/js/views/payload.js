// Keys and values: a preview in one line, and the whole, coloured where it is JSON.

import { h } from "../dom.js";
import { bytes } from "../format.js";

const FORMS = { null: "null", json: "JSON", text: "text", hex: "hex" };
const COLOURED_MAX = 200000;
const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;

export const formOf = (payload) => `${FORMS[payload.form] ?? payload.form}${payload.schema_id ? ` · schema ${payload.schema_id}` : ""}`;

export function preview(payload) {
  if (payload.form === "null") return h("span", { class: "preview soft" }, "null");
  if (payload.text === "") return h("span", { class: "preview soft" }, "empty");
  return h("span", { class: "preview" }, visible(payload.text.slice(0, 300)));
}

/** Make control characters and those that turn text around visible. */
export const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Show all of a payload. */
export function whole(payload) {
  if (payload.form === "null") return h("p", { class: "soft" }, "null");
  const isJson = payload.form !== "text" && payload.form !== "hex";
  let text = payload.text;
  if (isJson && !payload.cut) { try { text = pretty(text); } catch { /* as it is */ } }
  const code = h("pre", { class: "code", tabindex: "0" });
  if (isJson && text.length < COLOURED_MAX) code.append(...coloured(visible(text)));
  else code.append(visible(text));
  return [code, payload.problem ? h("p", { class: "bad" }, payload.problem) : null, payload.cut ? h("p", { class: "soft" }, `The first ${text.length.toLocaleString("en")} characters of ${bytes(payload.size)}.`) : null];
}

/** Indent JSON without reading its numbers, which may be larger than a browser can count. */
function pretty(text) {
  JSON.parse(text);
  let depth = 0;
  let formatted = "";
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === '"') {
      const from = at;
      for (at += 1; text[at] !== '"'; at += 1) if (text[at] === "\\") at += 1;
      formatted += text.slice(from, at + 1);
    } else if (character === "{" || character === "[") {
      const next = text.slice(at + 1).match(/^\s*([}\]])/);
      if (next) { formatted += character + next[1]; at += next[0].length; } else { depth += 1; formatted += `${character}\n${"  ".repeat(depth)}`; }
    } else if (character === "}" || character === "]") { depth -= 1; formatted += `\n${"  ".repeat(depth)}${character}`; }
    else if (character === ",") formatted += `,\n${"  ".repeat(depth)}`;
    else if (character === ":") formatted += ": ";
    else if (!/\s/.test(character)) formatted += character;
  }
  return formatted;
}

function* coloured(text) {
  let last = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > last) yield text.slice(last, match.index);
    const [all, string, colon, digits] = match;
    if (string) { yield h("span", { class: colon ? "json-key" : "json-text" }, string); if (colon) yield colon; }
    else yield h("span", { class: digits ? "json-number" : "json-word" }, all);
    last = match.index + all.length;
  }
  if (last < text.length) yield text.slice(last);
}
