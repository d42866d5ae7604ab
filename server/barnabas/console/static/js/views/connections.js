// Connected clients.

import { get } from "../api.js";
import { badge, fill, h, head } from "../dom.js";
import { duration, rate } from "../format.js";
import { pagedTable } from "../table.js";

export async function show({ main, signal }) {
  const list = pagedTable({
    title: "Clients", label: "connections", signal, placeholder: "Filter clients", every: 3000, size: 50,
    load: (values) => get("/api/connections", values, signal),
    columns: [
      { label: "Client id", sort: "client_id", class: "name", cell: (row) => [row.client_id ?? "–", row.warnings.map((warning) => h("div", {}, badge(warning, "warn")))] },
      { label: "Software", sort: "software", cell: (row) => row.software || "–" },
      { label: "Address", class: "mono nowrap", cell: (row) => row.peer },
      { label: "Listener", cell: (row) => [row.listener, row.protocol !== row.listener ? h("span", { class: "soft" }, ` ${row.protocol}`) : null] },
      { label: "User", cell: (row) => row.principal },
      { label: "Requests", sort: "rate", number: true, class: "nowrap", cell: (row) => rate(row.rate) },
      { label: "Throttled", number: true, class: "nowrap", cell: (row) => (row.throttled_ms ? badge(duration(row.throttled_ms), "warn") : "–") },
    ],
  });
  fill(main, head("Clients", "Who is connected to this broker. Requests a second are counted by the clients' own numbers."), list.card);
}
