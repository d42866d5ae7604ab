// Kafka Connect: its connectors and their tasks, why they fail, and what is done about it.

import { get, part, post, request } from "../api.js";
import { ask, askName, badge, body, broken, card, field, fill, h, head, notice, select, tile, toast } from "../dom.js";
import { plural } from "../format.js";
import { pagedTable, repeat, table } from "../table.js";

const STATES = { RUNNING: "good", FAILED: "bad", PAUSED: "warn", STOPPED: "warn", RESTARTING: "info", UNASSIGNED: "" };
const EVERY = 5000;
const INTERNAL = ["name", "connector.class"];
const FIRST_LINES = 1;

const stateBadge = (state) => badge(state.toLowerCase(), STATES[state] ?? "");
const tasksOf = (tasks) => (Object.keys(tasks).length ? Object.entries(tasks).map(([state, count]) => [badge(`${count} ${state.toLowerCase()}`, STATES[state] ?? ""), " "]) : "–");
const plain = (name) => (name ?? "–").split(".").pop();
/** Have a class's name broken before its capitals. */
const classOf = (name) => plain(name).split(/(?=[A-Z][a-z])/).flatMap((piece, index) => (index ? [h("wbr"), piece] : [piece]));

export async function show(context) {
  const { main, parts, session, signal } = context;
  const cluster = parts[0] || session.connects[0];
  const path = `/api/connect/${part(cluster)}`;
  if (parts[1]) { await showConnector(context, cluster, `${path}/connectors/${part(parts[1])}`, parts[1]); return; }
  const several = session.connects.length > 1 ? select(session.connects.map((name) => [name, name, name === cluster]), { "aria-label": "Connect cluster", onchange: (event) => { location.hash = `#/connect/${part(event.target.value)}`; } }) : null;
  const about = h("div");
  const list = pagedTable({
    title: "Connectors", label: "connectors", signal, placeholder: "Filter connectors", empty: "No connectors yet.", every: EVERY,
    load: (values) => get(`${path}/connectors`, values, signal),
    filters: [{ names: ["state"], make: (change, values) => select([["", "Any state"], ...Object.keys(STATES).map((state) => [state, state.toLowerCase()])].map(([state, text]) => [state, text, state === values.state]), { "aria-label": "State", onchange: (event) => change({ state: event.target.value }) }) }],
    columns: [
      { label: "Connector", sort: "name", class: "name", cell: (row) => h("a", { href: `#/connect/${part(cluster)}/${part(row.name)}` }, broken(row.name)) },
      { label: "State", sort: "state", cell: (row) => stateBadge(row.state) },
      { label: "Tasks", sort: "failed", cell: (row) => tasksOf(row.tasks) },
      { label: "Type", sort: "type", class: "wide", cell: (row) => badge(row.type) },
      { label: "Plugin", class: "wide", cell: (row) => h("span", { title: row.class ?? "" }, plain(row.class)) },
      { label: "Worker", class: "wide", cell: (row) => row.worker ?? "–" },
    ],
  });
  fill(main, head("Kafka Connect", "Connectors and their tasks: what runs, what has failed and why.", [several, h("button", { type: "button", class: "primary", onclick: async () => { if (await create(path, signal)) list.refresh(); } }, "Create connector")].filter(Boolean)), about, list.card);
  try {
    const { clusters } = await get("/api/connect", {}, signal);
    const own = clusters.find((one) => one.name === cluster);
    if (own?.error) fill(about, notice(`${cluster}: ${own.error}`, "bad"));
    else if (own) main.querySelector(".titles p").textContent = `${session.connects.length > 1 ? `${cluster}, ` : ""}Kafka Connect ${own.version ?? ""} at ${own.url}`;
  } catch { /* the table says what is wrong */ }
}

// --- a connector -------------------------------------------------------------------------------------------------

