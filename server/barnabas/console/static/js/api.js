// Requests to the console's server.

let csrf = "";
let onState = () => {};
let onLogin = () => {};

export class ApiError extends Error {
  constructor(status, text, code = "") {
    super(text);
    this.status = status;
    this.code = code;
  }
}

const SLOW_MS = 15000;
/** Where the page of this cluster stands: an empty path for a lone one. */
const base = location.pathname.replace(/\/[^/]*$/, "");
export const urlOf = (path) => `${base}${path}`;
export const pageOf = (cluster) => `${base.replace(/\/clusters\/[^/]+$/, "")}/clusters/${encodeURIComponent(cluster)}/`;
/** A response that comes from the console's memory, or from another server, says nothing about the cluster. */
const BESIDE_THE_CLUSTER = /^\/api\/(session|history|metrics\/history|connect|subjects)\b/;
const isOfTheCluster = (path) => !BESIDE_THE_CLUSTER.test(path);

/** Set the callbacks for the state of the cluster and for a login that is needed. */
export function listen(state, login) {
  onState = state;
  onLogin = login;
}

export function keep(session) {
  csrf = session.csrf;
  return session;
}

export async function request(method, path, payload = undefined, signal = undefined) {
  const headers = method === "GET" ? {} : { "X-Console-CSRF": csrf };
  if (payload !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  const timer = isOfTheCluster(path) ? setTimeout(() => onState(false, `no answer for ${SLOW_MS / 1000} s`), SLOW_MS) : 0;
  signal?.addEventListener("abort", () => clearTimeout(timer));
  try {
    answer = await fetch(urlOf(path), { method, headers, signal, credentials: "same-origin", body: payload === undefined ? undefined : JSON.stringify(payload) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    onState(false, "the console does not answer");
    throw new ApiError(0, "The console does not answer. The page retries until it does.");
  } finally {
    clearTimeout(timer);
  }
  if (answer.status === 204) {
    if (isOfTheCluster(path)) onState(true);
    return null;
  }
  let value = { error: `answer ${answer.status} without JSON` };
  let isWhole = false;
  try {
    value = await answer.json();
    isWhole = true;
  } catch (error) {
    if (error.name === "AbortError") throw error; // the view was left while its answer came
  }
  const isDown = answer.status === 503;
  if (isOfTheCluster(path) || (isDown && path === "/api/session")) onState(!isDown, value?.error ?? "");
  if (answer.ok && isWhole) return value;
  if (answer.status === 401 && path !== "/api/session") onLogin();
  throw new ApiError(answer.status, value.error ?? `status ${answer.status}`, value.code ?? "");
}

export const query = (values) => {
  const text = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false)).toString();
  return text ? `?${text}` : "";
};
export const get = (path, values = {}, signal = undefined) => request("GET", `${path}${query(values)}`, undefined, signal);
export const post = (path, payload = {}) => request("POST", path, payload);
export const part = (text) => encodeURIComponent(text);

/** Return why the events of a path are refused. */
async function refusal(path) {
  const ending = new AbortController();
  try {
    const answer = await fetch(urlOf(path), { signal: ending.signal, credentials: "same-origin" });
    return answer.ok ? "" : ((await answer.json()).error ?? `status ${answer.status}`);
  } catch {
    return "The console does not answer.";
  } finally {
    ending.abort();
  }
}

/** Follow events of a path until `signal` says enough; `handlers` by event, `failed` and `lost` among them. */
export function follow(path, values, handlers, signal) {
  const source = new EventSource(`${urlOf(path)}${query(values)}`);
  for (const [name, handler] of Object.entries(handlers)) {
    if (name !== "lost") source.addEventListener(name, (event) => handler(JSON.parse(event.data), source));
  }
  source.addEventListener("failed", () => source.close());
  source.addEventListener("error", async () => {
    if (source.readyState !== EventSource.CLOSED) { handlers.lost?.(source); return; }
    const error = await refusal(`${path}${query(values)}`); // a browser does not tell a page the status of events
    if (error && !signal.aborted) handlers.failed?.({ error });
  });
  signal.addEventListener("abort", () => source.close());
  return source;
}
