// Schemas of all formats, registered, written and read; prints a line for each case, and fails at the first that is wrong.
const assert = require('assert')
const { SchemaRegistry, SchemaType } = require('@kafkajs/confluent-schema-registry')

const registry = new SchemaRegistry({ host: process.argv[2] })
const AVRO = '{"type":"record","name":"J","namespace":"js","fields":[{"name":"x","type":"int"}]}'
const OTHER = '{"type":"record","name":"J","namespace":"js","fields":[{"name":"y","type":"int"}]}'
const JSON_SCHEMA =
  '{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false}'
const PROTO = 'syntax = "proto3"; package js; message M { int32 x = 1; }'

async function exchanged(type, schema) {
  const { id } = await registry.register({ type, schema }, { subject: `js-${type}-value` })
  const found = await registry.decode(await registry.encode(id, { x: 5 }))
  assert.strictEqual(found.x, 5)
  assert.strictEqual(await registry.getRegistryIdBySchema(`js-${type}-value`, { type, schema }), id)
  assert.strictEqual(await registry.getLatestSchemaId(`js-${type}-value`), id)
  console.log('OK', type)
}

async function main() {
  await exchanged(SchemaType.AVRO, AVRO)
  await exchanged(SchemaType.JSON, JSON_SCHEMA)
  await exchanged(SchemaType.PROTOBUF, PROTO)
  await assert.rejects(
    registry.register({ type: SchemaType.AVRO, schema: OTHER }, { subject: 'js-AVRO-value' }),
    /incompatible with an earlier schema/
  )
  console.log('OK', 'a schema that breaks its readers is refused')
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
