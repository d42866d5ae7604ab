// What a view shows, in its address: #/view?name=value, so that it can be reloaded, sent to others, and gone back to.

import { query } from "./api.js";

/** Return the values in the address. */
export const fromAddress = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

/** Write values into the address, without those that are usual; with `isStep`, Back returns to what was shown before. */
export function keepInAddress(values, usual = {}, isStep = false) {
  const changed = Object.fromEntries(Object.entries(values).filter(([name, value]) => String(value ?? "") !== String(usual[name] ?? "")));
  const address = `${location.hash.split("?")[0] || "#/"}${query(changed)}`;
  if (address === location.hash) return;
  if (isStep) history.pushState(null, "", address);
  else history.replaceState(history.state, "", address);
}
