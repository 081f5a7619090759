import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtSession;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/** Writes predictions (schema prediction-v1; float outputs), Avro in the wire format or JSON. */
final class Predictions {
  private final Map<String, String> names = new LinkedHashMap<>(); // tensor -> name
  private final String model;
  private final int version;
  private final boolean json;
  private final byte[] head;
  private final byte[] origin;
  private final JsonFactory generators = new JsonFactory();
  private final Bytes out = new Bytes();

  Predictions(JsonNode job) {
    for (JsonNode output : job.get("outputs")) {
      names.put(output.get("tensor").asText(), output.get("name").asText());
    }
    model = job.get("model").asText();
    version = job.get("version").asInt();
    json = job.get("format").asText().equals("json");
    int id = Integer.parseInt(new File(job.get("prediction_schema").asText()).getName().split("-")[0]);
    head = new byte[] {0, (byte) (id >> 24), (byte) (id >> 16), (byte) (id >> 8), (byte) id};
    out.text(utf8(model)); // pipeline
    out.text(utf8(model));
    out.number(version);
    out.text(utf8("primary"));
    origin = out.toByteArray();
  }

  Set<String> tensors() {
    return names.keySet();
  }

  byte[][] write(Events events, OrtSession.Result result, int size, long ingestTime) throws IOException {
    long now = System.currentTimeMillis();
    FloatBuffer[] outputs = new FloatBuffer[names.size()];
    int place = 0;
    for (String tensor : names.keySet()) {
      outputs[place++] = ((OnnxTensor) result.get(tensor).orElseThrow()).getFloatBuffer();
    }
    byte[][] values = new byte[size][];
    for (int row = 0; row < size; row++) {
      values[row] = json
          ? asJson(events, row, outputs, size, ingestTime, now)
          : asAvro(events, row, outputs, size, ingestTime, now);
    }
    return values;
  }

  private byte[] asAvro(Events events, int row, FloatBuffer[] outputs, int size, long ingestTime, long now) {
    out.reset();
    out.write(head, 0, head.length);
    out.text(events.ids[row]);
    out.number(events.times[row]);
    out.write(origin, 0, origin.length);
    out.number(ingestTime);
    out.number(now);
    out.number(outputs.length);
    int place = 0;
    for (String name : names.values()) {
      FloatBuffer output = outputs[place++];
      int width = output.remaining() / size;
      out.text(utf8(name));
      if (width == 1) {
        out.number(0); // the union's branch
        out.real(output.get(row));
        continue;
      }
      out.number(5);
      out.number(width);
      for (int item = 0; item < width; item++) {
        out.number(0);
        out.real(output.get(row * width + item));
      }
      out.number(0);
    }
    out.number(0);
    return out.toByteArray();
  }

  private byte[] asJson(Events events, int row, FloatBuffer[] outputs, int size, long ingestTime, long now)
      throws IOException {
    out.reset();
    try (JsonGenerator writer = generators.createGenerator(out)) {
      writer.writeStartObject();
      writer.writeFieldName("event_id");
      writer.writeUTF8String(events.ids[row], 0, events.ids[row].length);
      writer.writeNumberField("event_time", events.times[row]);
      writer.writeStringField("pipeline", model);
      writer.writeStringField("model", model);
      writer.writeNumberField("version", version);
      writer.writeStringField("variant", "primary");
      writer.writeNumberField("ingest_time", ingestTime);
      writer.writeNumberField("prediction_time", now);
      writer.writeObjectFieldStart("outputs");
      int place = 0;
      for (String name : names.values()) {
        FloatBuffer output = outputs[place++];
        int width = output.remaining() / size;
        writer.writeFieldName(name);
        if (width == 1) {
          writer.writeNumber(output.get(row));
          continue;
        }
        writer.writeStartArray();
        for (int item = 0; item < width; item++) {
          writer.writeNumber(output.get(row * width + item));
        }
        writer.writeEndArray();
      }
      writer.writeEndObject();
      writer.writeEndObject();
    }
    return out.toByteArray();
  }

  private static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** A growing buffer with Avro's numbers and texts; without the locks of ByteArrayOutputStream. */
  private static final class Bytes extends OutputStream {
    private byte[] buffer = new byte[4096];
    private int size;

    void reset() {
      size = 0;
    }

    byte[] toByteArray() {
      return Arrays.copyOf(buffer, size);
    }

    private void room(int more) {
      if (size + more > buffer.length) {
        buffer = Arrays.copyOf(buffer, Math.max(size + more, 2 * buffer.length));
      }
    }

    @Override
    public void write(int value) {
      room(1);
      buffer[size++] = (byte) value;
    }

    @Override
    public void write(byte[] bytes, int start, int length) {
      room(length);
      System.arraycopy(bytes, start, buffer, size, length);
      size += length;
    }

    void number(long value) {
      room(10);
      long zigzag = value << 1 ^ value >> 63;
      while ((zigzag & ~0x7FL) != 0) {
        buffer[size++] = (byte) (zigzag & 0x7F | 0x80);
        zigzag >>>= 7;
      }
      buffer[size++] = (byte) zigzag;
    }

    void real(float value) {
      room(4);
      int bits = Float.floatToRawIntBits(value);
      buffer[size++] = (byte) bits;
      buffer[size++] = (byte) (bits >> 8);
      buffer[size++] = (byte) (bits >> 16);
      buffer[size++] = (byte) (bits >> 24);
    }

    void text(byte[] utf8) {
      number(utf8.length);
      write(utf8, 0, utf8.length);
    }
  }
}
