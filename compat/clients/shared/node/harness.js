// The records, their checks and the case runner for the Node.js clients. Needs nothing but Node.js.
"use strict";

const { execFile } = require("node:child_process");

const NAMES = [
  "create-topic", "produce-none", "produce-gzip", "produce-snappy", "produce-lz4", "produce-zstd", "consume-group",
  "consume-group-848", "commit-resume", "broker-restart", "broker-kill", "read-by-timestamp", "acks",
  "idempotent-produce", "transactions", "admin", "interop", "delete-topic",
];
const COUNT = Number(process.env.COMPAT_RECORDS || 10000);
const CASE_TIMEOUT_S = Number(process.env.COMPAT_CASE_TIMEOUT_S || 90);
const PARTITIONS = 3;
const KEYS = 997;
const TIME_ZERO_MS = 1_700_000_000_000;
const TEXT = Buffer.from("žluťoučký kůň");

class SkipError extends Error {}

// Message formats before 0.11 have no headers.
const HEADERS = process.env.COMPAT_HEADERS !== "no";
const CRC_TABLE = Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value >>> 0;
});

function crc32(text) {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text)) crc = CRC_TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return ((crc ^ 0xffffffff) >>> 0).toString(16).padStart(8, "0");
}

function assert(holds, message) {
  if (!holds) throw new Error(message);
}

function skip(reason) {
  throw new SkipError(reason);
}

// The record that has this number, in every topic and every language.
function recordOf(number) {
  const key = `key-${number % KEYS}`;
  const head = `${number}:${key}`;
  const n = Buffer.alloc(4);
  n.writeUInt32BE(number);
  const headers = HEADERS ? { n, text: TEXT } : {};
  return { key, value: `${head}:${crc32(head)}:${"x".repeat(number % 64)}`, headers };
}

function range(first, last) {
  return Array.from({ length: last - first }, (_, index) => first + index);
}

// Takes what was read as it comes; `finish` says whether it is what was written.
class Check {
  constructor(headers = true) {
    this.headers = headers;
    this.placed = new Map();
    this.numbers = new Set();
    this.repeated = 0;
    this.last = new Map();
  }

  add({ partition, offset, key, value, headers }) {
    const where = `partition ${partition} offset ${offset}`;
    const number = parseInt(value.toString(), 10);
    const wanted = recordOf(number);
    assert(key.toString() === wanted.key, `${where}: key ${key} instead of ${wanted.key}`);
    assert(value.toString() === wanted.value, `${where}: value ${value} instead of ${wanted.value}`);
    if (this.headers) {
      const names = Object.keys(wanted.headers);
      const same = Object.keys(headers || {}).join() === names.join() &&
        names.every((name) => wanted.headers[name].equals(headers[name]));
      assert(same, `${where}: headers ${JSON.stringify(headers)}`);
    }
    const known = this.placed.get(where);
    assert(known === undefined || known.number === number, `${where}: record ${number}, but earlier ${known?.number}`);
    this.placed.set(where, { partition, offset: Number(offset), number });
    if (this.last.has(partition) && Number(offset) <= this.last.get(partition)) this.repeated++;
    this.last.set(partition, Number(offset));
    this.numbers.add(number);
    return number;
  }

  has(first, last) {
    return range(first, last).every((number) => this.numbers.has(number));
  }

  finish(wanted, { repeats = false } = {}) {
    const missing = wanted.filter((number) => !this.numbers.has(number));
    assert(!missing.length, `${missing.length} of ${wanted.length} records are missing, the first are ${missing.slice(0, 5)}`);
    assert(this.numbers.size === wanted.length, `${this.numbers.size - wanted.length} records should not be there`);
    assert(this.placed.size === this.numbers.size, `${this.placed.size - this.numbers.size} records were written twice`);
    assert(repeats || !this.repeated, `${this.repeated} records were delivered again or out of order`);
    const last = new Map();
    const homes = new Map();
    const places = [...this.placed.values()].sort((a, b) => a.partition - b.partition || a.offset - b.offset);
    for (const { partition, offset, number } of places) {
      const before = last.get(partition) ?? -1;
      assert(number > before, `partition ${partition} offset ${offset}: ${number} comes after ${before}`);
      last.set(partition, number);
      const home = homes.get(number % KEYS) ?? partition;
      assert(home === partition, `key-${number % KEYS} is in partitions ${home} and ${partition}`);
      homes.set(number % KEYS, home);
    }
  }
}

const pause = (milliseconds = 20) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function until(condition, what, seconds = 40, step = pause) {
  const deadline = Date.now() + seconds * 1000;
  while (!(await condition())) {
    assert(Date.now() < deadline, `not in ${seconds} s: ${what}`);
    await step();
  }
}

