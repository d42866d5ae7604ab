// A transaction that follows another one at once.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

const kafka = new Kafka({ clientId: "app", brokers: [process.argv[2]], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 100, retries: 10 } });

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic: "orders", numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
  const producer = kafka.producer({ transactionalId: "app", idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const transaction = await producer.transaction();
  try {
    await transaction.send({ topic: "orders", messages: [{ value: "x" }] });
    await transaction.commit();
  } catch (error) {
    console.log(`SHOWN the transaction failed: ${error.message}`);
    process.exit(0);
  }
  console.log("NOT SHOWN the transaction is committed");
  process.exit(0);
}

main().catch((error) => {
  console.log(`it failed before it came to the point: ${error.stack}`);
  process.exit(3);
});
