// A consumer whose connection breaks in the middle of an answer.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

const kafka = new Kafka({ clientId: "app", brokers: [process.argv[2]], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 100, retries: 10 } });
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function count(api) {
  const answer = await fetch(`${process.env.GALLERY_CONTROL}/v1/requests?api=${api}&limit=10000`);
  return (await answer.json()).requests.length;
}

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ value: "0" }] });
  const seen = [];
  const events = [];
  const consumer = kafka.consumer({ groupId: "billing", maxWaitTimeInMs: 200, heartbeatInterval: 500, sessionTimeout: 6000 });
  consumer.on(consumer.events.CRASH, ({ payload }) => events.push(`crash: ${payload.error.message}`));
  consumer.on(consumer.events.STOP, () => events.push("stop"));
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => { seen.push(message.value.toString()); } });
  for (let i = 0; i < 100 && (seen.length < 1 || (await count("Fetch")) < 3); i++) await sleep(100);
  await sleep(1000);
  for (const value of ["1", "2", "3"]) await producer.send({ topic: "orders", messages: [{ value }] });
  for (let i = 0; i < 200 && seen.length < 4; i++) await sleep(100);
  const [fetches, heartbeats] = [await count("Fetch"), await count("Heartbeat")];
  await sleep(3000);
  const more = `in the 3 s after that ${(await count("Fetch")) - fetches} Fetch and ${(await count("Heartbeat")) - heartbeats} Heartbeat requests`;
  if (seen.length < 4) console.log(`SHOWN ${seen.length} of 4 records in 20 s, ${more}; events: ${events.join(", ") || "none"}`);
  else console.log("NOT SHOWN all 4 records were delivered");
  process.exit(0);
}

process.on("uncaughtException", (error) => {
  console.log(`SHOWN the process ends with an exception that no handler of the program can catch: ${error.message}`);
  process.exit(0);
});
main().catch((error) => {
  console.log(`it failed before it came to the point: ${error.stack}`);
  process.exit(3);
});
