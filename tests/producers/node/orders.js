// Writes the orders of orders.py with kafkajs and its default partitioner: node orders.js BOOTSTRAP TOPIC COUNT
const { CompressionTypes, Kafka, logLevel } = require("kafkajs");

const RECORD_TIMESTAMP = 1_700_000_000_000;
const FIRST_PLACED_AT = Date.parse("2026-01-31T09:30:00Z");

function order(number) {
  const customer = { name: "Zoë <&> 鈴木 🛒" };
  if (number % 3 === 1) customer.age = null;
  if (number % 3 === 2) customer.age = 20 + number;
  const items = [];
  for (let item = 0; item <= number % 3; item++) {
    items.push({ sku: `s-${item}`, price: number + 0.25 * item, quantity: item + 1 });
  }
  return {
    order: {
      id: `o-${number}`,
      placed_at: number === 0 ? null : new Date(FIRST_PLACED_AT + 1500 * number),
      customer,
      items,
      rate: number * 1e-7,
      is_new: number % 2 === 0,
    },
  };
}

function message(number) {
  const trace = number.toString(16).padStart(32, "0");
  return {
    key: `c-${number % 7}`,
    value: JSON.stringify(order(number)),
    headers: { traceparent: `00-${trace}-00000000000000ff-01`, tenant: Buffer.from([0, 255]) },
    timestamp: String(RECORD_TIMESTAMP + number),
  };
}

function bad() {
  const values = [
    { order: { ...order(1).order, id: "bad", customer: { age: "old" } } },
    { order: { ...order(1).order, id: "bad", items: {} } },
    { order: { ...order(1).order, id: "bad", items: [] } },
  ].map((value) => JSON.stringify(value));
  return [...values, '{"order": {'].map((value) => ({
    key: "c-0",
    value,
    headers: { traceparent: "bad" },
    timestamp: String(RECORD_TIMESTAMP),
  }));
}

async function main() {
  const [bootstrap, topic, count] = process.argv.slice(2);
  const kafka = new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.ERROR });
  const producer = kafka.producer();
  await producer.connect();
  const good = Array.from({ length: Number(count) }, (_, number) => message(number));
  const half = good.length / 2;
  const tombstone = { key: "c-0", value: null };
  const messages = [...good.slice(0, 10), ...bad(), tombstone, ...good.slice(10, half)];
  await producer.send({ topic, compression: CompressionTypes.GZIP, messages });
  await producer.send({ topic, messages: good.slice(half) });
  await producer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
