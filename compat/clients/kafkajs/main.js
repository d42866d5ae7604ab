// The cases with kafkajs.
"use strict";

const fs = require("fs");
const { CompressionTypes, CompressionCodecs, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");
const LZ4 = require("kafkajs-lz4");
const SnappyCodec = require("kafkajs-snappy");
const zstd = require("@bokuweb/zstd-wasm");
const {
  COUNT, PARTITIONS, TIME_ZERO_MS, Cases, Check, assert, interopTopics, outliveBroker, range, recordOf,
  shareTopicInGroup, until,
} = require(process.env.COMPAT_HARNESS);

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
CompressionCodecs[CompressionTypes.LZ4] = new (LZ4.default || LZ4)().codec;
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

const cases = new Cases();
const kafka = new Kafka({
  clientId: "compat", brokers: [cases.bootstrap || ""], logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, retries: 20 }, ...security(process.env),
});

/** TLS and the login that the environment names. */
function security(environment) {
  const protocol = environment.COMPAT_SECURITY_PROTOCOL || "";
  const options = {};
  if (protocol.endsWith("SSL")) {
    const read = (name) => (environment[name] ? fs.readFileSync(environment[name], "utf-8") : undefined);
    options.ssl = { ca: [read("COMPAT_SSL_CA")], cert: read("COMPAT_SSL_CERTIFICATE"), key: read("COMPAT_SSL_KEY") };
  }
  if (protocol.startsWith("SASL_")) {
    const { COMPAT_SASL_USER: username, COMPAT_SASL_PASSWORD: password, COMPAT_SASL_TOKEN: value } = environment;
    const mechanism = environment.COMPAT_SASL_MECHANISM.toLowerCase();
    options.sasl = value ? { mechanism, oauthBearerProvider: async () => ({ value }) } : { mechanism, username, password };
  }
  return options;
}

async function withAdmin(use) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

async function create(name) {
  const topic = cases.topic(name);
  await withAdmin((admin) => admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }], waitForLeaders: true }));
  return topic;
}

function messages(first, last) {
  return range(first, last).map(recordOf);
}

async function send(producer, topic, first, last, { acks = -1, compression = CompressionTypes.None } = {}) {
  for (let from = first; from < last; from += 1000) {
    await producer.send({ topic, acks, compression, messages: messages(from, Math.min(from + 1000, last)) });
  }
}

async function produce(topic, first, last, { options = {}, ...sending } = {}) {
  const producer = kafka.producer(options);
  await producer.connect();
  await send(producer, topic, first, last, sending);
  await producer.disconnect();
}

let groups = 0;

// A consumer of a group; everything it reads goes to `take`.
async function open(topic, groupId, take, options = {}, run = {}) {
  const consumer = kafka.consumer({
    groupId, heartbeatInterval: 300, sessionTimeout: 10000, rebalanceTimeout: 10000, maxWaitTimeInMs: 200, ...options,
  });
  let assigned = new Set();
  let read = 0;
  let problem = null;
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    assigned = new Set(payload.memberAssignment[topic] || []);
  });
  consumer.on(consumer.events.REBALANCING, () => {
    assigned = new Set();
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    ...run,
    eachMessage: async ({ partition, message }) => {
      try {
        take({ partition, ...message });
        read++;
      } catch (error) {
        problem = error;
      }
    },
  });
  return {
    consumer,
    assigned: () => {
      if (problem) throw problem;
      return assigned;
    },
    read: () => read,
    close: async () => {
      await consumer.disconnect();
      if (problem) throw problem;
    },
  };
}

async function read(topic, count, headers = true, options = {}) {
  const check = new Check(headers);
  const member = await open(topic, cases.topic(`reader-${groups++}`), (message) => check.add(message), options, { autoCommit: false });
  await until(() => member.assigned() && check.placed.size >= count, `${count} records of ${topic}`);
  await member.close();
  return check;
}

