// Records of a topic: pages from any point, the live tail, search, one in full, files.

import { keepInAddress } from "../address.js";
import { follow, get, post, query, urlOf } from "../api.js";
import { ask, badge, field, fill, folding, h, notice, select, toast } from "../dom.js";
import { bytes, number, plural, time, zone } from "../format.js";
import { besidePrevious } from "./beside.js";
import { formOf, preview, visible, whole } from "./payload.js";
import { produce } from "./produce.js";
import { boxOf, letterBar, originOf, redrive } from "./redrive.js";

const SHOWN_MAX = 500;
const USUAL = { from: "newest", as: "auto", in: "anywhere" };
const MODES = { text: "Search records", regex: "Search by a regular expression", where: '$.total > 60 and key = "ann"' };
const EXAMPLES = [
  ["$.total > 60 and $.customer = \"ann\"", "$ is the decoded value; texts stand in quotation marks"],
  ["$.items[*].sku = \"a1\" or $..sku = \"a1\"", "any element; at any depth"],
  ["not $.error", "there is none, or it is null or false"],
  ["$.status in (\"new\", \"open\")", "one of several"],
  ["$.note contains \"late\" or $.note ~ /^re:/", "a piece; a regular expression (RE2)"],
  ["key = \"ann\" and headers.trace = \"7\"", "key and headers, which may have paths, too: headers.meta.id"],
  ["value = null", "a tombstone"],
  ["partition = 2 and offset >= 1000", "the place"],
  ["timestamp >= \"2026-11-30T08:00:00Z\"", "the time: ISO 8601, UTC without a zone, or ms since 1970"],
  ["\"overdue\" and /inv-\\d+/", "a text, or a match, anywhere in key, value or headers"],
];