// One member, then two, then one; each time something to read. `open(check)` gives {assigned(), read(), close()}.
async function shareTopicInGroup(open, produce) {
  const check = new Check();
  await produce(0, 1000);
  const first = await open(check);
  await until(() => check.has(0, 1000) && first.assigned().size === PARTITIONS, "the first member reads all");
  const second = await open(check);
  const shared = () => {
    const [mine, other] = [first.assigned(), second.assigned()];
    return mine.size && other.size && mine.size + other.size === PARTITIONS && ![...mine].some((one) => other.has(one));
  };
  await until(shared, "two members share the partitions");
  await produce(1000, 2000);
  await until(() => check.has(0, 2000), "two members read all");
  const bySecond = second.read();
  assert(bySecond, "the second member has read nothing");
  await second.close();
  await until(() => first.assigned().size === PARTITIONS, "the first member has all partitions again");
  await produce(2000, 3000);
  await until(() => check.has(0, 3000), "the remaining member reads all");
  await first.close();
  check.finish(range(0, 3000), { repeats: true });
  return `3000 records, ${bySecond} by the second member, ${check.repeated} again after a rebalance`;
}

function restartBroker(how) {
  const command = process.env.COMPAT_RESTART;
  if (!command) skip("no command that restarts the broker was given in COMPAT_RESTART");
  return new Promise((resolve, reject) => {
    execFile("sh", ["-c", `${command} ${how}`], (error, out, err) =>
      error ? reject(new Error(`${command} ${how}: ${out}${err}`)) : resolve());
  });
}

// The cases broker-restart and broker-kill: see the README of the clients.
async function outliveBroker(how, send, open, readAndCommit) {
  const half = Math.floor(COUNT / 2);
  const [check, followed] = [new Check(), new Check()];
  await send(0, half);
  const follower = await open(followed);
  const reach = (goal) => until(() => followed.has(0, goal), `the member that stays reads ${goal} records`);
  await reach(half);
  await readAndCommit(check, Math.floor(COUNT / 3));
  const before = check.placed.size;
  await restartBroker(how);
  await send(half, COUNT);
  await readAndCommit(check, COUNT);
  check.finish(range(0, COUNT));
  await reach(COUNT);
  await follower.close();
  followed.finish(range(0, COUNT), { repeats: true });
  return `${before} records, commit, broker's restart, ${COUNT - before} more by a new member`;
}

function interopTopics() {
  const text = process.env.COMPAT_TOPICS;
  if (!text) skip("no topics of other clients were named in COMPAT_TOPICS");
  return text.split(",").map((item) => {
    const [topic, count, kind] = item.split(":");
    return { topic, count: Number(count), headers: kind === "headers" };
  });
}

// The cases of one client: async functions by name that return the detail to print, and reasons for those it lacks.
class Cases {
  constructor(names = NAMES) {
    this.names = names;
    this.functions = {};
    this.lacks = {};
    this.client = process.env.COMPAT_CLIENT || "client";
    this.suffix = String(Math.floor(Math.random() * 1e9)).padStart(9, "0");
    [this.bootstrap, ...this.wanted] = process.argv.slice(2);
  }

  topic(name) {
    return `compat-${this.client}-${name}-${this.suffix}`;
  }

  add(name, body) {
    this.functions[name] = body;
  }

  async main() {
    if (!this.bootstrap) {
      console.error(`usage: ${process.argv[1]} HOST:PORT [CASE...]`);
      process.exit(1);
    }
    const unknown = this.wanted.filter((name) => !this.names.includes(name));
    if (unknown.length) {
      console.error(`no such case: ${unknown}; there are ${this.names.join(", ")}`);
      process.exit(1);
    }
    let failed = false;
    for (const name of this.names) {
      if (!this.wanted.length || this.wanted.includes(name)) failed = (await this.run(name)) === "FAIL" || failed;
    }
    process.exit(failed ? 1 : 0);
  }

  async run(name) {
    const start = Date.now();
    let verdict;
    let detail;
    const late = new Promise((_, reject) => {
      setTimeout(() => reject(new Error(`no end in ${CASE_TIMEOUT_S} s`)), CASE_TIMEOUT_S * 1000).unref();
    });
    try {
      if (this.lacks[name]) skip(this.lacks[name]);
      assert(this.functions[name], "the case is neither there nor lacking");
      detail = await Promise.race([this.functions[name](), late]);
      verdict = "PASS";
    } catch (error) {
      verdict = error instanceof SkipError ? "SKIP" : "FAIL";
      if (verdict === "FAIL") console.error(error);
      detail = error.message;
    }
    const took = verdict === "SKIP" ? "" : ` (${((Date.now() - start) / 1000).toFixed(1)} s)`;
    console.log(verdict, name, detail.split(/\s+/).join(" ") + took);
    return verdict;
  }
}

module.exports = {
  COUNT, PARTITIONS, TIME_ZERO_MS, Cases, Check, assert, interopTopics, outliveBroker, pause, range, recordOf,
  shareTopicInGroup, until,
};
