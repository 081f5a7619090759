import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.util.Utf8;

/** Reads events of one batch, Avro in the wire format or JSON, straight into the buffers of the model's inputs. */
final class Events {
  private static final int HEAD = 5;

  final byte[][] ids; // UTF-8
  final long[] times;
  private final Map<String, Input> inputs = new LinkedHashMap<>();
  private final Map<String, Target> targets = new HashMap<>(); // by field
  private final List<Field> fields = new ArrayList<>(); // in the order of the schema
  private final String idField;
  private final String timeField;
  private final boolean json;
  private final JsonFactory parsers = new JsonFactory();
  private BinaryDecoder decoder;
  private final Utf8 text = new Utf8();

  private record Target(Input input, int column, boolean array) {}

  private record Field(String name, Schema schema, Target target) {}

  Events(JsonNode job, int maxEvents) throws IOException {
    ids = new byte[maxEvents][];
    times = new long[maxEvents];
    idField = job.get("event_id").asText();
    timeField = job.get("event_time").asText();
    json = job.get("format").asText().equals("json");
    for (JsonNode spec : job.get("inputs")) {
      Input input = new Input(spec, maxEvents);
      inputs.put(spec.get("tensor").asText(), input);
      if (spec.has("field")) {
        targets.put(spec.get("field").asText(), new Target(input, 0, true));
      } else {
        int column = 0;
        for (JsonNode field : spec.get("fields")) {
          targets.put(field.asText(), new Target(input, column++, false));
        }
      }
    }
    Schema schema = new Schema.Parser().parse(new File(job.get("schema").asText()));
    for (Schema.Field field : schema.getFields()) {
      fields.add(new Field(field.name(), field.schema(), targets.get(field.name())));
    }
  }

  void read(byte[] value, int row) throws IOException {
    if (json) {
      readJson(value, row);
      return;
    }
    if (value[0] != 0) {
      throw new IOException("not in the wire format: first byte " + value[0]);
    }
    decoder = DecoderFactory.get().binaryDecoder(value, HEAD, value.length - HEAD, decoder);
    for (Field field : fields) {
      if (field.target != null) {
        readAvro(field, row);
      } else if (field.name.equals(idField)) {
        decoder.readString(text);
        ids[row] = java.util.Arrays.copyOf(text.getBytes(), text.getByteLength());
      } else if (field.name.equals(timeField)) {
        times[row] = decoder.readLong();
      } else {
        skip(field.schema);
      }
    }
  }

  private void readAvro(Field field, int row) throws IOException {
    Input input = field.target.input;
    int at = row * input.width + field.target.column;
    switch (field.schema.getType()) {
      case ARRAY -> {
        boolean floats = field.schema.getElementType().getType() == Schema.Type.FLOAT;
        for (long block = decoder.readArrayStart(); block != 0; block = decoder.arrayNext()) {
          for (long item = 0; item < block; item++) {
            if (floats) {
              input.put(at++, decoder.readFloat());
            } else {
              input.put(at++, decoder.readLong());
            }
          }
        }
      }
      case STRING -> input.put(at, decoder.readString(text).toString());
      case INT, LONG -> input.put(at, decoder.readLong());
      case FLOAT -> input.put(at, decoder.readFloat());
      case DOUBLE -> input.put(at, (float) decoder.readDouble());
      default -> throw new IOException(field.name + ": no model takes a " + field.schema);
    }
  }

  private void skip(Schema schema) throws IOException {
    switch (schema.getType()) {
      case UNION -> skip(schema.getTypes().get(decoder.readIndex()));
      case NULL -> decoder.readNull();
      case STRING -> decoder.skipString();
      case INT, LONG -> decoder.readLong();
      case FLOAT -> decoder.readFloat();
      case DOUBLE -> decoder.readDouble();
      default -> throw new IOException("expected a simple type, found " + schema);
    }
  }

  private void readJson(byte[] value, int row) throws IOException {
    try (JsonParser parser = parsers.createParser(value)) {
      parser.nextToken();
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        String name = parser.currentName();
        parser.nextToken();
        Target target = targets.get(name);
        if (target != null && target.array) {
          int at = row * target.input.width;
          while (parser.nextToken() != JsonToken.END_ARRAY) {
            target.input.put(at++, parser.getFloatValue());
          }
        } else if (target != null) {
          target.input.put(row * target.input.width + target.column, parser.getFloatValue());
        } else if (name.equals(idField)) {
          ids[row] = parser.getText().getBytes(java.nio.charset.StandardCharsets.UTF_8);
        } else if (name.equals(timeField)) {
          times[row] = parser.getLongValue();
        } else {
          parser.skipChildren();
        }
      }
    }
  }

  Map<String, OnnxTensor> tensors(OrtEnvironment environment, int size) throws OrtException {
    Map<String, OnnxTensor> made = new HashMap<>();
    for (Map.Entry<String, Input> entry : inputs.entrySet()) {
      made.put(entry.getKey(), entry.getValue().tensor(environment, size));
    }
    return made;
  }

  /** One input of the model: [events, width] of float, long or string. */
  private static final class Input {
    final int width;
    private final long[] shape;
    private FloatBuffer floats;
    private LongBuffer longs;
    private String[] strings;

    Input(JsonNode spec, int maxEvents) {
      JsonNode sizes = spec.get("shape");
      shape = new long[sizes.size() + 1];
      int elements = 1;
      for (int axis = 0; axis < sizes.size(); axis++) {
        shape[axis + 1] = sizes.get(axis).asLong();
        elements *= (int) shape[axis + 1];
      }
      width = elements;
      switch (spec.get("dtype").asText()) {
        case "float32" -> floats = direct(maxEvents * width * 4).asFloatBuffer();
        case "int64" -> longs = direct(maxEvents * width * 8).asLongBuffer();
        case "string" -> strings = new String[maxEvents * width];
        default -> throw new IllegalArgumentException("dtype " + spec.get("dtype"));
      }
    }

    private static ByteBuffer direct(int bytes) {
      return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    void put(int at, float value) {
      floats.put(at, value);
    }

    void put(int at, long value) {
      if (longs != null) {
        longs.put(at, value);
      } else {
        floats.put(at, value);
      }
    }

    void put(int at, String value) {
      strings[at] = value;
    }

    OnnxTensor tensor(OrtEnvironment environment, int size) throws OrtException {
      shape[0] = size;
      if (floats != null) {
        return OnnxTensor.createTensor(environment, floats.slice(0, size * width), shape);
      }
      if (longs != null) {
        return OnnxTensor.createTensor(environment, longs.slice(0, size * width), shape);
      }
      return OnnxTensor.createTensor(environment, java.util.Arrays.copyOf(strings, size * width), shape);
    }
  }
}
