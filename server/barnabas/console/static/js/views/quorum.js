// The quorum of controllers: who leads it, who votes, and how far behind each node is.

import { get } from "../api.js";
import { badge, card, fill, h, head, notice, tile } from "../dom.js";
import { duration, number, plural, time } from "../format.js";
import { repeat, table } from "../table.js";

const LATE_MS = 10000;

export async function show({ main, signal }) {
  const place = h("div");
  fill(main, head("Controllers", "The quorum that keeps the cluster's metadata."), place);
  repeat(async () => {
    try {
      fill(place, ...shown(await get("/api/quorum", {}, signal)));
    } catch (error) {
      if (error.name !== "AbortError" && !signal.aborted) fill(place, notice(error.message, "bad"));
    }
  }, 5000, signal);
}

function shown({ leader, epoch, nodes, controller }) {
  if (!nodes.length) return [notice(controller < 0 ? "This cluster has no quorum of controllers, and no controller now." : `This cluster has no quorum of controllers: broker ${controller} is its controller.`)];
  const voters = nodes.filter((node) => node.votes);
  const majority = Math.floor(voters.length / 2) + 1;
  const now = Math.max(Date.now(), ...nodes.map((node) => node.caught_up_at ?? 0));
  const isCurrent = (node) => node.id === leader || (node.caught_up_at !== null && now - node.caught_up_at < LATE_MS);
  const current = voters.filter(isCurrent).length;
  const isWell = leader >= 0 && current === voters.length;
  return [
    h("div", { class: "cards" },
      tile("Health", badge(leader < 0 ? "no leader" : isWell ? "all up to date" : current < majority ? "no majority is up to date" : `${plural(voters.length - current, "voter")} behind`, isWell ? "good" : leader < 0 || current < majority ? "bad" : "warn"), `${current} of ${plural(voters.length, "voter")} up to date`, null, true),
      tile("Leader", leader < 0 ? "–" : number(leader), `epoch ${number(epoch)}`),
      tile("Voters", number(voters.length), `${number(majority)} decide`),
      tile("Metadata", number(Math.max(...nodes.map((node) => node.log_end))), "end of the log")),
    card("Nodes", table([
      { label: "Node", class: "name", cell: (row) => number(row.id) },
      { label: "Role", cell: (row) => badge(row.role, row.role === "leader" ? "info" : "") },
      { label: "Lag", number: true, title: "Records of the metadata log that the node has not fetched yet", cell: (row) => (row.lag ? badge(number(row.lag), "warn") : "0") },
      { label: "Log end", number: true, class: "wide", cell: (row) => number(row.log_end) },
      { label: "Up to date", class: "nowrap", cell: (row) => (isCurrent(row) ? badge("now", "good") : row.caught_up_at === null ? badge("unknown") : badge(`${duration(now - row.caught_up_at)} ago`, "warn")) },
      { label: "Last fetch", class: "wide nowrap", cell: (row) => (row.id === leader ? "–" : time(row.fetched_at)) },
      { label: "Address", class: "wide mono", cell: (row) => row.addresses.join(", ") || "–" },
    ], nodes, { caption: "Nodes of the quorum" })),
  ];
}