cases.add("create-topic", async () => {
  const topic = await create("create-topic");
  await withAdmin(async (admin) => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    assert(topics[0].partitions.length === PARTITIONS, JSON.stringify(topics));
    const again = await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }] });
    assert(again === false, "a topic was created twice");
  });
  return `${PARTITIONS} partitions`;
});

for (const [name, compression] of Object.entries({
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
})) {
  cases.add(`produce-${name}`, async () => {
    await zstd.init();
    const topic = await create(`produce-${name}`);
    await produce(topic, 0, COUNT, { compression });
    (await read(topic, COUNT)).finish(range(0, COUNT));
    return `${COUNT} records`;
  });
}

cases.add("consume-group", async () => {
  const [topic, group] = [await create("consume-group"), cases.topic("consume-group-group")];
  return shareTopicInGroup(
    (check) => open(topic, group, (message) => check.add(message)),
    (first, last) => produce(topic, first, last),
  );
});

cases.lacks["consume-group-848"] = "kafkajs knows the classic group protocol only";

// Reads until enough was seen, and commits what it was given: nothing more is taken once the goal is reached.
function readAndCommit(topic, groupId) {
  return async (check, goal) => {
    const next = new Map();
    let member;
    const take = (message) => {
      if (check.placed.size >= goal) {
        member?.consumer.pause([{ topic }]);
        return;
      }
      check.add(message);
      next.set(message.partition, Number(message.offset) + 1);
    };
    member = await open(topic, groupId, take, {}, { autoCommit: false });
    await until(() => member.assigned() && check.placed.size >= goal, `${goal} records`);
    await member.consumer.commitOffsets(
      [...next].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })),
    );
    await member.close();
  };
}

cases.add("commit-resume", async () => {
  const [topic, group] = [await create("commit-resume"), cases.topic("resume")];
  await produce(topic, 0, COUNT);
  const check = new Check();
  const again = readAndCommit(topic, group);
  await again(check, Math.floor(COUNT / 3));
  const before = check.placed.size;
  await again(check, COUNT);
  check.finish(range(0, COUNT));
  return `${before} records, commit, restart, ${COUNT - before} more`;
});

for (const [name, how] of [["broker-restart", "term"], ["broker-kill", "kill"]]) {
  cases.add(name, async () => {
    const [topic, group] = [await create(name), cases.topic(`${name}-group`)];
    const producer = kafka.producer({ maxInFlightRequests: 1 });
    await producer.connect();
    try {
      return await outliveBroker(
        how,
        (first, last) => send(producer, topic, first, last),
        (check) => open(topic, `${group}-stays`, (message) => check.add(message)),
        readAndCommit(topic, group),
      );
    } finally {
      await producer.disconnect();
    }
  });
}

cases.add("read-by-timestamp", async () => {
  const topic = await create("read-by-timestamp");
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({
    topic,
    messages: range(0, 1000).map((number) => ({ ...recordOf(number), timestamp: String(TIME_ZERO_MS + number * 1000) })),
  });
  await producer.disconnect();
  const starts = await withAdmin((admin) => admin.fetchTopicOffsetsByTimestamp(topic, TIME_ZERO_MS + 500 * 1000 - 1));
  const check = new Check();
  const take = (message) => {
    if (Number(message.offset) < Number(starts.find((start) => start.partition === message.partition).offset)) return;
    const number = check.add(message);
    assert(Number(message.timestamp) === TIME_ZERO_MS + number * 1000, message.timestamp);
  };
  const member = await open(topic, cases.topic("by-time"), take, {}, { autoCommit: false });
  for (const { partition, offset } of starts) member.consumer.seek({ topic, partition, offset });
  await until(() => member.assigned() && check.placed.size >= 500, "the younger half");
  await member.close();
  check.finish(range(500, 1000), { repeats: true });
  return "offsets of the 501st record on, read from there";
});

