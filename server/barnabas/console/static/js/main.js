// The frame of the page: session, navigation, theme, keys, and which view is shown.

import { get, keep, listen, pageOf, request } from "./api.js";
import { ask, badge, field, fill, h, icon, notice, select, toast } from "./dom.js";

const VIEWS = [
  ["Cluster", [["clusters", "clusters", "All clusters", "clusters"], ["", "overview", "Overview"], ["brokers", "brokers", "Brokers"], ["quorum", "quorum", "Controllers"], ["topics", "topics", "Topics"], ["groups", "groups", "Consumer groups"], ["transactions", "transactions", "Transactions"], ["subjects", "subjects", "Schemas", "registry"], ["connect", "connect", "Kafka Connect", "connects"], ["access", "access", "Access"]]],
  ["This broker", [["connections", "connections", "Clients", "connections"], ["requests", "requests", "Request tap", "requests"], ["metrics", "metrics", "Metrics", "metrics"], ["log", "log", "Log", "log"], ["control", "control", "Test bench", "control"]]],
];
const MODULES = { "": "overview", clusters: "clusters", connect: "connect", brokers: "brokers", quorum: "quorum", topics: "topics", groups: "groups", transactions: "transactions", access: "access", connections: "connections", requests: "requests", metrics: "metrics", log: "log", control: "control", subjects: "subjects" };
const KEYS = { o: "", b: "brokers", q: "quorum", t: "topics", g: "groups", c: "groups", x: "transactions", s: "subjects", k: "connect", a: "access", n: "connections", r: "requests", m: "metrics", l: "log", h: "clusters" };

let session = null;
let leaving = null;
let isAsking = false;
const main = document.getElementById("main");
const state = h("span", { class: "state", role: "status" }, h("span", {}, "connected"));

// --- theme ---------------------------------------------------------------------------------------------------

const themes = ["system", "light", "dark"];
function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try { localStorage.setItem("theme", name); } catch { /* a browser may forbid it */ }
  window.dispatchEvent(new Event("themechange"));
}
function savedTheme() {
  try { return themes.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system"; } catch { return "system"; }
}
theme(savedTheme());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("themechange")));

// --- frame ---------------------------------------------------------------------------------------------------

function frame() {
  const nav = document.getElementById("nav");
  const menu = h("button", { class: "quiet menu-button", type: "button", "aria-label": "Views", "aria-expanded": "false", "aria-controls": "nav", onclick: () => { const isOpen = nav.classList.toggle("open"); menu.setAttribute("aria-expanded", String(isOpen)); } }, icon("menu"));
  const toggle = h("button", { class: "quiet", type: "button", id: "theme", title: "Theme", "aria-label": `Theme: ${savedTheme()}`, onclick: () => { const next = themes[(themes.indexOf(savedTheme()) + 1) % themes.length]; theme(next); toggle.setAttribute("aria-label", `Theme: ${next}`); toast(`Theme: ${next}`); } }, icon("theme"));
  const who = session.user ? [h("span", { class: "badge info" }, session.user), h("button", { class: "quiet", type: "button", "aria-label": "Log out", title: "Log out", onclick: logOut }, icon("out"))] : [];
  fill(document.getElementById("top"), menu, h("a", { class: "brand", href: "#/" }, h("img", { src: "icon.svg", alt: "" }), "Barnabas"), clusterChoice(), h("span", { class: "cluster", id: "cluster" }), h("span", { class: "spacer" }), session.read_only ? badge("read-only", "info") : null, state, who, toggle);
  fill(nav, VIEWS.map(([title, rows]) => {
    const shown = rows.filter(([, , , needs]) => !needs || session.views.includes(needs) || (Array.isArray(session[needs]) ? session[needs].length : session[needs]));
    return shown.length ? [h("h2", {}, title), h("ul", {}, shown.map(([path, symbol, text]) => h("li", {}, h("a", { href: `#/${path}`, "data-view": path }, icon(symbol), text))))] : null;
  }));
}

/** Make the choice of a cluster, where there are several: each has a page and a login of its own. */
function clusterChoice() {
  if (!session.clusters.length) return null;
  return select(session.clusters.map((name) => [name, name, name === session.cluster]), { "aria-label": "Cluster", class: "clusters", onchange: (event) => { location.href = `${pageOf(event.target.value)}#/`; } });
}

async function logOut() {
  await request("DELETE", "/api/session");
  location.reload();
}

// --- views ---------------------------------------------------------------------------------------------------

async function show() {
  leaving?.abort();
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close(); // it is about the view that is left
  const leave = (leaving = new AbortController());
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decodeURIComponent);
  document.getElementById("nav").classList.remove("open");
  document.querySelector(".menu-button")?.setAttribute("aria-expanded", "false");
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.view === parts[0]) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const name = MODULES[parts[0]];
  if (name === undefined) { fill(main, h("h1", { tabindex: "-1" }, "There is no such view"), h("a", { href: "#/" }, "Overview")); return; }
  const context = { parts: parts.slice(1), values: new URLSearchParams(search), signal: leave.signal, session, main };
  try {
    const view = await import(`./views/${name}.js`);
    if (leave.signal.aborted) return;
    fill(main, h("p", { class: "loading" }, "Loading …"));
    await view.show(context);
  } catch (error) {
    if (error.name === "AbortError" || leave.signal.aborted) return;
    fill(main, h("h1", { tabindex: "-1" }, "This cannot be shown"), notice(error.message, "bad"), h("button", { type: "button", onclick: show }, "Try again"));
  }
  if (leave.signal.aborted) return;
  const title = main.querySelector("h1");
  document.title = [title?.textContent ?? "Console", session.cluster, "Barnabas console"].filter(Boolean).join(" · ");
  if (document.activeElement === document.body || main.contains(document.activeElement) || document.activeElement?.closest("#nav")) title?.focus({ preventScroll: true });
}

