// The request tap: what clients ask, and what they are answered, as it happens.

import { follow } from "../api.js";
import { badge, broken, fill, folding, h, head, notice } from "../dom.js";
import { bytes, none, number, time, zone } from "../format.js";
import { whole } from "./payload.js";

const SHOWN_MAX = 300;
const HEADS = [["Time", "nowrap wide"], ["API", ""], ["Topic", ""], ["Client", "wide"], ["Records", "number wide"], ["Bytes", "number wide"], ["ms", "number"], ["Result", ""]];

export async function show({ main, signal }) {
  const rows = h("tbody");
  const status = h("span", { "aria-live": "polite" });
  const inputs = { api: h("input", { placeholder: "API, as Produce", "aria-label": "API" }), client_id: h("input", { placeholder: "Client id, * and ?", "aria-label": "Client id" }), topic: h("input", { placeholder: "Topic, * and ?", "aria-label": "Topic" }), group: h("input", { placeholder: "Group, * and ?", "aria-label": "Group" }) };
  const errors = h("input", { type: "checkbox" });
  const own = h("input", { type: "checkbox" });
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => { isPaused = !isPaused; pause.setAttribute("aria-pressed", String(isPaused)); pause.textContent = isPaused ? "Paused" : "Pause"; } }, "Pause");
  const problem = h("div");
  let held = [];
  let isPaused = false;
  let running = null;
  let count = 0;

  function watch() {
    running?.abort();
    running = new AbortController();
    fill(rows, h("tr", {}, h("td", { class: "empty", colspan: "8" }, "Waiting for requests …")));
    fill(problem);
    status.textContent = "Connecting …";
    count = 0;
    held = [];
    const values = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]));
    follow("/api/requests", { ...values, errors: errors.checked }, {
      begun: () => { status.textContent = "Watching"; },
      requests: (event) => {
        if (isPaused) return;
        const fresh = event.requests.filter((request) => own.checked || request.client_id !== "barnabas-console");
        if (fresh.length && !count) fill(rows);
        count += fresh.length;
        held = [...held, ...fresh].slice(-SHOWN_MAX);
        showHeld();
      },
      failed: (event) => { fill(problem, notice(event.error, "bad")); fill(rows); status.textContent = ""; },
      lost: () => { status.textContent = "Connecting again …"; },
    }, running.signal);
  }
  /** Show the requests that have come, unless one is open: it would move away below the reader's eyes. */
  function showHeld() {
    if (!rows.querySelector(".opened")) {
      for (const row of held) rows.prepend(line(row, showHeld));
      held = [];
      while (rows.children.length > SHOWN_MAX) rows.lastElementChild.remove();
    }
    status.textContent = `${number(count)} requests${held.length ? `, ${number(held.length)} newer ones appear when the open one is closed` : ""}`;
  }
  signal.addEventListener("abort", () => running?.abort());
  const labels = [h("label", { class: "inline" }, errors, "Failed only"), h("label", { class: "inline" }, own, "The console's own")];
  const form = h("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); watch(); } }, Object.values(inputs), labels);
  form.append(folding(form, [inputs.client_id, inputs.group, ...labels]), h("button", { type: "submit", class: "primary" }, "Watch"), pause);
  fill(main, head("Request tap", "What clients ask this broker, decoded. Secrets are masked, records are counted."), problem,
    h("section", { class: "card", "aria-label": "Requests" },
      form,
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Requests" }, h("table", { "aria-label": "Requests" }, h("thead", {}, h("tr", {}, HEADS.map(([label, kind]) => h("th", { scope: "col", class: kind }, label === "Time" ? `Time (${zone()})` : label)))), rows)),
      h("div", { class: "pages" }, status)));
  watch();
}

/** Name the topics of a request: the first, and how many more there are. */
const topicsOf = ({ topics, topics_total: total }) => (topics.length ? [broken(topics[0]), total > 1 ? h("span", { class: "soft", title: topics.join(", ") }, ` and ${number(total - 1)} more`) : null] : none);

function line(request, onclose) {
  const isFailed = request.error_codes.length > 0;
  const opener = h("button", { type: "button", class: "opener", "aria-expanded": "false" }, `${request.api} v${request.version}`);
  const row = h("tr", { class: "record-row" }, h("td", { class: "nowrap wide" }, time(request.at_ms).slice(11)), h("td", {}, opener), h("td", { class: "topics" }, topicsOf(request)), h("td", { class: "wide", title: `connection #${request.connection}, ${request.principal}` }, request.client_id ?? "–"), h("td", { class: "number wide" }, number(request.records)), h("td", { class: "number nowrap wide" }, bytes(request.bytes)), h("td", { class: "number" }, request.ms === null ? none : request.ms.toFixed(request.ms < 10 ? 1 : 0)), h("td", {}, isFailed ? badge(`error ${request.error_codes.join(", ")}`, "bad") : badge("ok", "good")));
  row.addEventListener("click", () => {
    const next = row.nextElementSibling;
    if (next?.classList.contains("opened")) { next.remove(); opener.setAttribute("aria-expanded", "false"); onclose(); return; }
    const shown = (value) => whole({ form: "json", text: JSON.stringify(value) });
    row.after(h("tr", { class: "opened" }, h("td", { colspan: "8" }, h("div", { class: "detail" }, h("p", { class: "soft" }, `${time(request.at_ms)} ${zone()}, connection #${request.connection}, ${request.principal}, client id ${request.client_id ?? "none"}`), h("h3", {}, "Request"), shown(request.request), h("h3", {}, "Answer"), request.response === null ? h("p", { class: "soft" }, "none") : shown(request.response)))));
    opener.setAttribute("aria-expanded", "true");
  });
  return row;
}
