import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.networknt.schema.JsonSchema;
import com.networknt.schema.JsonSchemaFactory;
import com.networknt.schema.SchemaLocation;
import com.networknt.schema.SpecVersion;
import com.networknt.schema.SpecVersionDetector;
import com.squareup.wire.schema.Location;
import com.squareup.wire.schema.internal.parser.ProtoParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;

/** Reads a schema from each line, which has it as a text of JSON; writes null for one that is refused, or what it is. */
public final class Texts {
  private static final ObjectMapper JSON =
      new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

  private interface Reader {
    Object read(String text) throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    Reader reader = switch (arguments[0]) {
      case "avro" -> text -> new Schema.Parser(NameValidator.STRICT_VALIDATOR).parse(text).toString();
      case "json" -> Texts::isSchema;
      case "wire" -> text -> ProtoParser.Companion.parse(Location.get("x.proto"), text) != null;
      default -> throw new IllegalArgumentException(arguments[0]);
    };
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Object found = null;
      try {
        found = reader.read(JSON.readValue(line, String.class));
      } catch (Exception | StackOverflowError error) {
        // refused
      }
      out.println(JSON.writeValueAsString(found));
    }
  }

  /** Applies the meta-schema of the draft that a schema names, of draft 7 without one. */
  private static Object isSchema(String text) throws Exception {
    JsonNode node = JSON.readTree(text);
    SpecVersion.VersionFlag draft =
        SpecVersionDetector.detectOptionalVersion(node, false).orElse(SpecVersion.VersionFlag.V7);
    JsonSchema meta = JsonSchemaFactory.getInstance(draft).getSchema(SchemaLocation.of(draft.getId()));
    return meta.validate(node).isEmpty() ? Boolean.TRUE : null;
  }
}
