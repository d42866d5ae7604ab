/** One broker, or with --brokers a cluster: `barnabas test-server`, steered over its control API. */
export interface Broker {
  /** host:port for a client's brokers; of a cluster with commas between. */
  readonly bootstrap: string;
  readonly controlUrl: string;
  /** With --security what clients are given, files as PEM. */
  readonly security: {
    protocol: string; mechanism: string | null; passwords: Record<string, string>; ca: string | null;
    certificates: Record<string, string>;
  } | undefined;
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
  /** The nodes of a cluster that was started with --brokers, and its active controller. */
  cluster(): Promise<Cluster>;
  /** Ends a node as kill -9 does; it stays down. */
  killNode(node: number): Promise<Cluster>;
  /** Stops a node cleanly, which moves what it leads to others first; it stays down. */
  stopNode(node: number): Promise<Cluster>;
  /** Starts a node that is down, at its old address; resolves when it serves. */
  startNode(node: number): Promise<Cluster>;
  /** Cuts a node off from all others: nothing arrives in either direction; if so asked, from clients too. */
  isolateNode(node: number, options?: { clients?: boolean }): Promise<Cluster>;
  /** Lets a node that was cut off reach the others again. */
  rejoinNode(node: number): Promise<Cluster>;
  /** Makes a topic in a cluster; resolves when all brokers know its leaders. */
  createTopic(topic: string, partitions?: number): Promise<unknown>;
  /** The leader of each partition of a topic, -1 for none. */
  leaders(topic: string): Promise<Record<string, number>>;
  /** Has a replica lead a partition, by Kafka's own requests; resolves when all brokers know it. */
  moveLeader(topic: string, partition: number, leader: number): Promise<unknown>;
  /** Ends the broker. It ends with this process at the latest. */
  stop(): Promise<void>;
}

/** A cluster as it is now; `controller` is the active one, null for none. */
export type Cluster = { bootstrap: string; controller: number | null; nodes: ClusterNode[] };

export type ClusterNode = { id: number; roles: string[]; bootstrap: string; control_url: string; running: boolean; isolated: boolean };

/** Starts a broker with the arguments of `barnabas test-server`; resolves when it answers. */
export function startBroker(...options: string[]): Promise<Broker>;
