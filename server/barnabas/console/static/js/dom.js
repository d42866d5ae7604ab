// Elements, dialogs and messages. The rule: what comes from the cluster becomes text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: attributes, `on…` listeners, and children that are elements or texts. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false).map(asNode));
  return element;
}

const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

/** Have a long name broken after dots, dashes and underscores, if at all. */
export const broken = (name) => name.split(/(?<=[._-])/).flatMap((piece, index) => (index ? [h("wbr"), piece] : [piece]));

/** Replace all that an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false).map(asNode));
  return element;
}

const PATHS = {
  overview: "M3 12 12 4l9 8M5 10v10h5v-6h4v6h5V10", topics: "M4 6h16M4 12h16M4 18h10", groups: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6Zm8 1a2.5 2.5 0 1 0 0-5M2.5 19c.5-3 2.6-4.5 5.5-4.5s5 1.5 5.5 4.5M16 14.5c2.6 0 4.5 1.5 5 4",
  brokers: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01", quorum: "M12 4v5M12 9l-6 6M12 9l6 6M12 4a2 2 0 1 0 0-.01ZM5 19a2 2 0 1 0 0-.01ZM19 19a2 2 0 1 0 0-.01Z", transactions: "M4 8h13l-3-3M20 16H7l3 3", access: "M12 3 5 6v5c0 4.5 3 8 7 10 4-2 7-5.5 7-10V6z",
  connections: "M9 15l6-6M8 11l-2 2a3.5 3.5 0 0 0 5 5l2-2M16 13l2-2a3.5 3.5 0 0 0-5-5l-2 2", requests: "M3 12h4l3-8 4 16 3-8h4", metrics: "M4 20V10M10 20V4M16 20v-7M21 20H3", log: "M6 3h9l4 4v14H6zM9 12h7M9 16h7",
  control: "M4 7h10M18 7h2M4 17h2M10 17h10M14 5v4M8 15v4", subjects: "M4 5a8 3 0 0 0 16 0 8 3 0 0 0-16 0v14a8 3 0 0 0 16 0V5M4 12a8 3 0 0 0 16 0", clusters: "M7 4h10v6H7zM3 14h8v6H3zM13 14h8v6h-8z", connect: "M8 4v5M16 4v5M5 9h14v3a7 7 0 0 1-14 0zM12 19v3", menu: "M4 7h16M4 12h16M4 17h16", theme: "M20 14.500A8 8 0 1 1 9.5 4a6.5 6.5 0 0 0 10.5 10.500Z", out: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
};

/** Make a symbol, hidden from screen readers. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", fill: "none", stroke: "currentColor", "stroke-width": "1.8", "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" })) svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name] ?? "");
  svg.append(path);
  return svg;
}

/** Show a message for a while. */
export function toast(text, kind = "") {
  const toast = h("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(toast);
  setTimeout(() => toast.remove(), kind === "bad" ? 12000 : 5000);
}

export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);
export const notice = (text, kind = "") => h("p", { class: `notice ${kind}`, role: kind === "bad" ? "alert" : false }, text);
export const card = (title, ...children) => h("section", { class: "card" }, title ? h("div", { class: "card-head" }, h("h2", {}, title)) : null, children);
export const body = (...children) => h("div", { class: "body" }, children);

/** Make the head of a view. */
export function head(title, text = "", actions = [], crumbs = null) {
  return h("div", { class: "head" },
    h("div", { class: "titles" }, crumbs ? h("p", { class: "crumbs" }, crumbs) : null, h("h1", { tabindex: "-1" }, title), text ? h("p", {}, text) : null),
    actions.length ? h("div", { class: "actions" }, actions) : null);
}

/** Make a tile with a number. */
export function tile(label, value, note = "", link = null, small = false) {
  const parts = [h("div", { class: "label" }, label), h("div", { class: small ? "value small" : "value" }, value), note ? h("div", { class: "note" }, note) : null];
  return link ? h("a", { class: "tile", href: link }, parts) : h("div", { class: "tile" }, parts);
}

/** Have parts of a form fold away on narrow screens, behind a button that is returned; `isOpen` at first. */
export function folding(form, parts, isOpen = false) {
  const button = h("button", { type: "button", class: "fold", onclick: () => unfold(button.getAttribute("aria-expanded") !== "true") }, "Options");
  const unfold = (isUnfolded) => { form.classList.toggle("unfolded", isUnfolded); button.setAttribute("aria-expanded", String(isUnfolded)); };
  for (const part of parts) part.classList.add("folded");
  unfold(isOpen);
  return button;
}

let numbers = 0;

/** Make a field of a form with its label. */
export function field(label, input, hint = "") {
  const id = `field-${(numbers += 1)}`;
  input.id = id;
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), input, hint ? h("span", { class: "hint", id: `${id}-hint` }, hint) : null);
}

export const check = (label, attributes = {}) => h("label", { class: "inline" }, h("input", { type: "checkbox", ...attributes }), label);
export const select = (options, attributes = {}) => h("select", attributes, options.map(([value, text, chosen]) => h("option", { value, selected: Boolean(chosen) }, text ?? value)));

/** Go back by one entry of the history, and wait for it. */
const back = () => new Promise((done) => { window.addEventListener("popstate", done, { once: true }); history.back(); });

/**
 * Ask for something. `act` is called with the form when it is sent, and may throw: its error is shown and the dialog stays.
 * Returns true when it was done, false when the visitor has thought better of it.
 */
export function ask({ title, content, submit = "Save", cancel = "Cancel", danger = false, act, open = null }) {
  return new Promise((resolve) => {
    const id = `dialog-${(numbers += 1)}`;
    const problem = h("div", { "aria-live": "assertive" });
    const button = h("button", { type: "submit", class: danger ? "danger primary" : "primary" }, submit);
    const leave = cancel ? h("button", { type: "button", onclick: () => dialog.close() }, cancel) : null;
    let isDone = false;
    const form = h("form", { method: "dialog" }, h("h2", { id }, title), h("div", { class: "content" }, problem, content), h("div", { class: "foot" }, leave, button));
    const dialog = h("dialog", { "aria-labelledby": id }, form);
    form.addEventListener("input", () => fill(problem));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      fill(problem);
      try {
        if ((await act(form)) !== false) {
          isDone = true;
          dialog.close();
        }
      } catch (error) {
        fill(problem, notice(error.message, "bad"));
      }
      button.disabled = false;
    });
    const entry = `${id}-${Date.now()}`;
    const isLast = () => history.state?.dialog === entry;
    const onBack = () => { if (!isLast()) dialog.close(); };
    dialog.addEventListener("close", async () => {
      window.removeEventListener("popstate", onBack);
      if (isLast()) await back();
      dialog.remove();
      resolve(isDone);
    });
    document.body.append(dialog);
    history.pushState({ dialog: entry }, ""); // so that Back closes it, and leaves the view
    window.addEventListener("popstate", onBack);
    dialog.showModal();
    if (open) open(form, button);
  });
}

/** Ask for the name of what is about to be destroyed, and say what will happen. */
export function askName({ title, text, name, submit, act, more = null }) {
  const input = h("input", { name: "confirm", autocomplete: "off", spellcheck: "false", required: true });
  return ask({
    title, submit, danger: true,
    content: [notice(text, "warn"), more, field("Type the name to confirm", input, name)],
    act: (form) => act(form, input.value),
    open: (_, button) => {
      button.disabled = true;
      input.addEventListener("input", () => { button.disabled = input.value !== name; });
      input.focus();
    },
  });
}
