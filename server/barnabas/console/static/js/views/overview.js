// The cluster at a glance.

import { get } from "../api.js";
import { badge, fill, h, head, notice, tile } from "../dom.js";
import { number, plural } from "../format.js";
import { repeat } from "../table.js";
import { topicTable } from "./topics.js";

export async function show(context) {
  const { main, signal } = context;
  const tiles = h("div", { class: "cards" });
  const notes = h("div");
  fill(main, head("Overview", ""), notes, tiles, topicTable(context, { title: "Topics", size: 25 }).card);
  async function refresh() {
    try {
      const summary = await get("/api/overview", {}, signal);
      const { cluster, topics, groups } = summary;
      const isWell = topics && !topics.offline && !topics.under_replicated;
      fill(tiles,
        tile("Health", topics ? badge(isWell ? "all partitions in sync" : topics.offline ? `${plural(topics.offline, "partition")} without leader` : `${number(topics.under_replicated)} under-replicated`, isWell ? "good" : topics.offline ? "bad" : "warn") : "–", `controller: broker ${cluster.controller}`, null, true),
        tile("Brokers", number(cluster.brokers), cluster.release.replace(/, which.*/, ""), "#/brokers"),
        topics ? tile("Topics", number(topics.count), `${number(topics.internal)} internal`, "#/topics") : null,
        topics ? tile("Partitions", number(topics.partitions), `${number(topics.under_replicated)} under-replicated`, "#/topics") : null,
        groups ? tile("Groups", number(groups.count), Object.entries(groups.states).map(([name, count]) => `${count} ${name}`).join(", ") || "none yet", "#/groups") : null);
      fill(notes, summary.note ? notice(`Some of this cannot be shown: ${summary.note}`, "warn") : null);
    } catch (error) {
      if (error.name !== "AbortError" && error.status) { fill(tiles); fill(notes, notice(error.message, "bad")); }
    }
  }
  repeat(refresh, 5000, signal);
}
