// Plots over time, by the vendored uPlot.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { short } from "./format.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

/** Return the times between which is drawn: a minute at least, since one sample alone has no length. */
function span(times) {
  const last = times.length ? times[times.length - 1] : Date.now() / 1000;
  return [Math.min(times[0] ?? last, last - 60), last];
}

/** Draw series over time into an element: `series` are labels; `update(times in s, values by series)`. */
export function plot(element, series, signal, format = short) {
  let drawn = null;
  let data = [[], ...series.map(() => [])];
  const axis = () => ({ stroke: colour("--plot-text"), grid: { stroke: colour("--plot-grid"), width: 1 }, ticks: { stroke: colour("--plot-grid"), width: 1 }, font: "11px sans-serif" });

  /** What the legend says: the value below the pointer, or the last one. */
  function shown(value, index, text) {
    const shownValue = value ?? data[index][data[index].length - 1];
    return shownValue === null || shownValue === undefined ? "–" : text(shownValue);
  }

  function draw() {
    drawn?.destroy();
    drawn = new uPlot({
      width: Math.max(element.clientWidth, 200), height: 190, cursor: { y: false }, legend: { live: true }, scales: { x: { range: ({ data: [times] }) => span(times) }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis(), space: 90, values: (_, ticks) => ticks.map(clock) }, { ...axis(), size: 66, values: (_, ticks) => ticks.map((tick) => format(tick)) }],
      series: [{ value: (_, at) => shown(at, 0, clock) }, ...series.map((label, index) => ({ label, stroke: colour(`--plot-${(index % 4) + 1}`), width: 2, spanGaps: true, value: (_, value) => shown(value, index + 1, format) }))],
    }, data, element);
  }
  const resized = new ResizeObserver(() => drawn?.setSize({ width: Math.max(element.clientWidth, 200), height: 190 }));
  resized.observe(element);
  const recolour = () => draw();
  window.addEventListener("themechange", recolour);
  signal.addEventListener("abort", () => { resized.disconnect(); window.removeEventListener("themechange", recolour); drawn?.destroy(); });
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", `Plot of ${series.join(", ")} over time`);
  return {
    update(times, values) {
      data = [times, ...values];
      if (drawn) drawn.setData(data); else draw();
      const last = values.map((points, index) => `${series[index]} ${points.length ? format(points[points.length - 1]) : "–"}`).join(", ");
      element.setAttribute("aria-label", `Plot over time; now: ${last}`);
    },
  };
}

/** Keep samples of the last minutes. */
export class History {
  constructor(count, most = 240) {
    this.times = [];
    this.values = Array.from({ length: count }, () => []);
    this.most = most;
  }

  add(ms, values) {
    this.times.push(ms / 1000);
    values.forEach((value, index) => this.values[index].push(value));
    if (this.times.length > this.most) {
      this.times.shift();
      this.values.forEach((points) => points.shift());
    }
  }
}