export async function showRecords(place, { path, name, count, values, signal, hasRegistry }) {
  const rows = h("tbody");
  const status = h("span", { "aria-live": "polite" });
  const progress = h("progress", { hidden: true, max: 1, value: 0, "aria-label": "Progress of the search" });
  const older = h("button", { type: "button", class: "small", disabled: true, onclick: () => turn({ before: cursor.older }) }, "Older");
  const newer = h("button", { type: "button", class: "small", disabled: true, onclick: () => turn({ after: cursor.newer }) }, "Newer");
  const from = select([["newest", "Newest"], ["oldest", "Oldest"], ["offset", "From offset"], ["time", "From time"]], { "aria-label": "Where to begin", id: "from", onchange: fit });
  const offset = h("input", { type: "number", min: "0", value: "0", "aria-label": "Offset", hidden: true });
  const at = h("input", { type: "datetime-local", step: "1", "aria-label": "Time", hidden: true });
  const partition = count > 1 ? select([["", "All partitions"], ...Array.from({ length: Math.min(count, 1000) }, (_, index) => [String(index), `Partition ${index}`])], { "aria-label": "Partition", id: "partition" }) : h("input", { type: "hidden", value: "" });
  const form = select([["auto", "Any format"], ["json", "JSON"], ["text", "Text"], ["hex", "Hex"], ["registry", "By schema"], ["msgpack", "MessagePack"], ["cbor", "CBOR"]], { "aria-label": "Show as", id: "form" });
  const committed = h("input", { type: "checkbox" });
  const text = h("input", { type: "search", class: "filter", "aria-label": "Search for", autocomplete: "off", spellcheck: "false", oninput: () => text.removeAttribute("aria-invalid") });
  const mode = select([["text", "Text"], ["regex", "Regex"], ["where", "Filter"]], { "aria-label": "Search by", onchange: fit });
  const within = select([["anywhere", "anywhere"], ["key", "in keys"], ["value", "in values"], ["headers", "in headers"]], { "aria-label": "Where to search" });
  const helper = h("button", { type: "button", class: "quiet small", "aria-label": "What a filter can say", title: "What a filter can say", onclick: explain }, "?");
  const go = h("button", { type: "submit", class: "primary" }, "Show");
  const heads = h("tr");
  const letters = letterBar(rows, path);
  let columns = "";
  let shownColumns = [];
  const live = h("button", { type: "button", "aria-pressed": "false", id: "live", onclick: toggleTail }, "Live tail");
  const stop = h("button", { type: "button", hidden: true, id: "stop", onclick: () => { halt("Stopped."); keep(); } }, "Stop");
  let cursor = {};
  let running = null;
  let shown = 0;

  function fit() {
    offset.hidden = from.value !== "offset";
    at.hidden = from.value !== "time";
    within.hidden = mode.value === "where";
    helper.hidden = mode.value !== "where";
    text.placeholder = MODES[mode.value];
    text.classList.toggle("long", mode.value === "where");
  }
  function explain() {
    ask({ title: "Filters", submit: "Close", cancel: "", content: [h("p", { class: "soft" }, "Conditions over decoded records, joined by and, or, not and parentheses. What is not there meets no condition."), h("br"), h("dl", { class: "examples" }, EXAMPLES.map(([filter, meaning]) => [h("dt", { class: "mono" }, filter), h("dd", {}, meaning)]))], act: () => true });
  }
  const sought = () => (!text.value ? {} : mode.value === "where" ? { where: text.value } : { text: text.value, in: within.value, regex: mode.value === "regex" });
  let turned = {};
  const choice = () => ({ partition: partition.value, as: form.value, committed: committed.checked, columns });

  /** Ask for paths that are columns of their own. */
  async function chooseColumns() {
    const input = h("input", { name: "columns", value: columns, class: "mono", autocomplete: "off", spellcheck: "false", placeholder: "$.customer, $.total, headers.trace" });
    const isDone = await ask({
      title: "Columns", submit: "Show",
      content: [field("Paths and fields", input, "with commas between them, as filters have them; none for the usual columns"), h("p", { class: "soft" }, "$.items[*].sku shows all of several values, key.id looks into keys. Files in CSV have these columns, too.")],
      act: async () => { await get(`${path}/records`, { columns: input.value, limit: 1 }, signal); columns = input.value.trim(); },
    });
    if (isDone) { keep(true); show(); }
  }
  function fitHeads(names) {
    shownColumns = names;
    fill(heads, ["Partition:offset", `Time (${zone()})`, "Key", ...names, "Value", "Size"].map((label, index) => h("th", { scope: "col", class: index === names.length + 4 ? "number wide" : index === 1 ? "wide" : "" }, index ? label : [h("span", { class: "wide" }, "Partition:offset"), h("span", { class: "narrow" }, "Offset")])));
  }
  const width = () => String(5 + shownColumns.length);
  const start = () => ({ from: from.value, offset: from.value === "offset" ? offset.value : "", time: from.value === "time" && at.value ? new Date(at.value).getTime() : "" });

  function halt(message = "") {
    running?.abort();
    running = null;
    stop.hidden = progress.hidden = true;
    live.setAttribute("aria-pressed", "false");
    if (message) status.textContent = message;
  }

  function turn(values) {
    turned = values;
    keep(true);
    return page(values);
  }

  /** Stop what is under way, and return the signal that stops what begins now. */
  function begin() {
    halt();
    running = new AbortController();
    const { signal: mine } = running;
    signal.addEventListener("abort", () => running?.abort(), { signal: mine });
    return mine;
  }

  async function page(values) {
    const mine = begin();
    status.textContent = "Reading …";
    try {
      const answer = await get(`${path}/records`, { ...choice(), ...values }, mine);
      running = null;
      clear();
      add(answer.records, false);
      cursor = answer;
      older.disabled = !answer.older;
      newer.disabled = !answer.newer;
      if (!answer.records.length) empty(answer.older || answer.newer ? "No records in this part." : "No records.");
      status.textContent = `${plural(answer.records.length, "record")}${answer.late ? ", not all in time" : ""}`;
    } catch (error) {
      if (error.name === "AbortError") return;
      running = null;
      clear();
      status.textContent = "";
      fill(rows, h("tr", {}, h("td", { colspan: width() }, notice(error.message, "bad"))));
    }
  }

  function clear() { fill(rows); shown = 0; letters.fit(); }
  function empty(message) { fill(rows, h("tr", {}, h("td", { class: "empty", colspan: width() }, message))); }

  function add(records, isOnTop) {
    if (!shown) { fill(rows); fitHeads(Object.keys(records[0]?.columns ?? {})); }
    for (const record of records) {
      const line = recordRow(path, record, () => ({ ...choice(), ...sought() }), signal, async (like) => { try { await produce(path, name, count, hasRegistry, await sendable(path, like)); } catch (error) { toast(error.message, "bad"); } });
      if (isOnTop) rows.prepend(line); else rows.append(line);
      shown += 1;
    }
    while (isOnTop && shown > SHOWN_MAX) {
      const last = rows.lastElementChild;
      if (last.classList.contains("opened")) { last.remove(); continue; }
      last.remove();
      shown -= 1;
    }
    letters.fit();
  }

  function toggleTail() {
    if (live.getAttribute("aria-pressed") === "true") { halt("Stopped."); keep(); return; }
    turned = {};
    const mine = begin();
    live.setAttribute("aria-pressed", "true");
    keep();
    stop.hidden = false;
    older.disabled = newer.disabled = true;
    clear();
    empty("Waiting for new records …");
    status.textContent = "Live: connecting …";
    let seen = 0;
    let skipped = 0;
    follow(`${path}/tail`, { ...choice(), ...sought() }, {
      begun: () => { status.textContent = `Live: waiting for records${text.value ? " that match" : ""}`; },
      records: (event) => {
        if (event.records.length) add(event.records, true);
        seen += event.records.length;
        skipped += event.skipped;
        status.textContent = `Live: ${number(seen)} shown${skipped ? `, ${number(skipped)} skipped, as they arrive faster than they can be read` : ""}`;
      },
      failed: refused,
      lost: () => { status.textContent = "Live: connecting again …"; },
    }, mine);
  }

  /** Say what is wrong, and where in a filter. */
  function refused(event) {
    const error = event.error.replace(/^where: character/, "Character");
    halt(error);
    empty(error);
    const place = /^Character (\d+)/.exec(error);
    if (!place) return;
    text.setAttribute("aria-invalid", "true");
    text.focus();
    text.setSelectionRange(Number(place[1]) - 1, Number(place[1]));
  }

  function search() {
    const mine = begin();
    clear();
    empty("Searching …");
    older.disabled = newer.disabled = true;
    stop.hidden = progress.hidden = false;
    const values = { ...choice(), ...start(), ...sought(), limit: 200 };
    const tell = (event) => {
      progress.max = Math.max(event.total, 1);
      progress.value = event.covered;
      status.textContent = `${number(event.found)} found in ${number(event.scanned)} of ${number(event.total)} records`;
    };
    follow(`${path}/search`, values, {
      found: (event) => add(event.records, false),
      progress: tell,
      done: (event, source) => { source.close(); tell(event); const summary = status.textContent + (event.cut ? "; there may be more" : ""); halt(summary); if (!event.found) empty("Nothing was found."); },
      failed: refused,
      lost: (source) => { source.close(); if (running) halt("The search was broken off."); },
    }, mine);
  }

  async function save(kind) {
    const link = h("a", { href: `${urlOf(path)}/export${query({ ...choice(), ...start(), ...sought(), format: kind, limit: 1000 })}`, download: `${name}.${kind}` });
    document.body.append(link);
    link.click();
    link.remove();
  }

  /** Write what is shown into the address. */
  function keep(isStep = false) {
    const { text: search, in: place, ...more } = sought();
    keepInAddress({ ...start(), ...choice(), search, in: place ?? USUAL.in, ...more, ...turned, live: live.getAttribute("aria-pressed") === "true" }, USUAL, isStep);
  }
  function readAddress() {
    const inputs = { from, offset, partition, as: form, search: text, where: text, in: within };
    for (const [key, input] of Object.entries(inputs)) if (values.has(key)) input.value = values.get(key);
    committed.checked = values.has("committed");
    columns = values.get("columns") ?? "";
    mode.value = values.has("where") ? "where" : values.has("regex") ? "regex" : "text";
    for (const key of ["before", "after"]) if (values.has(key)) turned = { [key]: values.get(key) };
    if (values.has("time")) at.value = new Date(Number(values.get("time")) - new Date().getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  }
  const show = () => { if (text.value) search(); else return page({ ...start(), ...turned }); };
  const controls = h("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); halt(); turned = {}; keep(true); show(); } },
    from, offset, at, partition, form, h("label", { class: "inline" }, committed, "Committed only"), h("span", { class: "break" }), text, mode, within, helper, go, live, stop);
  fill(place, h("section", { class: "card", "aria-label": "Records" }, controls, progress, letters.bar,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Records" }, h("table", { class: "dense", "aria-label": "Records" }, h("thead", {}, heads), rows)),
    h("div", { class: "pages" }, status, h("span", { class: "spacer" }), h("button", { type: "button", class: "small quiet", onclick: chooseColumns }, "Columns"), h("button", { type: "button", class: "small quiet", onclick: () => save("csv") }, "CSV"), h("button", { type: "button", class: "small quiet", onclick: () => save("jsonl") }, "JSON lines"), newer, older)));
  const again = () => { if (!running) page(start()); };
  window.addEventListener("produced", again, { signal });
  const isOfRecord = values.has("offset") && !values.has("from");
  readAddress();
  fitHeads([]);
  if (isOfRecord) from.value = "offset";
  fit();
  const isChosen = [from, partition, form, mode, within].some((input) => input.selectedIndex > 0) || committed.checked;
  go.before(folding(controls, [from, offset, at, partition, form, committed.parentElement, mode, within, helper], isChosen));
  empty("Reading …");
  if (values.has("live")) { toggleTail(); return; }
  await show();
  if (isOfRecord) rows.querySelector(".opener")?.click();
}

function recordRow(path, record, choice, signal, send) {
  const id = `${record.partition}:${record.offset}`;
  const opener = h("button", { type: "button", class: "opener", "aria-expanded": "false", "aria-label": `${id}, partition and offset` }, id);
  const size = (payload) => Math.max(payload.size, 0);
  const line = h("tr", { class: "record-row" }, h("td", {}, boxOf(record), opener), h("td", { class: "nowrap wide" }, time(record.timestamp)), h("td", { class: "payload key" }, preview(record.key)), ...Object.values(record.columns ?? {}).map((text) => h("td", { class: "column mono" }, text === null ? "–" : visible(text))), h("td", { class: "payload" }, preview(record.value)), h("td", { class: "number nowrap wide" }, bytes(size(record.key) + size(record.value))));
  const opened = () => (line.nextElementSibling?.classList.contains("opened") ? line.nextElementSibling : null);
  const how = () => { const { partition: _, columns: __, ...values } = choice(); return values; };
  const beside = (place, record) => besidePrevious(place, path, record, { as: how().as, committed: how().committed }, signal);
  function close() {
    opened().querySelector(".beside")?.dispatchEvent(new Event("halt"));
    opened().remove();
    opener.setAttribute("aria-expanded", "false");
  }
  async function open() {
    const place = h("div", { class: "detail" }, ...detail(path, record, send, beside));
    line.after(h("tr", { class: "opened" }, h("td", { colspan: String(line.children.length) }, place)));
    opener.setAttribute("aria-expanded", "true");
    if (record.value.cut || record.key.cut) {
      try {
        fill(place, detail(path, await get(`${path}/records/${record.partition}/${record.offset}`, how(), signal), send, beside));
      } catch (error) {
        if (error.name !== "AbortError") place.prepend(notice(error.message, "bad"));
      }
    }
  }
  line.addEventListener("click", (event) => {
    if (event.target.matches("input") || String(window.getSelection())) return;
    if (opened()) close(); else open();
  });
  opener.addEventListener("keydown", async (event) => {
    if (event.key !== "p" || event.ctrlKey || event.metaKey || event.altKey || record.key.form === "null") return;
    if (!opened()) await open();
    const place = opened()?.querySelector(".beside");
    if (place) beside(place, record);
  });
  return line;
}

/** Put a text into the clipboard, also where a page without TLS may not ask the browser for it. */
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    if (!isDone) { toast("The browser does not allow the page to copy.", "bad"); return; }
  }
  toast(`${what} copied.`);
}