async function showConnector({ main, signal }, cluster, path, name) {
  const tiles = h("div", { class: "cards" });
  const errors = h("div");
  const tasks = h("section", { class: "card", "aria-label": "Tasks" });
  const config = h("section", { class: "card", "aria-label": "Config" });
  const topics = h("div");
  const acts = h("div", { class: "actions" });
  let drawn = "";
  let connector = null;

  async function act(text, work) {
    try { await work(); toast(text); } catch (error) { toast(error.message, "bad"); }
    await refresh();
  }
  const setState = (state, text) => act(`${name} ${text}.`, () => request("PUT", `${path}/state`, { state }));
  const button = (label, onclick, kind = "") => h("button", { type: "button", class: kind, onclick }, label);

  function draw() {
    const text = JSON.stringify(connector);
    if (text === drawn) return; // an open trace stays open
    drawn = text;
    const isRunning = connector.state === "RUNNING";
    const failed = connector.tasks.filter((task) => task.state === "FAILED");
    fill(acts,
      isRunning ? button("Pause", () => setState("pause", "is being paused")) : button("Resume", () => setState("resume", "resumes")),
      connector.state === "STOPPED" ? null : button("Stop", () => setState("stop", "is being stopped")),
      button("Restart", async () => { if (await restart(path, name, failed.length || connector.state === "FAILED")) refresh(); }),
      button("Edit config", async () => { if (await edit(path, name, connector.config)) refresh(); }),
      button("Delete connector", remove, "danger"));
    fill(tiles,
      tile("State", stateBadge(connector.state), connector.worker ? `worker ${connector.worker}` : "no worker", null, true),
      tile("Tasks", String(connector.tasks_total), failed.length ? `${failed.length} failed` : "none failed"),
      tile("Type", badge(connector.type), "", null, true),
      tile("Plugin", classOf(connector.config["connector.class"]), connector.version ? `version ${connector.version}` : "", null, true));
    fill(errors, connector.trace ? card("Why the connector has failed", body(trace(connector.trace))) : "");
    fill(tasks, h("div", { class: "card-head" }, h("h2", {}, "Tasks")), table([
      { label: "Task", number: true, cell: (row) => row.id },
      { label: "State", cell: (row) => stateBadge(row.state) },
      { label: "Worker", class: "wide", cell: (row) => row.worker ?? "–" },
      { label: "", number: true, cell: (row) => h("button", { type: "button", class: "small", "aria-label": `Restart task ${row.id}`, onclick: () => act(`Task ${row.id} restarts.`, () => post(`${path}/tasks/${row.id}/restart`)) }, "Restart") },
    ], connector.tasks, { caption: "Tasks", row: (line, { trace: text }) => (text ? [line, h("tr", {}, h("td", { class: "error", colspan: "4" }, trace(text)))] : line), empty: connector.state === "STOPPED" ? "A connector that is stopped has no tasks." : "No tasks yet." }));
    fill(config, h("div", { class: "card-head" }, h("h2", {}, "Config")), table([
      { label: "Setting", class: "name", cell: (row) => broken(row[0]) },
      { label: "Value", class: "mono config", cell: (row) => row[1] ?? h("span", { class: "soft" }, "null") },
    ], Object.entries(connector.config).sort(([first], [second]) => (first < second ? -1 : 1)), { caption: "Config" }));
    fill(topics, connector.topics.length ? card("Topics that it has used", body(connector.topics.map((topic, index) => [index ? ", " : "", h("a", { href: `#/topics/${part(topic)}` }, broken(topic))]))) : "");
  }
  async function refresh() {
    try {
      connector = await get(path, {}, signal);
      draw();
    } catch (error) {
      if (error.name === "AbortError" || signal.aborted) return;
      if (!connector) throw error;
      drawn = "";
      fill(errors, notice(error.message, "bad"));
    }
  }
  async function remove() {
    const isDone = await askName({ title: "Delete connector", name, submit: "Delete connector", text: `${name} will be deleted with its config; the topics stay. A connector of the same name continues at the offsets that the workers have kept, unless they are reset.`, act: (_, confirm) => request("DELETE", path, { confirm }) });
    if (isDone) { toast(`Connector ${name} was deleted.`); location.hash = `#/connect/${part(cluster)}`; }
  }
  await refresh();
  fill(main, h("div", { class: "head" }, h("div", { class: "titles" }, h("p", { class: "crumbs" }, h("a", { href: `#/connect/${part(cluster)}` }, "Kafka Connect")), h("h1", { tabindex: "-1" }, name)), acts), tiles, errors, tasks, config, topics);
  repeat(() => (connector ? refresh() : null), EVERY, signal);
}

/** Make the first line of an error, with the whole of it behind. */
function trace(text) {
  const lines = text.split("\n");
  return h("details", { class: "trace" }, h("summary", {}, lines.slice(0, FIRST_LINES).join("\n")), h("pre", { class: "code", tabindex: "0" }, text));
}

async function restart(path, name, hasFailed) {
  const what = select([["failed", "what has failed: the connector, and tasks"], ["all", "the connector and all its tasks"], ["alone", "the connector alone"]]);
  if (!hasFailed) what.value = "all";
  const isDone = await ask({
    title: `Restart ${name}`, submit: "Restart", content: [field("What", what, "tasks continue at the offsets that they have committed")],
    act: () => post(`${path}/restart`, { tasks: what.value !== "alone", failed: what.value === "failed" }),
  });
  if (isDone) toast(`${name} restarts.`);
  return isDone;
}

