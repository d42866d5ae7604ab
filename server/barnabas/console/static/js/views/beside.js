// A record beside the previous one of its key, which is looked for backwards in its partition.

import { follow } from "../api.js";
import { fill, h, notice } from "../dom.js";
import { number, plural, time, zone } from "../format.js";
import { differing, summary } from "./difference.js";
import { whole } from "./payload.js";

/** Look for the previous record of a key, and show both in a place; `values` say how records are read. */
export function besidePrevious(place, path, record, values, signal) {
  place.dispatchEvent(new Event("halt"));
  const running = new AbortController();
  const { signal: mine } = running;
  signal.addEventListener("abort", () => running.abort(), { signal: mine });
  place.addEventListener("halt", () => running.abort(), { signal: mine });
  const progress = h("progress", { max: 1, value: 0, "aria-label": "Progress of the search for the previous record" });
  const status = h("p", { class: "soft", "aria-live": "polite" }, "Looking for the previous record of this key …");
  const stop = h("button", { type: "button", class: "small", onclick: () => halt("Stopped.") }, "Stop looking");
  const result = h("div", {});
  fill(place, h("h3", { tabindex: "-1" }, "Beside the previous of its key"), progress, status, stop, result);

  function halt(message) {
    running.abort();
    progress.remove();
    stop.remove();
    status.textContent = message;
  }
  function none(event) {
    const looked = `${plural(event.scanned, "record")} before offset ${number(values.before || record.offset)} ${event.scanned === 1 ? "was" : "were"} looked at`;
    if (!event.cut) return `Partition ${record.partition} has no earlier record of this key: ${looked}, back to the first. One may have been compacted away, or deleted.`;
    const further = () => besidePrevious(place, path, record, { ...values, before: event.back_to }, signal);
    fill(result, h("button", { type: "button", class: "small", onclick: further }, "Look further back"));
    return `${looked}, back to offset ${number(event.back_to)}, and none has this key. There may be an earlier one.`;
  }
  follow(`${path}/records/${record.partition}/${record.offset}/previous`, values, {
    progress: (event) => {
      if (!place.isConnected) { running.abort(); return; }
      progress.max = Math.max(event.total, 1);
      progress.value = event.covered;
      status.textContent = `Looking: ${plural(event.scanned, "record")}, ${number(event.covered)} of ${number(event.total)} offsets`;
    },
    found: (event) => { halt(`Found at offset ${number(event.previous.offset)}: ${summary(event.difference)}.`); fill(result, both(event)); },
    done: (event) => { if (!event.found) halt(none(event)); else running.abort(); },
    failed: (event) => { halt(""); fill(result, notice(event.error, "bad")); },
    lost: () => { if (!mine.aborted) halt("The search was broken off."); },
  }, mine);
}

function both({ record, previous, difference }) {
  const side = (label, record) => h("section", { class: "side", "aria-label": label }, h("h4", {}, label), h("p", { class: "soft" }, `Offset ${record.offset}, ${time(record.timestamp)} ${zone()}`), whole(record.value));
  return [h("div", { class: "sides" }, side("Previous value", previous), side("This value", record)), h("h4", {}, "What differs"), differing(difference, "What differs between the two values", "Previous", "This")];
}
