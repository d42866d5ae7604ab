// Tables: plain ones, and pages of what the server filters and sorts.

import { fromAddress, keepInAddress } from "./address.js";
import { fill, h, notice } from "./dom.js";
import { number } from "./format.js";

/** Make a table. A column: {label, cell(row), number, sort, class, title}; narrow screens leave out those of class `wide`. */
export function table(columns, rows, { empty = "Nothing here.", caption = "", sorting = null, row: decorate = null } = {}) {
  const heads = columns.map((column) => {
    const isSorted = sorting && column.sort && sorting.sort === column.sort;
    const label = sorting && column.sort ? h("button", { type: "button", onclick: () => sorting.by(column.sort) }, column.label) : column.label;
    return h("th", { scope: "col", class: [column.number ? "number" : "", column.class === "wide" ? "wide" : ""].join(" ").trim(), title: column.title, "aria-sort": isSorted ? (sorting.order === "asc" ? "ascending" : "descending") : false }, label);
  });
  const lines = rows.map((row) => {
    const line = h("tr", {}, columns.map((column) => h("td", { class: [column.number ? "number" : "", column.class ?? ""].join(" ").trim() }, column.cell(row))));
    return decorate ? decorate(line, row) : line;
  });
  if (!rows.length) lines.push(h("tr", {}, h("td", { class: "empty", colspan: String(columns.length) }, empty)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", { "aria-label": caption }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, lines)));
}

/**
 * Make a card with a table whose pages come from the server: load(values) → {rows, total, page, size}. Refreshes itself every
 * `every` ms while it can be seen, and keeps what is typed, in the address too. A filter: {names, make(change, values)}.
 */
export function pagedTable({ title, columns, load, signal, filters = [], every = 5000, empty = "Nothing here.", placeholder = "Filter by name", sort = "", order = "asc", size = 25, label = "rows", row = null, onload = null }) {
  const usual = { filter: "", sort, order, page: 1, size, ...Object.fromEntries(filters.flatMap(({ names }) => names.map((name) => [name, ""]))) };
  const values = { ...usual };
  for (const [name, value] of fromAddress()) if (name in usual) values[name] = typeof usual[name] === "number" ? Number(value) || usual[name] : value;
  const place = h("div", {}, h("p", { class: "loading body" }, "Loading …"));
  const status = h("span", { "aria-live": "polite" });
  const back = h("button", { type: "button", class: "small", onclick: () => turn(values.page - 1) }, "Previous");
  const on = h("button", { type: "button", class: "small", onclick: () => turn(values.page + 1) }, "Next");
  const sizes = h("select", { "aria-label": "Rows of a page", onchange: (event) => { values.size = Number(event.target.value); turn(1); } }, [25, 50, 100, 200].map((rows) => h("option", { value: String(rows), selected: rows === values.size }, String(rows))));
  const input = h("input", { type: "search", placeholder, "aria-label": placeholder, class: "filter", autocomplete: "off", spellcheck: "false", value: values.filter });
  let typed;
  input.addEventListener("input", () => { clearTimeout(typed); typed = setTimeout(() => { values.filter = input.value; turn(1); }, 200); });
  input.addEventListener("keydown", async (event) => {
    if (event.key !== "Enter") return;
    clearTimeout(typed);
    values.filter = input.value;
    await turn(1);
    place.querySelector("tbody a")?.click();
  });
  const extra = filters.map(({ make }) => make((changed) => { Object.assign(values, changed); turn(1); }, values));
  const card = h("section", { class: "card", "aria-label": title },
    h("div", { class: "bar" }, input, extra),
    place,
    h("div", { class: "pages" }, status, h("span", { class: "spacer" }), sizes, back, on));
  let asked = 0;
  let shown = 0;
  const sorting = { get sort() { return values.sort || columns.find((column) => column.sort)?.sort; }, get order() { return values.order; }, by: (name) => { values.order = sorting.sort === name && values.order === "asc" ? "desc" : "asc"; values.sort = name; turn(1); } };

  async function refresh() {
    const mine = (asked += 1);
    try {
      const page = await load(values, signal);
      if (mine < shown || signal.aborted) return;
      shown = mine;
      values.page = page.page;
      const focused = place.contains(document.activeElement) ? [...place.querySelectorAll("a,button,input")].indexOf(document.activeElement) : -1;
      const scrolled = place.firstElementChild?.scrollLeft ?? 0;
      fill(place, table(columns, page.rows, { empty: values.filter ? "Nothing matches." : empty, caption: title, sorting, row }));
      place.firstElementChild.scrollLeft = scrolled;
      if (focused >= 0) place.querySelectorAll("a,button,input")[focused]?.focus();
      const first = (page.page - 1) * page.size;
      status.textContent = page.total ? `${number(first + 1)} to ${number(first + page.rows.length)} of ${number(page.total)} ${label}` : `0 ${label}`;
      back.disabled = page.page <= 1;
      on.disabled = first + page.rows.length >= page.total;
      onload?.(page);
    } catch (error) {
      if (error.name !== "AbortError" && !signal.aborted && (error.status || !shown)) fill(place, h("div", { class: "body" }, notice(error.message, "bad")));
    }
  }
  function turn(page) {
    values.page = Math.max(page, 1);
    keepInAddress(values, usual);
    return refresh();
  }
  repeat(refresh, every, signal);
  return { card, refresh };
}

/** Do something now and every so many ms, while the page can be seen. */
export function repeat(work, ms, signal) {
  let timer;
  async function step() {
    if (signal.aborted) return;
    if (!document.hidden) await work();
    if (!signal.aborted) timer = setTimeout(step, ms);
  }
  signal.addEventListener("abort", () => clearTimeout(timer));
  step();
}