const BINARY = ["msgpack", "cbor"];

/** Return a record with the bytes of what was read as MessagePack or CBOR, which the page does not write. */
async function sendable(path, record) {
  const payloads = (other) => [other.key, other.value, ...other.headers.map((header) => header.value)];
  if (!payloads(record).some((payload) => BINARY.includes(payload.form))) return record;
  const unread = await get(`${path}/records/${record.partition}/${record.offset}`, { as: "hex" });
  if (payloads(unread).some((payload) => payload.cut)) throw new Error("This record is too large to be sent again from here.");
  const bytesOf = (payload, hex) => (BINARY.includes(payload.form) ? hex : payload);
  return { ...record, key: bytesOf(record.key, unread.key), value: bytesOf(record.value, unread.value), headers: record.headers.map((header, index) => ({ name: header.name, value: bytesOf(header.value, unread.headers[index].value) })) };
}

/** Write a record as JSON, its numbers as they are. */
function asJson(record) {
  const plain = (payload) => (payload.form === "null" ? null : payload.text);
  return JSON.stringify({ partition: record.partition, offset: record.offset, timestamp: record.timestamp, key: plain(record.key), value: plain(record.value), headers: record.headers.map((header) => ({ name: header.name, value: plain(header.value) })) }, null, 2);
}

