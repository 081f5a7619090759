// Writes payments as CloudEvents, with CloudEvents' own package and kafkajs: node cloud_events.js BOOTSTRAP TOPIC COUNT
// After them come three bad ones: an amount that is a text, data that isn't JSON, and an event in binary mode.
const { CloudEvent, Kafka: Binding } = require("cloudevents");
const { Kafka, logLevel } = require("kafkajs");

function payment(number, data) {
  return new CloudEvent({
    id: `p-${number}`,
    source: "/shop/payments",
    type: "shop.payment.made",
    time: new Date(Date.parse("2026-01-31T09:30:00Z") + 1500 * number).toISOString(),
    partitionkey: `c-${number % 7}`,
    traceparent: `00-${number.toString(16).padStart(32, "0")}-00000000000000ff-01`,
    data,
  });
}

function message(binding) {
  const { key, value, headers, timestamp } = binding;
  const present = Object.fromEntries(Object.entries(headers).filter(([, content]) => content !== undefined));
  return { key, value: typeof value === "string" ? value : JSON.stringify(value), headers: present, timestamp };
}

async function main() {
  const [bootstrap, topic, count] = process.argv.slice(2);
  const producer = new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.ERROR }).producer();
  await producer.connect();
  const messages = [];
  for (let number = 0; number < Number(count); number++) {
    messages.push(message(Binding.structured(payment(number, { amount: number + 0.5, currency: "€" }))));
  }
  messages.push(message(Binding.structured(payment(0, { amount: "12.50" }))));
  messages.push(message(Binding.structured(payment(0, "paid"))));
  messages.push(message(Binding.binary(payment(0, { amount: 12.5 }))));
  await producer.send({ topic, messages });
  await producer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