cases.add("acks", async () => {
  for (const acks of [0, 1, -1]) {
    const topic = await create(`acks-${acks < 0 ? "all" : acks}`);
    await produce(topic, 0, 500, { acks });
    (await read(topic, 500)).finish(range(0, 500));
  }
  return "500 records with each of 0, 1, all";
});

cases.add("idempotent-produce", async () => {
  const topic = await create("idempotent");
  await produce(topic, 0, COUNT, { options: { idempotent: true, maxInFlightRequests: 1 } });
  (await read(topic, COUNT)).finish(range(0, COUNT));
  return `${COUNT} records`;
});

cases.add("transactions", async () => {
  const topic = await create("transactions");
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId: cases.topic("txn") });
  await producer.connect();
  for (const [part, commit] of [true, false, true].entries()) {
    const transaction = await producer.transaction();
    await send(transaction, topic, part * 500, part * 500 + 500);
    if (commit) {
      await transaction.sendOffsets({
        consumerGroupId: cases.topic("txn-group"),
        topics: [{ topic, partitions: [{ partition: 0, offset: String(part + 1) }] }],
      });
      await transaction.commit();
    } else {
      await transaction.abort();
    }
  }
  await producer.disconnect();
  const [{ partitions }] = await withAdmin((admin) =>
    admin.fetchOffsets({ groupId: cases.topic("txn-group"), topics: [topic] }));
  assert(partitions.find((one) => one.partition === 0).offset === "3", JSON.stringify(partitions));
  (await read(topic, 1000)).finish([...range(0, 500), ...range(1000, 1500)]);
  (await read(topic, 1500, true, { readUncommitted: true })).finish(range(0, 1500));
  return "two committed with offsets, one aborted, of 500 records each";
});

cases.add("admin", async () => {
  const [topic, group] = [await create("admin"), cases.topic("admin-group")];
  await produce(topic, 0, 300);
  await readAndCommit(topic, group)(new Check(), 300);
  await withAdmin(async (admin) => {
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
    const retention = async () => {
      const { resources } = await admin.describeConfigs({ resources: [resource], includeSynonyms: false });
      return resources[0].configEntries.find((entry) => entry.configName === "retention.ms").configValue;
    };
    assert((await retention()) === "604800000", await retention());
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "12345678" }] }] });
    await until(async () => (await retention()) === "12345678", "a changed topic config", 10);
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: [] }] });
    await until(async () => (await retention()) === "604800000", "the config that was set back", 10);
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
    await until(async () => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
      return topics[0].partitions.length === 5;
    }, "five partitions", 10);
    const ends = await admin.fetchTopicOffsets(topic);
    const offset = String(Number(ends.find((end) => end.partition === 1).high) - 2);
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset }] });
    const starts = await admin.fetchTopicOffsets(topic);
    assert(starts.find((start) => start.partition === 1).low === offset, JSON.stringify(starts));
    const listed = async () => (await admin.listGroups()).groups.some(({ groupId }) => groupId === group);
    assert(await listed(), `${group} is not listed`);
    const described = await admin.describeGroups([group]);
    assert(described.groups[0].state === "Empty", JSON.stringify(described));
    await admin.deleteGroups([group]);
    assert(!(await listed()), `${group} is still listed`);
    const cluster = await admin.describeCluster();
    assert(cluster.brokers.length >= 1 && cluster.clusterId, JSON.stringify(cluster));
  });
  return "configs, partitions, records, groups, cluster";
});

cases.add("interop", async () => {
  await zstd.init();
  const topics = interopTopics();
  for (const { topic, count, headers } of topics) (await read(topic, count, headers)).finish(range(0, count));
  return `${topics.length} topics of other clients`;
});

cases.add("delete-topic", async () => {
  const topic = await create("delete-topic");
  await produce(topic, 0, 100);
  await withAdmin(async (admin) => {
    await admin.deleteTopics({ topics: [topic] });
    await until(async () => !(await admin.listTopics()).includes(topic), "the topic is gone", 20);
  });
  return "gone";
});

cases.main();