// --- login ---------------------------------------------------------------------------------------------------

async function logIn(offer) {
  if (isAsking) return;
  isAsking = true;
  const user = h("input", { name: "user", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const token = h("input", { name: "token", type: "password", autocomplete: "off", required: true });
  const mechanism = select(offer.mechanisms.map((name) => [name, name]), { name: "mechanism" });
  const isDone = await ask({
    title: "Log in", submit: "Log in",
    content: [
      h("p", { class: "soft" }, offer.mechanisms.length ? "As a user of the cluster: the console shows and does what this user may." : "The console was started with this token."),
      h("br"),
      offer.needs_token ? field("Token of the console", token) : null,
      offer.mechanisms.length ? [field("User", user), field("Password", password), offer.mechanisms.length > 1 ? field("Mechanism", mechanism) : null] : null,
    ],
    act: async () => { session = keep(await request("POST", "/api/session", { token: token.value, user: user.value, password: password.value, mechanism: offer.mechanisms.length ? mechanism.value : "" })); },
  });
  isAsking = false;
  if (isDone) start();
  else if (!session?.logged_in) fill(main, h("h1", { tabindex: "-1" }, "Not logged in"), h("br"), h("button", { type: "button", class: "primary", onclick: () => logIn(offer) }, "Log in"));
}

async function begin() {
  try {
    session = keep(await get("/api/session"));
  } catch (error) {
    fill(main, h("h1", {}, "The console does not answer"), notice(error.message, "bad"));
    setTimeout(begin, 2000);
    return;
  }
  frame();
  if (!session.logged_in) { fill(main); await logIn(session); return; }
  start();
}

async function start() {
  frame();
  window.removeEventListener("hashchange", show);
  window.addEventListener("hashchange", show);
  show();
  try {
    const cluster = await get("/api/brokers");
    fill(document.getElementById("cluster"), "Cluster ", h("b", {}, cluster.cluster_id || "unknown"), ` · ${cluster.brokers.length} broker${cluster.brokers.length === 1 ? "" : "s"}`);
  } catch { /* the view says what is wrong */ }
}

// A view that was left reads nothing more, and what it had begun to read is no error.
window.addEventListener("unhandledrejection", (event) => { if (event.reason?.name === "AbortError") event.preventDefault(); });

let isDown = false;
listen((isUp, why) => {
  state.dataset.state = document.body.dataset.cluster = isUp ? "up" : "down";
  state.firstElementChild.textContent = isUp ? "connected" : "no answer";
  state.title = isUp ? "" : why;
  if (isUp && isDown) toast("The cluster answers again.");
  if (!isUp && !isDown) { toast(`The cluster does not answer: ${why}`, "bad"); waitForReturn(); }
  isDown = !isUp;
}, begin);

/** Retry until the cluster answers again, then show the view again. */
async function waitForReturn() {
  for (;;) {
    await new Promise((done) => { setTimeout(done, 1500); });
    try {
      const current = keep(await get("/api/session"));
      if (current.logged_in) { session = current; await get("/api/brokers"); show(); return; }
      begin();
      return;
    } catch { /* not yet */ }
  }
}

// --- keys ----------------------------------------------------------------------------------------------------

let lastKey = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  if (event.key === "/") { event.preventDefault(); main.querySelector("input.filter, input[type=search]")?.focus(); }
  else if (event.key === "?") help();
  else if (lastKey === "g" && event.key in KEYS) {
    if (isThere(KEYS[event.key])) location.hash = `#/${KEYS[event.key]}`;
    lastKey = "";
    return;
  } else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
  lastKey = event.key;
});

const isThere = (view) => document.querySelector(`#nav a[data-view="${view}"]`) !== null;

/** Focus what opens the next row of a list, or the one before; the first without one. */
function move(step) {
  const openers = [...main.querySelectorAll("tbody tr:not(.opened)")].map((row) => row.querySelector("a, .opener")).filter(Boolean);
  const row = document.activeElement?.closest("tr");
  const at = openers.findIndex((opener) => opener.closest("tr") === row);
  const next = openers[at < 0 ? 0 : Math.min(Math.max(at + step, 0), openers.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function help() {
  const views = [["g o", "", "overview"], ["g t", "topics", "topics"], ["g g", "groups", "consumer groups"], ["g x", "transactions", "transactions"], ["g s", "subjects", "schemas"], ["g k", "connect", "Kafka Connect"], ["g a", "access", "access"], ["g b", "brokers", "brokers"], ["g q", "quorum", "controllers"], ["g n", "connections", "clients"], ["g r", "requests", "request tap"], ["g m", "metrics", "metrics"], ["g l", "log", "log"], ["g h", "clusters", "all clusters"]];
  const rows = [["/", "filter or search"], ["Enter", "in a filter: open the first that is left"], ["j", "next row of a list; Enter opens it"], ["k", "row before"], ...views.filter(([, view]) => isThere(view)).map(([keys, , text]) => [keys, text]), ["p", "on a record: beside the previous one of its key"], ["?", "this list"], ["Esc", "close a dialog"]];
  ask({ title: "Keys", submit: "Close", cancel: "", content: h("dl", {}, rows.map(([key, text]) => [h("dt", {}, key.split(" ").map((word) => h("kbd", {}, word))), h("dd", {}, text)])), act: () => true });
}

document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
begin();
