// Transactional ids, and what is open.

import { get, part } from "../api.js";
import { badge, broken, check, fill, h, head } from "../dom.js";
import { duration } from "../format.js";
import { pagedTable } from "../table.js";

const KINDS = { Ongoing: "warn", PrepareCommit: "info", PrepareAbort: "info", CompleteCommit: "good", CompleteAbort: "" };

export async function show({ main, session, signal }) {
  const list = pagedTable({
    title: "Transactions", label: "transactional ids", signal, placeholder: "Filter by transactional id", empty: session.user ? `No transactional ids that ${session.user} may see.` : "No transactional producers yet.",
    load: (values) => get("/api/transactions", values, signal),
    filters: [{ names: ["open"], make: (change, values) => check("Open only", { checked: values.open === "true", onchange: (event) => change({ open: event.target.checked || "" }) }) }],
    columns: [
      { label: "Transactional id", sort: "id", class: "name", cell: (row) => row.id },
      { label: "State", sort: "state", cell: (row) => badge(row.state, KINDS[row.state] ?? "") },
      { label: "Open for", sort: "age", number: true, class: "nowrap", cell: (row) => (row.age_ms === null ? "–" : row.age_ms > (row.timeout_ms ?? Infinity) ? badge(duration(row.age_ms), "bad") : duration(row.age_ms)) },
      { label: "Timeout", number: true, class: "wide", cell: (row) => duration(row.timeout_ms) },
      { label: "Producer", number: true, class: "wide", cell: (row) => [row.producer_id, h("span", { class: "soft" }, ` epoch ${row.epoch ?? "–"}`)] },
      { label: "Partitions", cell: (row) => (row.partitions.length ? [row.partitions.slice(0, 5).map((name, index) => [index ? ", " : "", h("a", { href: `#/topics/${part(name.replace(/-\d+$/, ""))}/producers`, title: "Producers, where a transaction that hangs is aborted" }, broken(name))]), row.partitions.length > 5 ? ` and ${row.partitions.length - 5} more` : ""] : "–") },
    ],
  });
  fill(main, head("Transactions", "A transaction that is open for longer than its timeout hangs: its partition leads to the producers, where it is aborted."), list.card);
}
