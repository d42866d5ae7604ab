// Subjects of the registry, their versions and schemas.

import { get, part, post, request } from "../api.js";
import { ask, askName, badge, body, broken, card, field, fill, h, head, select, tile, toast } from "../dom.js";
import { pagedTable } from "../table.js";
import { whole } from "./payload.js";
import { comparing } from "./versions.js";

const TYPES = { AVRO: "Avro", JSON: "JSON Schema", PROTOBUF: "Protobuf" };

export async function show(context) {
  if (context.parts[0]) { await showSubject(context); return; }
  const { main, signal } = context;
  const list = pagedTable({
    title: "Subjects", label: "subjects", signal, placeholder: "Filter subjects", empty: "No schemas yet.", every: 15000, load: (values) => get("/api/subjects", values, signal),
    columns: [
      { label: "Subject", sort: "name", class: "name", cell: (row) => h("a", { href: `#/subjects/${part(row.name)}` }, broken(row.name)) },
      { label: "Type", cell: (row) => (row.error ? badge(row.error, "bad") : badge(TYPES[row.type] ?? row.type, "info")) },
      { label: "Version", number: true, cell: (row) => row.version ?? "–" },
      { label: "Id", number: true, class: "wide", cell: (row) => row.id ?? "–" },
      { label: "Compatibility", class: "wide", cell: (row) => (row.level ? badge(row.level.toLowerCase().replaceAll("_", " ")) : "–") },
    ],
  });
  fill(main, head("Schemas", "Subjects of the registry, with the newest version of each.", [h("button", { type: "button", class: "primary", onclick: async () => { if (await register("")) list.refresh(); } }, "Register schema")]), list.card);
}

async function showSubject({ main, parts, values, signal }) {
  const name = parts[0];
  const path = `/api/subjects/${part(name)}`;
  const subject = await get(path, { version: values.get("version") ?? "" }, signal);
  const { schema } = subject;
  const version = select(subject.versions.map((number) => [String(number), `Version ${number}`, number === schema.version]), { "aria-label": "Version", onchange: () => { location.hash = `#/subjects/${part(name)}?version=${version.value}`; } });
  const isText = (schema.schemaType ?? "AVRO") === "PROTOBUF";
  fill(main, head(name, "", [version, h("button", { type: "button", onclick: async () => { if (await register(name, schema)) location.hash = `#/subjects/${part(name)}`; } }, "Register a new version"), h("button", { type: "button", class: "danger", onclick: remove }, "Delete subject")], h("a", { href: "#/subjects" }, "Schemas")),
    h("div", { class: "cards" }, tile("Type", badge(schema.schemaType ?? "AVRO", "info"), "", null, true), tile("Id", schema.id), tile("Versions", subject.versions.length), tile("Compatibility", badge(subject.compatibility ?? "–"), "", null, true)),
    card("Schema", body(whole({ form: isText ? "text" : "json", text: schema.schema, size: schema.schema.length }))),
    subject.versions.length > 1 ? comparing(path, subject.versions, schema.version, signal) : "");
  async function remove() {
    const isDone = await askName({ title: "Delete subject", name, submit: "Delete subject", text: `${name} will be deleted with its ${subject.versions.length} versions. It can be restored by registering them again.`, act: (_, confirm) => request("DELETE", path, { confirm }) });
    if (isDone) { toast(`Subject ${name} was deleted.`); location.hash = "#/subjects"; }
  }
}

async function register(name, before = null) {
  const subject = h("input", { value: name, required: true, readonly: Boolean(name), placeholder: "orders-value" });
  const kind = select([["AVRO", "Avro"], ["JSON", "JSON Schema"], ["PROTOBUF", "Protobuf"]]);
  if (before?.schemaType) kind.value = before.schemaType;
  const text = h("textarea", { rows: "12", required: true, spellcheck: "false" });
  text.value = before?.schema ?? "";
  const isDone = await ask({ title: "Register schema", submit: "Register", content: [field("Subject", subject), field("Type", kind), field("Schema", text)], act: () => post(`/api/subjects/${part(subject.value)}`, { schema: text.value, type: kind.value }) });
  if (isDone) toast(`A schema of ${subject.value} was registered.`);
  return isDone;
}
