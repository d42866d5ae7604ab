// ACLs, users, quotas, delegation tokens.

import { get, part, post, request } from "../api.js";
import { ask, askName, badge, card, field, fill, h, head, notice, select, toast } from "../dom.js";
import { number, time } from "../format.js";
import { pagedTable, table } from "../table.js";

const TABS = [["", "ACLs"], ["users", "Users"], ["quotas", "Quotas"], ["tokens", "Tokens"]];

export async function show({ main, parts, signal }) {
  const tab = parts[0] ?? "";
  const place = h("div");
  const actions = h("div", { class: "actions" });
  const top = head("Access");
  top.append(actions);
  fill(main, top, h("nav", { class: "tabs", "aria-label": "Parts of access" }, TABS.map(([key, label]) => h("a", { href: `#/access${key ? `/${key}` : ""}`, "aria-current": key === tab ? "page" : false }, label))), place);
  const draw = { "": acls, users, quotas, tokens }[tab];
  try {
    await draw?.(place, actions, signal);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    fill(place, notice(explain(error), error.code === "SECURITY_DISABLED" ? "" : "bad"));
  }
}

const explain = (error) => (error.code === "SECURITY_DISABLED" ? "This cluster has no authorizer, so there are no ACLs: everybody may do everything." : error.code === "DELEGATION_TOKEN_AUTH_DISABLED" ? "This cluster makes no delegation tokens." : error.message);
const button = (text, onclick) => h("button", { type: "button", class: "primary", onclick }, text);
const small = (text, label, onclick) => h("button", { type: "button", class: "small danger", "aria-label": label, onclick }, text);

async function acls(place, actions, signal) {
  const { words } = await get("/api/acls", { size: 1 }, signal);
  const list = aclTable("/api/acls", signal, "No ACLs yet.");
  fill(actions, button("Create ACL", () => createAcl(words, list.refresh)));
  fill(place, list.card);
}

/** Make a table of the ACLs that a path gives. */
function aclTable(path, signal, empty) {
  const list = pagedTable({
    title: "ACLs", label: "ACLs", signal, placeholder: "Filter ACLs", empty, load: (values) => get(path, values, signal),
    columns: [
      { label: "Principal", sort: "principal", class: "name", cell: (row) => row.principal },
      { label: "May", cell: (row) => [badge(row.permission, row.permission === "deny" ? "bad" : "good"), " ", row.operation] },
      { label: "On", sort: "resource", class: "name", cell: (row) => [h("span", { class: "soft" }, `${row.resource_type} `), row.resource_name, row.pattern_type === "prefixed" ? badge("and all that begin so") : null] },
      { label: "From", cell: (row) => row.host },
      { label: "", cell: (row) => small("Delete", `Delete the ACL of ${row.principal}`, () => remove(row)) },
    ],
  });
  async function remove(row) {
    const isDone = await askName({ title: "Delete ACL", name: row.principal, submit: "Delete ACL", text: `${row.principal} will no longer be under: ${row.permission} ${row.operation} on ${row.resource_type} ${row.resource_name}.`, act: (_, confirm) => request("DELETE", "/api/acls", { ...row, confirm }) });
    if (isDone) { toast("The ACL was deleted."); list.refresh(); }
  }
  return list;
}

/** Make what shows the ACLs that a topic is under. */
export async function topicAcls(name, signal) {
  const path = `/api/topics/${part(name)}/acls`;
  try {
    const { words } = await get(path, { size: 1 }, signal);
    const list = aclTable(path, signal, "No ACL is about this topic, by its name, by how that begins, or by *.");
    return [h("p", { class: "aside" }, button("Create ACL", () => createAcl(words, list.refresh, { resource_type: "topic", resource_name: name }))), list.card];
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return notice(explain(error), error.code === "SECURITY_DISABLED" ? "" : "bad");
  }
}

async function createAcl(words, refresh, preset = {}) {
  const choice = (name) => select(words[name].map((word) => [word, word, word === (preset[name] ?? (name === "permission" ? "allow" : ""))]));
  const inputs = {
    principal: h("input", { value: "User:", required: true }), resource_type: choice("resource_type"), resource_name: h("input", { required: true, placeholder: "name, or * for all", value: preset.resource_name ?? "" }),
    pattern_type: choice("pattern_type"), operation: choice("operation"), permission: choice("permission"), host: h("input", { value: "*" }),
  };
  const isDone = await ask({ title: "Create ACL", submit: "Create", content: h("div", { class: "fields" }, field("Principal", inputs.principal), field("Permission", inputs.permission), field("Operation", inputs.operation), field("Resource", inputs.resource_type), field("Name", inputs.resource_name), field("Name is", inputs.pattern_type), field("Host", inputs.host)), act: () => post("/api/acls", Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]))) });
  if (isDone) { toast("The ACL was created."); refresh(); }
}

