/** One broker: `barnabas test-server`, steered over its control API. */
export interface Broker {
  /** host:port for a client's brokers. */
  readonly bootstrap: string;
  readonly controlUrl: string;
  /** Sends a request to the control API, as control('POST', '/v1/faults', {...}), and returns its answer. */
  control<Answer = any>(method: string, path: string, body?: unknown): Promise<Answer>;
  /** Waits until a topic holds at least so many records. */
  waitForRecords(topic: string, count: number, timeoutMs?: number): Promise<unknown>;
  /** Waits until a group is stable. */
  waitForGroup(group: string, timeoutMs?: number): Promise<unknown>;
  /** Keeps what the broker holds now under a name. */
  snapshot(name: string): Promise<unknown>;
  /** Goes back to a snapshot. Connections are cut, the address stays. */
  restore(name: string): Promise<unknown>;
  /** Goes back to what the broker was started with. */
  reset(): Promise<unknown>;
  /** Ends the broker. It ends with this process at the latest. */
  stop(): Promise<void>;
}

/** Starts a broker with the arguments of `barnabas test-server`; resolves when it answers. */
export function startBroker(...options: string[]): Promise<Broker>;
