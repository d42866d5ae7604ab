import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.avro.NameValidator;
import org.apache.avro.Schema;

/** Reads a schema from each line, which has it as a text of JSON; writes what Avro prints of it, or why it is none. */
public final class AvroTexts {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper json = new ObjectMapper();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      ObjectNode verdict = json.createObjectNode();
      try {
        Schema schema = new Schema.Parser(NameValidator.STRICT_VALIDATOR).parse(json.readValue(line, String.class));
        verdict.put("printed", schema.toString());
      } catch (Exception | StackOverflowError error) {
        verdict.put("refused", error.getClass().getSimpleName());
      }
      out.println(json.writeValueAsString(verdict));
    }
  }
}
