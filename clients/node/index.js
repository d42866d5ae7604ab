// A Kafka broker for tests: `barnabas test-server`, steered over its control API.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const WAY_OUT = 'install it with `pip install barnabas`, or name the command in BARNABAS_COMMAND, as `uvx barnabas`';

export class Broker {
  #process;

  constructor(process, { bootstrap_servers, control_url, security }) {
    this.#process = process;
    /** host:port for a client's brokers; of a cluster with commas between. */
    this.bootstrap = bootstrap_servers;
    this.controlUrl = control_url;
    /** With --security: protocol, mechanism, passwords by user, ca, certificates by user (paths of PEM files). */
    this.security = security;
  }

  /** Sends a request to the control API, as control('POST', '/v1/faults', {...}), and returns its answer. */
  async control(method, path, body) {
    const response = await fetch(this.controlUrl + path, {
      method,
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${text.trim()}`);
    return text ? JSON.parse(text) : undefined;
  }

  /** Waits until a topic holds at least so many records. */
  waitForRecords(topic, count, timeoutMs = 10_000) {
    return this.control('GET', `/v1/wait/records?${new URLSearchParams({ topic, count, timeout_ms: timeoutMs })}`);
  }

  /** Waits until a group is stable. */
  waitForGroup(group, timeoutMs = 10_000) {
    return this.control('GET', `/v1/wait/group?${new URLSearchParams({ group, timeout_ms: timeoutMs })}`);
  }

  /** Keeps what the broker holds now under a name. */
  snapshot(name) {
    return this.control('POST', '/v1/snapshots', { name });
  }

  /** Goes back to a snapshot. Connections are cut, the address stays. */
  restore(name) {
    return this.control('POST', `/v1/snapshots/${encodeURIComponent(name)}/restore`);
  }

  /** Goes back to what the broker was started with. */
  reset() {
    return this.control('POST', '/v1/reset');
  }

  /** The nodes of a cluster that was started with --brokers, and its active controller. */
  cluster() {
    return this.control('GET', '/v1/cluster');
  }

  /** Ends a node as kill -9 does; it stays down. */
  killNode(node) {
    return this.control('POST', `/v1/cluster/nodes/${node}/kill`);
  }

  /** Stops a node cleanly, which moves what it leads to others first; it stays down. */
  stopNode(node) {
    return this.control('POST', `/v1/cluster/nodes/${node}/stop`);
  }

  /** Starts a node that is down, at its old address; resolves when it serves. */
  startNode(node) {
    return this.control('POST', `/v1/cluster/nodes/${node}/start`);
  }

  /** Cuts a node off from all others: nothing arrives in either direction; if so asked, from clients too. */
  isolateNode(node, { clients = false } = {}) {
    return this.control('POST', `/v1/cluster/nodes/${node}/isolate`, { clients });
  }

  /** Lets a node that was cut off reach the others again. */
  rejoinNode(node) {
    return this.control('POST', `/v1/cluster/nodes/${node}/rejoin`);
  }

  /** Makes a topic in a cluster; resolves when all brokers know its leaders. */
  createTopic(topic, partitions = 1) {
    return this.control('POST', `/v1/cluster/topics/${encodeURIComponent(topic)}`, { partitions });
  }

  /** The leader of each partition of a topic, -1 for none. */
  async leaders(topic) {
    return (await this.control('GET', `/v1/cluster/leaders/${encodeURIComponent(topic)}`)).leaders;
  }

  /** Has a replica lead a partition, by Kafka's own requests; resolves when all brokers know it. */
  moveLeader(topic, partition, leader) {
    return this.control('PUT', `/v1/cluster/leaders/${encodeURIComponent(topic)}/${partition}`, { leader });
  }

  /** Ends the broker. It ends with this process at the latest. */
  async stop() {
    const ended = new Promise((resolve) => this.#process.once('exit', resolve));
    this.#process.stdin.end();
    await ended;
  }
}

/** Starts a broker with the arguments of `barnabas test-server`; resolves when it answers. */
export async function startBroker(...options) {
  const [command, ...words] = (process.env.BARNABAS_COMMAND ?? 'barnabas').trim().split(/\s+/);
  const child = spawn(command, [...words, 'test-server', ...options], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface(child.stdout);
  const line = await new Promise((resolve, reject) => {
    child.once('error', (error) =>
      reject(new Error(`cannot start the broker: ${error.message}; ${WAY_OUT}`, { cause: error })));
    lines.once('line', resolve);
    lines.once('close', () => reject(new Error('the broker did not start; standard error says why')));
  });
  return new Broker(child, JSON.parse(line));
}
