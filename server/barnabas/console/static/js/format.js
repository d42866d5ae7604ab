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
  return `${unit ? size.toFixed(size < 10 ? 1 : 0) : size} ${UNITS[unit]}`;
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

export const plural = (count, singular, many = `${singular}s`) => `${number(count)} ${count === 1 ? singular : many}`;
