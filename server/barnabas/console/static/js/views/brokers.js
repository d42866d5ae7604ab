// Brokers, and the settings of one.

import { get, part } from "../api.js";
import { badge, body, card, fill, h, head, notice } from "../dom.js";
import { bytes, number } from "../format.js";
import { repeat, table } from "../table.js";
import { settingsCard } from "./settings.js";

export async function show({ main, parts, signal }) {
  if (parts[0]) {
    const settings = await settingsCard(`/api/brokers/${part(parts[0])}/settings`, signal, `broker ${parts[0]}`);
    fill(main, head(`Broker ${parts[0]}`, "", [], h("a", { href: "#/brokers" }, "Brokers")), settings);
    return;
  }
  const place = h("div");
  fill(main, head("Brokers"), place);
  repeat(async () => {
    try {
      fill(place, ...shown(await get("/api/brokers", {}, signal)));
    } catch (error) {
      if (error.name !== "AbortError" && error.status) fill(place, notice(error.message, "bad"));
    }
  }, 10000, signal);
}

function shown(cluster) {
  const dirs = cluster.brokers.flatMap((broker) => broker.log_dirs.map((dir) => ({ ...dir, broker: broker.id })));
  const used = (dir) => (dir.total_bytes === null ? null : dir.total_bytes - dir.usable_bytes);
  return [
    card(null, table([
      { label: "Broker", class: "name", cell: (row) => [h("a", { href: `#/brokers/${row.id}` }, `Broker ${row.id}`), row.controller ? [" ", badge("controller", "info")] : null] },
      { label: "Address", class: "mono", cell: (row) => `${row.host}:${row.port}` },
      { label: "Rack", cell: (row) => row.rack ?? "–" },
      { label: "State", cell: (row) => (row.error ? badge(row.error, "bad") : row.fenced ? badge("fenced", "warn") : badge("alive", "good")) },
    ], cluster.brokers, { caption: "Brokers" })),
    card("Log dirs", table([
      { label: "Broker", number: true, cell: (row) => number(row.broker) },
      { label: "Path", class: "name mono", cell: (row) => row.path },
      { label: "Used", number: true, class: "nowrap", cell: (row) => bytes(used(row)) },
      { label: "Free", number: true, class: "nowrap", cell: (row) => bytes(row.usable_bytes) },
      { label: "State", cell: (row) => (row.error ? badge(row.error, "bad") : badge("online", "good")) },
    ], dirs, { caption: "Log dirs" })),
    cluster.features.length ? card("Features", table([
      { label: "Feature", class: "name mono", cell: (row) => row.name },
      { label: "Supported", number: true, cell: (row) => `${row.min} to ${row.max}` },
      { label: "Finalized", number: true, cell: (row) => row.finalized ?? "–" },
    ], cluster.features, { caption: "Features" })) : body(),
  ];
}