/** Ask, and append a tombstone for the key of a record. */
async function bury(path, record) {
  const { settings } = await get(`${path}/settings`).catch(() => ({ settings: [] }));
  const policy = settings.find((setting) => setting.name === "cleanup.policy")?.value ?? "";
  const key = record.key.text.length > 200 ? `${record.key.text.slice(0, 200)} …` : record.key.text;
  let sent = [];
  const isDone = await ask({
    title: "Delete key", submit: "Send a tombstone", danger: true,
    content: [
      policy && !policy.includes("compact") ? notice("This topic is not compacted: its records stay until their retention ends, and consumers take the null as they like.", "warn") : null,
      h("p", {}, `A record with this key and without a value will be appended to partition ${record.partition}. Compaction then removes the key, and consumers that keep a table drop it.`), h("pre", { class: "code" }, visible(key)),
    ],
    act: async () => { ({ sent } = await post(`${path}/records/${record.partition}/${record.offset}/tombstone`)); },
  });
  if (!isDone) return;
  toast(`Sent: partition ${sent[0].partition}, offset ${sent[0].offset}.`);
  window.dispatchEvent(new CustomEvent("produced"));
}

function detail(path, record, send, beside) {
  const place = h("div", { class: "beside" });
  const isWhole = !record.value.cut && !record.key.cut;
  const [view] = location.hash.split("?");
  const address = `${location.origin}${location.pathname}${view}?partition=${record.partition}&offset=${record.offset}`;
  const action = (label, onclick, isThere = true) => (isThere ? h("button", { type: "button", class: "small", onclick }, label) : null);
  return [
    record.dead_letter ? originOf(record.dead_letter) : null,
    h("dl", {}, h("dt", {}, "Partition, offset"), h("dd", {}, `${record.partition}, ${record.offset}`), h("dt", {}, record.append_time ? "Appended" : "Created"), h("dd", {}, `${time(record.timestamp)} ${zone()} (${record.timestamp ?? "none"})`)),
    h("h3", {}, "Key ", badge(formOf(record.key))), whole(record.key),
    h("h3", {}, "Value ", badge(formOf(record.value))), whole(record.value),
    record.headers.length ? [h("h3", {}, "Headers"), h("dl", {}, record.headers.map((header) => [h("dt", { class: "mono" }, header.name), h("dd", {}, preview(header.value))]))] : null,
    h("div", { class: "actions" },
      action("Copy key", () => copy(record.key.text, "The key was"), record.key.form !== "null" && isWhole),
      action("Copy value", () => copy(record.value.text, "The value was"), record.value.form !== "null" && isWhole),
      action("Copy as JSON", () => copy(asJson(record), "The record was"), isWhole),
      action("Copy link", () => copy(address, "The record's address was")),
      action("Beside the previous of its key", () => beside(place, record), record.key.form !== "null"),
      action("Redrive", () => redrive(path, [`${record.partition}:${record.offset}`]), record.dead_letter),
      action("Produce again", () => send(record), isWhole),
      action("Delete key", () => bury(path, record), record.key.form !== "null" && record.value.form !== "null")),
    place,
  ].flat(4).filter(Boolean);
}
