// Writes orders in Avro, with kafkajs and its package for schema registries: node avro_orders.js BOOTSTRAP TOPIC REGISTRY COUNT
// After them come three bad ones: one without items, one without a tier, and one that is cut off.
const { SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");
const { Kafka, logLevel } = require("kafkajs");

const ITEM = {
  type: "record",
  name: "Item",
  fields: [
    { name: "sku", type: "string" },
    { name: "price", type: "double" },
  ],
};
const CUSTOMER = {
  type: "record",
  name: "Customer",
  fields: [
    { name: "name", type: "string" },
    { name: "age", type: ["null", "int"], default: null },
    { name: "attributes", type: { type: "map", values: "string" } },
  ],
};
const ORDER = {
  type: "record",
  namespace: "shop",
  name: "Order",
  fields: [
    { name: "id", type: "string" },
    { name: "placed_at", type: { type: "long", logicalType: "timestamp-millis" } },
    { name: "customer", type: CUSTOMER },
    { name: "items", type: { type: "array", items: ITEM } },
    { name: "status", type: { type: "enum", name: "Status", symbols: ["NEW", "PAID"] } },
  ],
};

function order(number) {
  return {
    id: `o-${number}`,
    placed_at: Date.parse("2026-01-31T09:30:00Z") + 1500 * number,
    customer: {
      name: "Zoë",
      age: number % 2 === 0 ? null : 20 + number,
      attributes: { color: "red", "shop.tier": `tier-${number % 3}` },
    },
    items: Array.from({ length: (number % 3) + 1 }, (_, item) => ({ sku: `s-${item}`, price: number + 0.25 * item })),
    status: number % 2 === 0 ? "NEW" : "PAID",
  };
}

async function main() {
  const [bootstrap, topic, registryUrl, count] = process.argv.slice(2);
  const registry = new SchemaRegistry({ host: registryUrl });
  const { id } = await registry.register({ type: SchemaType.AVRO, schema: JSON.stringify(ORDER) });
  const producer = new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.ERROR }).producer();
  await producer.connect();
  const messages = [];
  for (let number = 0; number < Number(count); number++) {
    messages.push({ key: `c-${number % 7}`, value: await registry.encode(id, order(number)) });
  }
  const customer = { name: "Zoë", age: null, attributes: {} };
  messages.push({ key: "bad", value: await registry.encode(id, { ...order(0), items: [] }) });
  messages.push({ key: "bad", value: await registry.encode(id, { ...order(0), customer }) });
  messages.push({ key: "bad", value: (await registry.encode(id, order(0))).subarray(0, 20) });
  await producer.send({ topic, messages });
  await producer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
