// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const none = "–";
export const number = (value) => (value === null || value === undefined ? none : whole.format(value));

export function short(value) {
  if (value === null || value === undefined) return none;
  return Math.abs(value) < 10000 ? whole.format(Math.round(value * 10) / 10) : new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
}

export function bytes(value) {
  if (value === null || value === undefined || value < 0) return none;
  let unit = 0;
  let size = value;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  return `${unit ? size.toFixed(size < 10 ? 1 : 0) : Math.round(size)} ${UNITS[unit]}`;
}

export function rate(value) {
  return value === null || value === undefined ? none : `${short(value)}/s`;
}

const two = (value, digits = 2) => String(value).padStart(digits, "0");

export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return none;
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
}

/** Name the time zone that times are shown in, as UTC+1. */
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const rest = Math.abs(minutes) % 60;
  return minutes ? `UTC${minutes < 0 ? "−" : "+"}${Math.floor(Math.abs(minutes) / 60)}${rest ? `:${two(rest)}` : ""}` : "UTC";
}

export function duration(ms) {
  if (ms === null || ms === undefined || ms < 0) return none;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** Name a release as it was guessed: Kafka 4.2 to 4.3. */
export const releaseOf = (text) => text.replace(/, which.*/, "").replace(/^nearest to Apache /, "");

export const plural = (count, singular, many = `${singular}s`) => `${number(count)} ${count === 1 ? singular : many}`;

// --- settings, by the units that their names say ---------------------------------------------------------------

const TIMES = { ms: 1, seconds: 1000, secs: 1000, minutes: 60000, hours: 3600000 };
const SPANS = [["day", 86400000], ["hour", 3600000], ["minute", 60000], ["second", 1000]];
const SPELLINGS = { ms: 1, s: 1000, sec: 1000, second: 1000, min: 60000, minute: 60000, h: 3600000, hour: 3600000, d: 86400000, day: 86400000 };
const SIZES = { b: 1, kb: 1024, kib: 1024, mb: 1024 ** 2, mib: 1024 ** 2, gb: 1024 ** 3, gib: 1024 ** 3, tb: 1024 ** 4, tib: 1024 ** 4 };
const LONG_MAX = "9223372036854775807";
const unitOf = (name) => TIMES[/\.(ms|seconds|secs|minutes|hours)$/.exec(name)?.[1]] ?? 0;
const isSize = (name) => /(\.|^)bytes$|\.buffer\.size$/.test(name);

/** Return what the value of a setting means to a person; empty where it says so itself. */
export function meaning(name, value) {
  const unit = unitOf(name);
  if (!/^-?\d+$/.test(value ?? "") || (!unit && !isSize(name))) return "";
  if (value === LONG_MAX || (value === "-1" && /retention/.test(name))) return "no limit";
  const amount = Number(value) * (unit || 1);
  if (!unit) return amount < 1024 ? "" : sizeText(amount);
  if (amount < 1000) return "";
  let rest = amount;
  const parts = [];
  for (const [label, length] of SPANS) {
    const count = Math.floor(rest / length);
    if (count && parts.length < 2) { parts.push(plural(count, label)); rest -= count * length; }
  }
  return `${rest ? "about " : ""}${parts.join(" ")}`;
}

function sizeText(amount) {
  let unit = 0;
  let size = amount;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  const rounded = Math.round(size * 10) / 10;
  return `${rounded === size ? "" : "about "}${rounded} ${UNITS[unit]}`;
}

/** Return the value of a setting that is typed as people say it, such as 7 days or 1 GiB; others as they are. */
export function settingValue(name, text) {
  const match = /^(\d+(?:\.\d+)?)\s*([a-z]+)$/i.exec(text.trim());
  if (!match) return text;
  const word = match[2].toLowerCase();
  const unit = unitOf(name);
  const factor = unit ? (SPELLINGS[word] ?? SPELLINGS[word.replace(/s$/, "")] ?? 0) / unit : isSize(name) ? SIZES[word] ?? 0 : 0;
  const value = Number(match[1]) * factor;
  return value && Number.isSafeInteger(value) ? String(value) : text;
}
