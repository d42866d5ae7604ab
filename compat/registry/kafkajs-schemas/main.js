// The cases with kafkajs and its client of registries.
"use strict";

const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { COMPATIBILITY, SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");
const { Kafka, logLevel } = require("kafkajs");
const { Cases, assert, until } = require(process.env.COMPAT_HARNESS);

const NAMES = ["avro", "json", "protobuf", "evolution", "refusal", "references", "administration", "interop"];
const COUNT = 20;
const text = (file) => readFileSync(join(__dirname, "..", "schemas", file), "utf-8");
const cases = new Cases(NAMES);
const registry = () => new SchemaRegistry({ host: cases.bootstrap });
const kafka = new Kafka({
  clientId: "schemas", brokers: [process.env.COMPAT_BOOTSTRAP || ""], logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, retries: 20 },
});
const users = (first = 0) => Array.from({ length: COUNT }, (_, index) => ({ name: `user ${first + index}`, age: first + index }));
const plain = (rows) => JSON.stringify(rows.map(({ name, age, email }) => ({ name, age, email })));
const same = (found, wanted, what) =>
  assert(plain([...found].sort((a, b) => a.age - b.age)) === plain(wanted), `${what}: ${plain(found).slice(0, 200)}`);

async function send(topic, buffers) {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: buffers.map((value) => ({ value })) });
  await producer.disconnect();
}

async function receive(topic, count, decode) {
  const consumer = kafka.consumer({ groupId: cases.topic(`of-${topic}`) });
  const found = [];
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => { found.push(await decode(message.value)); } });
  await until(() => found.length >= count, `${count} records of ${topic}`);
  await consumer.disconnect();
  return found;
}

async function exchange(name, type, schema) {
  const topic = cases.topic(name);
  const client = registry();
  const { id } = await client.register({ type, ...schema }, { subject: `${topic}-value` });
  await send(topic, await Promise.all(users().map((one) => client.encode(id, one))));
  const reader = registry();
  same(await receive(topic, COUNT, (data) => reader.decode(data)), users(), name);
  assert((await reader.getRegistryIdBySchema(`${topic}-value`, { type, ...schema })) === id, "looked up");
  return `${COUNT} records`;
}

cases.add("avro", () => exchange("avro", SchemaType.AVRO, { schema: text("user.avsc") }));
cases.add("json", () => exchange("json", SchemaType.JSON, { schema: text("user.json") }));
cases.add("protobuf", () => exchange("protobuf", SchemaType.PROTOBUF, { schema: text("user.proto") }));

cases.add("evolution", async () => {
  const topic = cases.topic("evolution");
  const subject = `${topic}-value`;
  const client = registry();
  const first = await client.register({ type: SchemaType.AVRO, schema: text("user.avsc") }, { subject });
  const second = await client.register({ type: SchemaType.AVRO, schema: text("user-wider.avsc") }, { subject });
  const values = users(COUNT).map((one) => ({ ...one, email: "a@b" }));
  await send(topic, await Promise.all([...users().map((one) => client.encode(first.id, one)), ...values.map((one) => client.encode(second.id, one))]));
  const options = { [SchemaType.AVRO]: { readerSchema: JSON.parse(text("user-wider.avsc")) } };
  const found = await receive(topic, 2 * COUNT, (data) => registry().decode(data, options));
  same(found, [...users().map((one) => ({ ...one, email: "none" })), ...values], "both as the second");
  return "two versions, both read as the second";
});

cases.add("refusal", async () => {
  for (const [type, end] of [[SchemaType.AVRO, "avsc"], [SchemaType.JSON, "json"], [SchemaType.PROTOBUF, "proto"]]) {
    const subject = `${cases.topic("refusal")}-${type}`;
    await registry().register({ type, schema: text(`user.${end}`) }, { subject });
    let refused = null;
    await registry().register({ type, schema: text(`user-breaking.${end}`) }, { subject }).catch((error) => { refused = error; });
    assert(refused && /incompatible/.test(refused.message), `${type}: ${refused}`);
  }
  return "its own error of an incompatible schema, in three formats";
});

cases.add("references", async () => {
  const subject = `${cases.topic("references")}-user`;
  const { id } = await registry().register({ type: SchemaType.AVRO, schema: text("user.avsc") }, { subject });
  assert(id > 0, "the schema that is referred to");
  const references = [{ name: "compat.User", subject, version: 1 }];
  const topic = cases.topic("references");
  const client = registry();
  const team = await client.register({ type: SchemaType.AVRO, schema: text("team.avsc"), references }, { subject: `${topic}-value` });
  await send(topic, await Promise.all(users().map((lead) => client.encode(team.id, { lead }))));
  const found = await receive(topic, COUNT, (data) => registry().decode(data));
  same(found.map((one) => one.lead), users(), "references");
  return "Avro, of another subject";
});

cases.add("administration", async () => {
  const subject = cases.topic("administration");
  const client = registry();
  const options = { subject, compatibility: COMPATIBILITY.NONE };
  const first = await client.register({ type: SchemaType.AVRO, schema: text("user.avsc") }, options);
  const second = await client.register({ type: SchemaType.AVRO, schema: text("user-breaking.avsc") }, options);
  assert((await client.getRegistryId(subject, 1)) === first.id, "the id of a version");
  assert((await client.getLatestSchemaId(subject)) === second.id, "the newest");
  let missing = null;
  await client.getLatestSchemaId(`${subject}-gone`).catch((error) => { missing = error; });
  assert(missing && missing.status === 404, `a subject that is not there: ${missing}`);
  return "a level, ids of versions; it has no deletion";
});

cases.add("interop", async () => {
  const wanted = (process.env.COMPAT_TOPICS || "").split(",").filter(Boolean).map((one) => one.split(":"));
  for (const [topic] of wanted) same(await receive(topic, COUNT, (data) => registry().decode(data)), users(), topic);
  return `${wanted.length} topics of others`;
});

cases.main();
