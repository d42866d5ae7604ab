// All clusters of this console, each with its own answer: one that does not respond holds up its row alone.

import { pageOf } from "../api.js";
import { badge, broken, fill, h, head } from "../dom.js";
import { number, plural, releaseOf } from "../format.js";
import { repeat, table } from "../table.js";

const SECONDS_MAX = 20;
const PROBLEM_CHARS_MAX = 160;

/** Return the numbers of a cluster, or why there are none. */
async function look(name, signal) {
  try {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(SECONDS_MAX * 1000)]);
    const answer = await fetch(`${pageOf(name)}api/overview`, { credentials: "same-origin", signal: limit });
    const value = await answer.json();
    if (answer.ok) return { name, ...value };
    return { name, problem: answer.status === 401 ? "log in to see it" : (value.error ?? `status ${answer.status}`), isLogin: answer.status === 401 };
  } catch {
    return { name, problem: `no answer within ${SECONDS_MAX} s` };
  }
}

function health({ topics, problem, isLogin }) {
  if (isLogin) return badge("log in", "info");
  if (problem) return badge("no answer", "bad");
  if (!topics) return "–";
  if (topics.offline) return badge(`${plural(topics.offline, "partition")} without leader`, "bad");
  return topics.under_replicated ? badge(`${number(topics.under_replicated)} under-replicated`, "warn") : badge("all partitions in sync", "good");
}

export async function show({ main, session, signal }) {
  const place = h("section", { class: "card", "aria-label": "Clusters" });
  const rows = new Map(session.clusters.map((name) => [name, null]));
  const columns = [
    { label: "Cluster", class: "name", cell: (row) => [h("a", { href: `${pageOf(row.name)}#/` }, broken(row.name)), row.name === session.cluster ? [" ", badge("shown now", "info")] : null] },
    { label: "Health", cell: (row) => (row.isWaiting ? h("span", { class: "soft" }, "asking …") : [health(row), row.problem && !row.isLogin ? h("div", { class: "soft" }, row.problem.slice(0, PROBLEM_CHARS_MAX)) : null]) },
    { label: "Brokers", number: true, class: "wide", cell: (row) => number(row.cluster?.brokers) },
    { label: "Topics", number: true, class: "wide", cell: (row) => number(row.topics?.count) },
    { label: "Partitions", number: true, class: "wide", cell: (row) => number(row.topics?.partitions) },
    { label: "Groups", number: true, class: "wide", cell: (row) => number(row.groups?.count) },
    { label: "Like", class: "wide", cell: (row) => (row.cluster ? releaseOf(row.cluster.release) : "–") },
  ];
  const draw = () => { if (!signal.aborted) fill(place, table(columns, [...rows].map(([name, row]) => row ?? { name, isWaiting: true }), { caption: "Clusters" })); };
  fill(main, head("All clusters", "Each has a page, a login and rights of its own."), place);
  draw();
  repeat(() => Promise.all(session.clusters.map(async (name) => { rows.set(name, await look(name, signal)); draw(); })), 10000, signal);
}
