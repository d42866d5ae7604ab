// The cluster at a glance: what it is, and the last 15 minutes, which the server keeps.

import { get } from "../api.js";
import { plot } from "../chart.js";
import { badge, body, card, fill, h, head, notice, tile } from "../dom.js";
import { bytes, duration, number, plural, releaseOf, short } from "../format.js";
import { repeat } from "../table.js";
import { groupLink } from "./groups.js";
import { topicTable } from "./topics.js";

const PLOTTED_GROUPS = 4;

export async function show(context) {
  const { main, signal } = context;
  const tiles = h("div", { class: "cards" });
  const notes = h("div");
  const lags = h("div");
  const throughput = h("div", { class: "plot" });
  const records = plot(throughput, ["records a second"], signal);
  fill(main, head("Overview", ""), notes, tiles,
    h("div", { class: "columns" }, card("Throughput, 15 minutes", body(throughput)), card("Lag by group, 15 minutes", body(lags))),
    topicTable(context, { title: "Topics", size: 25 }).card);
  const drawLags = lagPlot(lags, signal);
  let summary = null;
  let samples = [];
  let unseen = [];

  function draw() {
    if (!summary) return;
    const { cluster, topics, groups } = summary;
    const isWell = topics && !topics.offline && !topics.under_replicated;
    fill(tiles,
      tile("Health", topics ? badge(isWell ? "all partitions in sync" : topics.offline ? `${plural(topics.offline, "partition")} without leader` : `${number(topics.under_replicated)} under-replicated`, isWell ? "good" : topics.offline ? "bad" : "warn") : "–", `controller: broker ${cluster.controller}`, null, true),
      tile("Brokers", number(cluster.brokers), `like ${releaseOf(cluster.release)}`, "#/brokers"),
      topics ? tile("Topics", number(topics.count), `${number(topics.internal)} internal`, "#/topics") : null,
      topics ? tile("Partitions", number(topics.partitions), `${number(topics.under_replicated)} under-replicated`, "#/topics?unhealthy=true") : null,
      groups ? tile("Groups", number(groups.count), Object.entries(groups.states).map(([name, count]) => `${count} ${name}`).join(", ") || (context.session.user ? "none that you may see" : "none yet"), "#/groups") : null,
      ...now(samples));
    const reasons = [...new Set([summary.note, ...unseen].filter(Boolean))];
    fill(notes, reasons.length ? notice(`Some of this cannot be shown: ${reasons.join("; ")}`, "warn") : null);
  }
  async function refresh() {
    try {
      summary = await get("/api/overview", {}, signal);
      draw();
    } catch (error) {
      if (error.name !== "AbortError" && error.status) { fill(tiles); fill(notes, notice(error.message, "bad")); }
    }
  }
  async function refreshHistory() {
    try {
      const answer = await get("/api/history", {}, signal);
      ({ samples } = answer);
      unseen = Object.values(answer.notes);
      records.update(samples.map((sample) => sample.at / 1000), [samples.map((sample) => sample.values.records_per_s ?? null)]);
      drawLags(samples);
      draw();
    } catch { /* the numbers above say what is wrong */ }
  }
  repeat(refresh, 5000, signal);
  repeat(refreshHistory, 10000, signal);
}

const share = (part) => (part > 0 && part < 0.01 ? "<1" : Math.round(100 * part));

/** Make tiles of the last sample. */
function now(samples) {
  const values = samples[samples.length - 1]?.values ?? {};
  const isKnown = (value) => value !== undefined && value !== null;
  const stalls = isKnown(values.stalls) ? values.stalls - (samples[0].values.stalls ?? values.stalls) : null;
  return [
    isKnown(values.lag) ? tile("Lag", short(values.lag), "records, all groups", "#/groups") : null,
    isKnown(values.open_transactions) ? tile("Open transactions", number(values.open_transactions), isKnown(values.oldest_transaction_ms) ? `oldest for ${duration(values.oldest_transaction_ms)}` : "", "#/transactions?open=true") : null,
    isKnown(values.disk_total) ? tile("Disk", `${share(values.disk_used / values.disk_total)} %`, `${bytes(values.disk_total - values.disk_used)} free${isKnown(values.bytes) ? `, records ${bytes(values.bytes)}` : ""}`, "#/brokers") : null,
    stalls === null ? null : tile("Stalls", number(stalls), "turns over 20 ms, 15 minutes", "#/log"),
  ];
}

/** Return what draws the lags of those groups that are furthest behind. */
function lagPlot(place, signal) {
  let drawn = null;
  let names = [];
  let ending = null;
  const list = h("dl", { class: "lags" });
  return (samples) => {
    const groups = samples[samples.length - 1]?.groups ?? {};
    const sorted = Object.entries(groups).sort(([, first], [, second]) => second - first);
    const shown = sorted.slice(0, PLOTTED_GROUPS).map(([name]) => name);
    if (!shown.length) { fill(place, h("p", { class: "soft" }, "No group has committed offsets.")); names = []; return; }
    if (shown.join("\n") !== names.join("\n")) {
      names = shown;
      ending?.abort();
      ending = new AbortController();
      signal.addEventListener("abort", () => ending.abort(), { signal: ending.signal });
      const element = h("div", { class: "plot" });
      fill(place, element, list);
      drawn = plot(element, names, ending.signal);
    }
    drawn.update(samples.map((sample) => sample.at / 1000), names.map((name) => samples.map((sample) => sample.groups[name] ?? null)));
    fill(list, sorted.map(([name, lag]) => [h("dt", {}, groupLink(name)), h("dd", {}, number(lag))]));
  };
}