async function users(place, actions, signal) {
  async function refresh() {
    const answer = await get("/api/users", {}, signal);
    fill(place, card("Users with passwords of SCRAM", table([
      { label: "User", class: "name", cell: (row) => row.name },
      { label: "Mechanisms", cell: (row) => (row.error ? badge(row.error, "bad") : Object.entries(row.mechanisms).map(([name, count]) => [badge(name), h("span", { class: "soft" }, ` ${number(count)} iterations `)])) },
      { label: "", cell: (row) => Object.keys(row.mechanisms).map((mechanism) => [small(`Delete ${mechanism}`, `Delete ${mechanism} of ${row.name}`, () => remove(row.name, mechanism)), " "]) },
    ], answer.users, { caption: "Users", empty: "No users yet." })));
    fill(actions, button("Set password", () => create(answer.mechanisms)));
  }
  async function create(mechanisms) {
    const name = h("input", { required: true, autocomplete: "off" });
    const password = h("input", { type: "password", required: true, autocomplete: "new-password" });
    const mechanism = select(mechanisms.map((name) => [name, name, name === "SCRAM-SHA-512"]));
    const isDone = await ask({ title: "Set password", content: [field("User", name), field("Password", password, "it leaves the console hashed"), field("Mechanism", mechanism)], act: () => request("PUT", `/api/users/${part(name.value)}`, { password: password.value, mechanism: mechanism.value }) });
    if (isDone) { toast(`The password of ${name.value} was set.`); refresh(); }
  }
  async function remove(name, mechanism) {
    const isDone = await askName({ title: "Delete password", name, submit: "Delete password", text: `${name} will no longer be able to log in by ${mechanism}.`, act: (_, confirm) => request("DELETE", `/api/users/${part(name)}`, { mechanism, confirm }) });
    if (isDone) { toast("The password was deleted."); refresh(); }
  }
  await refresh();
}

async function quotas(place, actions, signal) {
  const shown = (entity) => Object.entries(entity).map(([kind, name]) => `${kind} ${name ?? "(default)"}`).join(", ");
  async function refresh() {
    const answer = await get("/api/quotas", {}, signal);
    fill(place, card("Quotas", table([
      { label: "Of", class: "name", cell: (row) => shown(row.entity) },
      { label: "Quotas", cell: (row) => Object.entries(row.values).map(([name, value]) => h("div", {}, h("span", { class: "mono" }, name), ` ${number(value)}`)) },
      { label: "", cell: (row) => h("button", { type: "button", class: "small", "aria-label": `Change quotas of ${shown(row.entity)}`, onclick: () => change(answer.keys, row) }, "Change") },
    ], answer.quotas, { caption: "Quotas", empty: "No quotas yet." })));
    fill(actions, button("Set quota", () => change(answer.keys, null)));
  }
  async function change(keys, row) {
    const kinds = ["user", "client-id", "ip"];
    const names = kinds.map((kind) => h("input", { placeholder: "not in it; * for the default", value: row && kind in row.entity ? row.entity[kind] ?? "*" : "", disabled: Boolean(row) }));
    const values = keys.map((key) => h("input", { type: "number", min: "0", step: "any", placeholder: "no quota", value: row?.values[key] === undefined ? "" : String(row.values[key]) }));
    const isDone = await ask({
      title: row ? `Quotas of ${shown(row.entity)}` : "Set quota",
      content: [h("div", { class: "fields" }, kinds.map((kind, index) => field(kind, names[index]))), h("div", { class: "fields" }, keys.map((key, index) => field(key, values[index])))],
      act: () => {
        const entity = row ? row.entity : Object.fromEntries(kinds.map((kind, index) => [kind, names[index].value]).filter(([, name]) => name).map(([kind, name]) => [kind, name === "*" ? null : name]));
        const changes = Object.fromEntries(keys.map((key, index) => [key, values[index].value === "" ? null : Number(values[index].value)]).filter(([key, value]) => value !== null || (row && key in row.values)));
        return post("/api/quotas", { entity, values: changes });
      },
    });
    if (isDone) { toast("The quotas were changed."); refresh(); }
  }
  await refresh();
}

async function tokens(place, _, signal) {
  const answer = await get("/api/tokens", {}, signal);
  fill(place, card("Delegation tokens", table([
    { label: "Token", class: "name mono", cell: (row) => row.token_id }, { label: "Owner", cell: (row) => row.owner }, { label: "Renewers", cell: (row) => row.renewers.join(", ") || "–" },
    { label: "Issued", class: "nowrap", cell: (row) => time(row.issued_at_ms) }, { label: "Expires", class: "nowrap", cell: (row) => time(row.expires_at_ms) },
  ], answer.tokens, { caption: "Delegation tokens", empty: "No tokens." })));
}
