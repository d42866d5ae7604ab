// The broker's metrics as plots over time: the usual ones, and any other that is chosen.

import { get } from "../api.js";
import { body, fill, h, head, select } from "../dom.js";
import { History, plot } from "../chart.js";
import { bytes, short } from "../format.js";
import { repeat } from "../table.js";

const EVERY = 2000;
const REST_FACTOR = 10;
const SHOWN_MAX = 600;
// Title, format, and series: label, family, wanted labels, whether it is a counter whose rate is shown.
const USUAL = [
  ["Records in", (value) => `${short(value)}/s`, [["records in", /messagesin/i]]],
  ["Bytes in and out", (value) => `${bytes(value)}/s`, [["in", /_bytesin/i], ["out", /_bytesout/i]]],
  ["Requests", (value) => `${short(value)}/s`, [["requests", /requestmetrics_requests(_total)?$/i]]],
  ["Connections", short, [["connections", /connection_?count/i]]],
];

export async function show({ main, signal }) {
  const { families } = await get("/api/metrics", {}, signal);
  const names = families.map((family) => family.name);
  const kinds = Object.fromEntries(families.map((family) => [family.name, family.kind]));
  const place = h("div", { class: "plots" });
  const charts = [];
  const isCounter = (name) => kinds[name] === "counter";
  const past = (await get("/api/metrics/history", {}, signal).catch(() => ({ samples: [] }))).samples;
  const chosen = select([["", "Add a plot …"], ...families.map((family) => [family.name, `${family.name} (${family.kind})`])], { "aria-label": "Add a plot", onchange: () => { if (chosen.value) { add(chosen.value, [[chosen.value, chosen.value]], short, families.find((family) => family.name === chosen.value).text); chosen.value = ""; } } });

  function add(title, series, format, text = "") {
    const element = h("div", { class: "plot" });
    place.append(h("section", { class: "card", "aria-label": title }, h("div", { class: "card-head" }, h("h2", {}, title)), body(text ? h("p", { class: "soft" }, text) : null, element)));
    const chart = { series, drawn: plot(element, series.map(([label]) => label), signal, format), history: new History(series.length, SHOWN_MAX), last: null };
    charts.push(chart);
    const known = past.filter(({ sums }) => series.every(([, name]) => sums[name] !== undefined));
    for (const { at, sums } of known) note(chart, at, sums);
    if (known.length) chart.drawn.update(chart.history.times, chart.history.values);
  }
  /** Add what was sampled at a moment: rates of counters, since the sample before. */
  function note(chart, at, sums) {
    const values = chart.series.map(([, name]) => {
      if (!isCounter(name)) return sums[name] ?? null;
      const before = chart.last?.sums[name];
      return before === undefined ? null : Math.max(sums[name] - before, 0) / ((at - chart.last.at) / 1000);
    });
    chart.last = { at, sums };
    chart.history.add(at, values);
  }
  for (const [title, format, patterns] of USUAL) {
    const series = patterns.map(([label, pattern]) => [label, names.find((name) => pattern.test(name))]).filter(([, name]) => name);
    if (series.length) add(title, series, format);
  }
  fill(main, head("Metrics", past.length > 1 ? "The last 15 minutes, and every two seconds from now on." : "From now on, every two seconds.", [chosen]), place);

  let due = 0;
  repeat(async () => {
    const now = Date.now();
    if (now < due) return;
    const plotted = [...new Set(charts.flatMap((plot) => plot.series.map(([, name]) => name)))];
    if (!plotted.length) return;
    let answer;
    try { answer = await get("/api/metrics", { names: plotted.join(",") }, signal); } catch { return; }
    due = Date.now() + REST_FACTOR * (Date.now() - now); // a broker with many topics is polled less often
    const sums = Object.fromEntries(answer.families.map((family) => [family.name, family.sum]));
    for (const chart of charts) {
      note(chart, now, sums);
      chart.drawn.update(chart.history.times, chart.history.values);
    }
  }, EVERY, signal);
}
