import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, beforeEach, test } from 'node:test';

import kafkajs from 'kafkajs';

import { startBroker } from './index.js';

const { Kafka, logLevel } = kafkajs;
let broker;

before(async () => {
  broker = await startBroker('--topic', 'orders:2');
});
beforeEach(() => broker.reset());
after(() => broker.stop());

const values = async () => (await broker.control('GET', '/v1/topics/orders/records')).records.map((one) => one.value);

test('a producer and a consumer', { timeout: 60_000 }, async () => {
  const kafka = new Kafka({ brokers: [broker.bootstrap], logLevel: logLevel.NOTHING });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: 'orders', messages: [{ key: 'k', value: 'first' }] });
  await producer.disconnect();
  await broker.waitForRecords('orders', 1);
  const consumer = kafka.consumer({ groupId: 'g' });
  await consumer.connect();
  await consumer.subscribe({ topic: 'orders', fromBeginning: true });
  const value = await new Promise((resolve) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) });
  });
  assert.equal(value, 'first');
  await broker.waitForGroup('g');
  await consumer.disconnect();
});

test('the next test begins with what the broker was started with', async () => {
  assert.deepEqual(await values(), []);
  assert.deepEqual((await broker.control('GET', '/v1/groups')).groups, []);
});

test('a snapshot is restored', async () => {
  await broker.control('POST', '/v1/topics/orders/records', { records: ['kept'] });
  await broker.snapshot('one');
  await broker.control('POST', '/v1/topics/orders/records', { records: ['dropped'] });
  await broker.restore('one');
  assert.deepEqual(await values(), ['kept']);
  await broker.control('DELETE', '/v1/snapshots/one');
});

test('what is refused says why', async () => {
  await assert.rejects(broker.restore('none'), /there is no snapshot none/);
});

test('a cluster serves with a node down', { timeout: 60_000 }, async () => {
  const cluster = await startBroker('--brokers', '3');
  try {
    await cluster.createTopic('orders', 1);
    await cluster.moveLeader('orders', 0, 2);
    const kafka = new Kafka({ brokers: cluster.bootstrap.split(','), logLevel: logLevel.NOTHING });
    const producer = kafka.producer();
    await producer.connect();
    const send = (value) => producer.send({ topic: 'orders', acks: -1, messages: [{ value }] });
    await send('before');
    await cluster.killNode(2);
    await send('without the leader');
    await cluster.startNode(2);
    await cluster.moveLeader('orders', 0, 2);
    await cluster.isolateNode(3);
    await send('with one cut off');
    await cluster.rejoinNode(3);
    await cluster.stopNode(1);
    await producer.disconnect();
    assert.deepEqual(await cluster.leaders('orders'), { 0: 2 });
    const { nodes } = await cluster.cluster();
    assert.deepEqual(nodes.map(({ running, isolated }) => [running, isolated]), [[false, false], [true, false], [true, false]]);
  } finally {
    await cluster.stop();
  }
});

test('user logs in over TLS', { timeout: 60_000 }, async () => {
  const secured = await startBroker('--security', 'SASL_SSL', '--topic', 'orders');
  try {
    const { ca, passwords } = secured.security;
    const kafka = new Kafka({
      brokers: [secured.bootstrap],
      ssl: { ca: [await readFile(ca, 'utf8')] },
      sasl: { mechanism: 'plain', username: 'alice', password: passwords.alice },
      logLevel: logLevel.NOTHING,
    });
    const producer = kafka.producer();
    await producer.connect();
    await producer.send({ topic: 'orders', messages: [{ value: 'first' }] });
    await producer.disconnect();
    const { requests } = await secured.control('GET', '/v1/requests?api=Produce');
    assert.deepEqual(requests.map(({ principal }) => principal), ['User:alice']);
  } finally {
    await secured.stop();
  }
});

test('missing command is named with a way out', async () => {
  const command = process.env.BARNABAS_COMMAND;
  process.env.BARNABAS_COMMAND = 'no-such-barnabas';
  try {
    await assert.rejects(startBroker(), /no-such-barnabas.*pip install barnabas/);
  } finally {
    if (command === undefined) delete process.env.BARNABAS_COMMAND;
    else process.env.BARNABAS_COMMAND = command;
  }
});

test('what the types declare is there', async () => {
  const types = await readFile(new URL('./index.d.ts', import.meta.url), 'utf8');
  const names = [...types.matchAll(/^  (?:readonly )?(\w+)[<(:]/gm)].map((found) => found[1]);
  const own = [...Object.keys(broker), ...Object.getOwnPropertyNames(Object.getPrototypeOf(broker))];
  assert.deepEqual(names.sort(), own.filter((name) => name !== 'constructor').sort());
});
