// Settings of a topic or a broker: each with its value, where that comes from, and a way to change it.

import { get, request } from "../api.js";
import { ask, badge, broken, check, field, fill, h, toast } from "../dom.js";
import { meaning, settingValue } from "../format.js";
import { table } from "../table.js";

const OWN = ["topic", "broker", "all brokers"];
const SET = [...OWN, "file"];
const isSet = (row) => SET.includes(row.source);
/** Put settings that are set before all others, those of the topic or broker itself first. */
const inOrder = (rows) => [...SET.flatMap((source) => rows.filter((row) => row.source === source)), ...rows.filter((row) => !isSet(row))];

/** Make a card of settings that a path gives and takes. */
export async function settingsCard(path, signal, what) {
  let rows = inOrder((await get(path, {}, signal)).settings);
  const place = h("div");
  const input = h("input", { type: "search", class: "filter", placeholder: "Filter settings", "aria-label": "Filter settings" });
  let onlySet = false;
  const list = () => {
    const text = input.value.trim().toLowerCase();
    const shown = rows.filter((row) => row.name.toLowerCase().includes(text) && (!onlySet || isSet(row)));
    fill(place, table([
      { label: "Setting", class: "name setting", cell: (row) => [h("span", { class: "mono" }, broken(row.name)), row.documentation ? h("div", { class: "soft" }, row.documentation) : null] },
      { label: "Value", class: "mono", cell: (row) => (row.sensitive ? h("span", { class: "soft" }, "secret") : row.value === "" ? h("span", { class: "soft" }, "empty") : [row.value, meaning(row.name, row.value) ? h("div", { class: "soft meaning" }, meaning(row.name, row.value)) : null]) },
      { label: "From", cell: (row) => badge(row.source, OWN.includes(row.source) ? "info" : "") },
      { label: "Change", cell: (row) => (row.read_only ? h("span", { class: "soft" }, "read-only") : h("button", { type: "button", class: "small", "aria-label": `Change ${row.name}`, onclick: () => change(row) }, "Change")) },
    ], shown, { caption: `Settings of ${what}`, empty: "Nothing matches." }));
  };
  async function change(row) {
    const value = h("input", { name: "value", value: row.value ?? "", autocomplete: "off", spellcheck: "false" });
    const reset = h("input", { type: "checkbox", name: "reset" });
    const means = h("p", { class: "soft", "aria-live": "polite" });
    const tell = () => {
      const typed = settingValue(row.name, value.value);
      fill(means, [typed === value.value ? "" : `= ${typed}`, meaning(row.name, typed)].filter(Boolean).join(", "));
    };
    value.addEventListener("input", tell);
    tell();
    const below = row.synonyms.find((synonym) => synonym.source !== row.source);
    const isDone = await ask({
      title: `Change ${row.name}`,
      content: [row.documentation ? h("p", { class: "soft" }, row.documentation) : null, h("br"), field("New value", value), means, OWN.includes(row.source) ? h("label", { class: "inline" }, reset, `Back to what it is without (${below ? `${below.value ?? "secret"}, ${below.source}` : "default"})`) : null],
      act: () => request("PATCH", path, reset.checked ? { remove: [row.name] } : { set: { [row.name]: settingValue(row.name, value.value) } }),
    });
    if (isDone) {
      toast(`${row.name} of ${what} was changed.`);
      rows = inOrder((await get(path, {}, signal)).settings);
      list();
    }
  }
  input.addEventListener("input", list);
  list();
  return h("section", { class: "card", "aria-label": "Settings" }, h("div", { class: "bar" }, input, check("Only those that are set", { onchange: (event) => { onlySet = event.target.checked; list(); } })), place);
}
