import java.math.BigDecimal;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Writes changes of a table as Debezium describes them, with Kafka Connect's JSON converter:
 * java Changes.java BOOTSTRAP TOPIC WITH_SCHEMAS ROWS. Each row is created, updated and deleted.
 */
public class Changes {
    private static final long FIRST_CHANGED_AT = 1_769_851_800_000L;
    private static final Schema KEY = SchemaBuilder.struct().name("shop.public.orders.Key").field("id", Schema.INT32_SCHEMA).build();
    private static final Schema SOURCE = SchemaBuilder.struct().name("io.debezium.connector.postgresql.Source")
        .field("version", Schema.STRING_SCHEMA).field("connector", Schema.STRING_SCHEMA).field("name", Schema.STRING_SCHEMA)
        .field("ts_ms", Schema.INT64_SCHEMA).field("snapshot", Schema.OPTIONAL_STRING_SCHEMA).field("db", Schema.STRING_SCHEMA)
        .field("schema", Schema.STRING_SCHEMA).field("table", Schema.STRING_SCHEMA).field("lsn", Schema.OPTIONAL_INT64_SCHEMA)
        .build();

    private final JsonConverter keys = new JsonConverter();
    private final JsonConverter values = new JsonConverter();
    private final Producer<byte[], byte[]> producer;
    private final String topic;

    Changes(Producer<byte[], byte[]> producer, String topic, String withSchemas) {
        this.producer = producer;
        this.topic = topic;
        keys.configure(Map.of("schemas.enable", withSchemas), true);
        values.configure(Map.of("schemas.enable", withSchemas), false);
    }

    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            Changes changes = new Changes(producer, arguments[1], arguments[2]);
            for (int row = 0; row < Integer.parseInt(arguments[3]); row++) {
                changes.send(row);
            }
        }
    }

    /** What happens to one row. A deletion is followed by a tombstone. The first row also has an amount that isn't a number. */
    private void send(int row) {
        Schema schema = rowSchema(Schema.FLOAT64_SCHEMA);
        Struct created = row(schema, row, row + 0.5);
        Struct updated = row(schema, row, row + 0.75);
        send(row, "c", null, created, schema);
        if (row == 0) {
            Schema exact = rowSchema(Decimal.schema(2)); // Debezium's default for decimals
            send(row, "u", null, row(exact, row, new BigDecimal("12.50")), exact);
        }
        send(row, "u", created, updated, schema);
        send(row, "d", updated, null, schema);
        producer.send(new ProducerRecord<>(topic, key(row), null));
    }

    private void send(int row, String operation, Struct before, Struct after, Schema rowSchema) {
        Schema schema = SchemaBuilder.struct().name("shop.public.orders.Envelope")
            .field("before", rowSchema).field("after", rowSchema).field("source", SOURCE).field("op", Schema.STRING_SCHEMA)
            .field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA).build();
        long changedAt = FIRST_CHANGED_AT + row * 10L;
        Struct source = new Struct(SOURCE).put("version", "3.0.0.Final").put("connector", "postgresql").put("name", "shop")
            .put("ts_ms", changedAt).put("snapshot", "false").put("db", "shop").put("schema", "public").put("table", "orders")
            .put("lsn", 24_023_128L + row);
        Struct change = new Struct(schema).put("before", before).put("after", after).put("source", source).put("op", operation)
            .put("ts_ms", changedAt + 700);
        producer.send(new ProducerRecord<>(topic, key(row), values.fromConnectData(topic, schema, change)));
    }

    private byte[] key(int row) {
        return keys.fromConnectData(topic, KEY, new Struct(KEY).put("id", row));
    }

    private static Schema rowSchema(Schema amount) {
        return SchemaBuilder.struct().name("shop.public.orders.Value").optional()
            .field("id", Schema.INT32_SCHEMA).field("customer", Schema.STRING_SCHEMA).field("amount", amount).build();
    }

    private static Struct row(Schema schema, int row, Object amount) {
        return new Struct(schema).put("id", row).put("customer", "Zoë").put("amount", amount);
    }
}
