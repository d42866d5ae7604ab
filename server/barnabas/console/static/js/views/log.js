// The broker's log.

import { get } from "../api.js";
import { badge, fill, h, head, notice, select } from "../dom.js";
import { number, time, zone } from "../format.js";
import { repeat } from "../table.js";

const LEVELS = ["debug", "info", "warning", "error", "critical"];
const SHOWN_MAX = 1000;

export async function show({ main, signal }) {
  const rows = h("tbody");
  const status = h("span", { "aria-live": "off" });
  const filter = h("input", { type: "search", class: "filter", placeholder: "Filter lines", "aria-label": "Filter lines", oninput: draw });
  const level = select(LEVELS.slice(0, 4).map((name) => [name, `${name} and above`]), { "aria-label": "Level", onchange: draw });
  const problem = h("div");
  let lines = [];
  function draw() {
    const text = filter.value.toLowerCase();
    const shown = lines.filter((line) => LEVELS.indexOf(line.level) >= LEVELS.indexOf(level.value) && `${line.logger} ${line.text}`.toLowerCase().includes(text)).reverse();
    fill(rows, shown.length ? shown.map((line) => h("tr", {}, h("td", { class: "nowrap" }, time(line.at).slice(11)), h("td", {}, badge(line.level, { error: "bad", critical: "bad", warning: "warn" }[line.level] ?? "")), h("td", { class: "nowrap soft wide" }, line.logger.replace(/^barnabas\./, "")), h("td", {}, line.text))) : h("tr", {}, h("td", { class: "empty", colspan: "4" }, "Nothing was logged.")));
    status.textContent = `${number(shown.length)} lines, newest first`;
  }
  fill(main, head("Log", "What the broker has logged since it was started, at its level of logging."), problem,
    h("section", { class: "card log", "aria-label": "Log" }, h("div", { class: "bar" }, filter, level), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Lines" }, h("table", { "aria-label": "Lines" }, h("thead", {}, h("tr", {}, [`Time (${zone()})`, "Level", "Logger", "Text"].map((label) => h("th", { scope: "col", class: label === "Logger" ? "wide" : "" }, label)))), rows)), h("div", { class: "pages" }, status)));
  draw();
  repeat(async () => {
    try {
      const fresh = (await get("/api/log", { since: lines.length ? lines[lines.length - 1].id : 0 }, signal)).lines;
      if (fresh.length) { lines = [...lines, ...fresh].slice(-SHOWN_MAX); draw(); }
      fill(problem);
    } catch (error) {
      if (error.status) { fill(problem, notice(error.message, "bad")); if (!lines.length) fill(rows); } // the head says that nothing answers
    }
  }, 2000, signal);
}
