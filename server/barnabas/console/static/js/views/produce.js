// Records to append to a topic: one that is typed, or lines of a file; as they are, or written by a schema.

import { get, part, post } from "../api.js";
import { ask, field, h, select, toast } from "../dom.js";
import { plural } from "../format.js";

const LINES_MAX = 1000;
const TYPES = { AVRO: "Avro", JSON: "JSON Schema", PROTOBUF: "Protobuf" };

/** Return the newest schema of a subject; null where there is none, or no registry. */
async function newest(subject, hasRegistry) {
  if (!hasRegistry) return null;
  try { return (await get(`/api/subjects/${part(subject)}`)).schema; } catch { return null; }
}

/** Make the choice of what a key or value is, with the id of a schema beside it. */
function formOf(label, schema, hasRegistry, plain) {
  const options = plain.map(([value, text]) => [value, text]);
  if (schema) options.unshift(["latest", `${TYPES[schema.schemaType ?? "AVRO"]}, version ${schema.version} of its schema`]);
  if (hasRegistry) options.push(["id", "JSON, for the schema of an id"]);
  const form = select(options, {});
  const id = h("input", { type: "number", min: "1" });
  const idField = field(`Id of the ${label.toLowerCase()}'s schema`, id);
  const fit = () => { idField.hidden = form.value !== "id"; id.required = form.value === "id"; };
  form.addEventListener("change", fit);
  fit();
  const choose = (kind, schemaId) => { form.value = kind; if (schemaId) id.value = String(schemaId); fit(); };
  return { choose, fields: [field(`${label} is`, form), idField], form, schema: () => (form.value === "latest" ? "latest" : form.value === "id" ? Number(id.value) : null), bytesOf: (text) => (form.value === "base64" ? { base64: text.trim() } : text) };
}

/** Make the bytes that hexadecimal digits stand for base64. */
const base64 = (hex) => btoa(hex.split(" ").filter(Boolean).map((byte) => String.fromCharCode(Number.parseInt(byte, 16))).join(""));

/** Return a payload that was read as it is sent. */
const bytesOf = (payload) => (payload.form === "null" ? null : payload.form === "hex" ? { base64: base64(payload.text) } : payload.text);

/** Put what a record has into the form: text, base64 of bytes, or JSON for the schema that it was written by. */
function take(payload, input, serializer) {
  if (payload.form === "null") return;
  input.value = payload.form === "hex" ? base64(payload.text) : payload.text;
  serializer.choose(payload.schema_id ? "id" : payload.form === "hex" ? "base64" : "text", payload.schema_id);
}

/** Ask for records and send them; `like` is one to begin with. */
export async function produce(path, name, count, hasRegistry, like = null) {
  const [keySchema, valueSchema] = await Promise.all([newest(`${name}-key`, hasRegistry), newest(`${name}-value`, hasRegistry)]);
  const key = h("input", { name: "key", autocomplete: "off", placeholder: "none" });
  const value = h("textarea", { name: "value", rows: "6", spellcheck: "false" });
  const isNull = h("input", { type: "checkbox", name: "null" });
  const headers = h("textarea", { name: "headers", rows: "2", placeholder: "trace-id=7", spellcheck: "false" });
  const partition = h("input", { name: "partition", type: "number", min: "0", max: String(count - 1), placeholder: "by the key" });
  const compression = select(["none", "gzip", "snappy", "lz4", "zstd"].map((codec) => [codec]), { name: "compression" });
  const file = h("input", { name: "file", type: "file" });
  const plain = [["text", "text as it is"], ["base64", "base64 of bytes"]];
  const keyForm = formOf("Key", keySchema, hasRegistry, plain);
  const valueForm = formOf("Value", valueSchema, hasRegistry, plain);
  let taken = null;
  if (like) {
    take(like.key, key, keyForm);
    take(like.value, value, valueForm);
    isNull.checked = like.value.form === "null";
    headers.value = like.headers.map((header) => (header.value.form === "null" ? header.name : `${header.name}=${header.value.text}`)).join("\n");
    taken = headers.value;
  }
  let sent = [];
  const isDone = await ask({
    title: `Produce to ${name}`, submit: "Send",
    content: [
      field("Key", key), field("Value", value, hasRegistry ? "JSON, where a schema writes it" : ""), h("label", { class: "inline" }, isNull, "Null value: deletes the key in a compacted topic"), h("br"), h("br"),
      h("div", { class: "fields" }, valueForm.fields, keyForm.fields),
      field("Headers", headers, "one NAME=VALUE a line"),
      h("div", { class: "fields" }, field("Partition", partition), field("Compression", compression)),
      field("Or from a file", file, "each line is a value; up to 1,000 lines"),
    ],
    act: async () => {
      const heads = headers.value === taken ? like.headers.map((header) => ({ name: header.name, value: bytesOf(header.value) })) : headers.value.split("\n").filter((line) => line.trim()).map((line) => { const at = line.indexOf("="); return at < 0 ? { name: line, value: null } : { name: line.slice(0, at), value: line.slice(at + 1) }; });
      const common = { headers: heads, key: key.value === "" ? null : keyForm.bytesOf(key.value), partition: partition.value === "" ? null : Number(partition.value) };
      let records = [{ ...common, value: isNull.checked ? null : valueForm.bytesOf(value.value) }];
      if (file.files.length) {
        const lines = (await file.files[0].text()).split("\n").filter((line) => line !== "");
        if (lines.length > LINES_MAX) throw new Error(`The file has ${lines.length} lines; at most 1,000 are sent at once.`);
        records = lines.map((line) => ({ ...common, value: valueForm.bytesOf(line.replace(/\r$/, "")) }));
      }
      sent = (await post(`${path}/records`, { records, compression: compression.value, key_schema: keyForm.schema(), value_schema: valueForm.schema() })).sent;
    },
  });
  if (isDone) {
    toast(sent.length === 1 ? `Sent: partition ${sent[0].partition}, offset ${sent[0].offset}.` : `${plural(sent.length, "record")} sent.`);
    window.dispatchEvent(new CustomEvent("produced"));
  }
}