// --- configs -----------------------------------------------------------------------------------------------------

/** Read a config that is typed: an object of JSON, or lines of NAME=VALUE. */
function configOf(text) {
  if (text.trim().startsWith("{")) {
    let value;
    try { value = JSON.parse(text); } catch (error) { throw new Error(`This is no JSON: ${error.message}`); }
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, typeof inner === "string" ? inner : JSON.stringify(inner)]));
  }
  const lines = text.split("\n").map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`${line.slice(0, 60)}: NAME=VALUE is expected`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}

const written = (config) => JSON.stringify(config, null, 2);

/** Make the part of a form that has a config, and what its plugin says of it. */
function configForm(path, connector, config) {
  const text = h("textarea", { rows: "14", required: true, spellcheck: "false" });
  text.value = written(config);
  const answer = h("div", { "aria-live": "polite" });
  const problems = (settings) => settings.filter((setting) => setting.errors.length);
  async function check() {
    const { settings, error_count: count } = await post(`${path}/validate`, { config: configOf(text.value), connector });
    const wrong = problems(settings);
    fill(answer, wrong.length ? table([
      { label: "Setting", class: "name", cell: (row) => broken(row.name) }, { label: "What is wrong", cell: (row) => row.errors.map((error) => h("div", {}, error)) },
    ], wrong, { caption: "What is wrong" }) : notice(count ? "" : "The plugin accepts this config."), settingsOf(settings));
    if (count) throw new Error(`The plugin refuses ${plural(count, "setting")}.`);
  }
  const button = h("button", { type: "button", onclick: async () => { try { await check(); } catch (error) { if (!answer.children.length || !answer.querySelector("table")) fill(answer, notice(error.message, "bad")); } } }, "Check");
  return { text, answer, check, fields: [field("Config", text, "an object of JSON, or lines of NAME=VALUE; a masked value stays as it is"), button, answer] };
}

const settingsOf = (settings) => h("details", { class: "trace" }, h("summary", {}, `All ${settings.length} settings of the plugin`), table([
  { label: "Setting", class: "name", cell: (row) => [broken(row.name), row.documentation ? h("div", { class: "soft" }, row.documentation) : null] },
  { label: "Default", cell: (row) => (row.required && row.default === null ? badge("required", "warn") : row.default || "–") },
], settings, { caption: "Settings of the plugin" }));

async function edit(path, name, config) {
  const form = configForm(path.replace(/\/connectors\/[^/]+$/, ""), name, config);
  const isDone = await ask({ title: `Config of ${name}`, submit: "Save", content: form.fields, act: async () => { await form.check(); await request("PUT", `${path}/config`, { config: configOf(form.text.value) }); } });
  if (isDone) toast(`The config of ${name} was saved: its tasks restart.`);
  return isDone;
}

async function create(path, signal) {
  let plugins;
  try { plugins = await get(`${path}/plugins`, {}, signal); } catch (error) { toast(error.message, "bad"); return false; }
  const connectors = plugins.filter((plugin) => ["source", "sink"].includes(plugin.type));
  const kind = select([["", "choose one"], ...connectors.map((plugin) => [plugin.class, `${plain(plugin.class)} (${plugin.type}${plugin.version ? `, ${plugin.version}` : ""})`])], { required: true });
  const name = h("input", { required: true, autocomplete: "off", spellcheck: "false", placeholder: "orders-to-files" });
  const form = configForm(path, "", { "connector.class": "", "tasks.max": "1" });
  kind.addEventListener("change", async () => {
    const config = { "connector.class": kind.value, "tasks.max": "1" };
    try {
      const { settings } = await post(`${path}/validate`, { config: { ...config, name: name.value || "new" } });
      for (const setting of settings) if (setting.required && setting.default === null && !INTERNAL.includes(setting.name)) config[setting.name] = "";
      fill(form.answer, settingsOf(settings));
    } catch (error) { fill(form.answer, notice(error.message, "bad")); }
    form.text.value = written(config);
  });
  const named = () => ({ ...configOf(form.text.value), name: name.value });
  const isDone = await ask({
    title: "Create connector", submit: "Create", content: [h("div", { class: "fields" }, field("Name", name), field("Plugin", kind)), ...form.fields],
    act: async () => { form.text.value = written(named()); await form.check(); await post(`${path}/connectors`, { name: name.value, config: named() }); },
  });
  if (isDone) toast(`Connector ${name.value} was created.`);
  return isDone;
}
