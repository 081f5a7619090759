import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes the orders of orders.py with kafka-clients and Jackson: java Orders.java BOOTSTRAP TOPIC COUNT. */
public class Orders {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Instant FIRST_PLACED_AT = Instant.parse("2026-01-31T09:30:00Z");
    private static final long RECORD_TIMESTAMP = 1_700_000_000_000L;

    private final String bootstrap;
    private final String topic;

    Orders(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] arguments) {
        Orders orders = new Orders(arguments[0], arguments[1]);
        int count = Integer.parseInt(arguments[2]);
        String[] codecs = {"zstd", "lz4", "snappy", "gzip"};
        for (int part = 0; part < codecs.length; part++) {
            orders.sendTransactions(codecs[part], part * count / codecs.length, (part + 1) * count / codecs.length);
        }
    }

    /** Commits one transaction, and aborts another one with orders that nobody may read. */
    private void sendTransactions(String codec, int begin, int end) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "compression.type", codec,
            "transactional.id", topic + "-" + codec);
        try (Producer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            for (int number = begin; number < end; number++) {
                producer.send(record("aborted-" + number, number));
            }
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            for (int number = begin; number < end; number++) {
                producer.send(record("o-" + number, number));
                if (number == 10) {
                    bad().forEach(producer::send);
                    producer.send(new ProducerRecord<>(topic, "c-0", null));
                }
            }
            producer.commitTransaction();
        }
    }

    private ProducerRecord<String, String> record(String id, int number) {
        return record("c-" + number % 7, RECORD_TIMESTAMP + number, order(id, number).toString(),
            "00-%032x-00000000000000ff-01".formatted(number));
    }

    private ProducerRecord<String, String> record(String key, long timestamp, String value, String trace) {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, null, timestamp, key, value);
        record.headers().add("traceparent", trace.getBytes(StandardCharsets.UTF_8));
        return record;
    }

    private List<ProducerRecord<String, String>> bad() {
        List<ObjectNode> events = List.of(order("bad", 1), order("bad", 1), order("bad", 1));
        ((ObjectNode) events.get(0).at("/order/customer")).put("age", "old");
        ((ObjectNode) events.get(1).at("/order")).putObject("items");
        ((ObjectNode) events.get(2).at("/order")).putArray("items");
        List<String> values = new ArrayList<>(events.stream().map(ObjectNode::toString).toList());
        values.add("{\"order\": {");
        return values.stream().map(value -> record("c-0", RECORD_TIMESTAMP, value, "bad")).toList();
    }

    private static ObjectNode order(String id, int number) {
        ObjectNode event = JSON.createObjectNode();
        ObjectNode order = event.putObject("order");
        order.put("id", id);
        order.put("placed_at", number == 0 ? null : FIRST_PLACED_AT.plusMillis(1500L * number).toString());
        ObjectNode customer = order.putObject("customer");
        customer.put("name", "Zoë <&> 鈴木 🛒");
        if (number % 3 == 1) {
            customer.putNull("age");
        }
        if (number % 3 == 2) {
            customer.put("age", 20 + number);
        }
        ArrayNode items = order.putArray("items");
        for (int item = 0; item <= number % 3; item++) {
            items.addObject().put("sku", "s-" + item).put("price", number + 0.25 * item).put("quantity", item + 1);
        }
        order.put("rate", number * 1e-7);
        order.put("is_new", number % 2 == 0);
        return event;
    }
}
