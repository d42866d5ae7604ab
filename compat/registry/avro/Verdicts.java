import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.TreeSet;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/** For each line, a reader's and a writer's schema with a tab between: the kinds of what cannot be read, or why there is no verdict. */
public class Verdicts {
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] schemas = line.split("\t");
            Schema reader, writer;
            try {
                reader = new Schema.Parser().parse(schemas[0]);
                writer = new Schema.Parser().parse(schemas[1]);
            } catch (RuntimeException error) {
                System.out.println("INVALID");
                continue;
            }
            try {
                var result = SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult();
                var kinds = new TreeSet<String>();
                result.getIncompatibilities().forEach(found -> kinds.add(found.getType().name()));
                System.out.println(result.getCompatibility() + " " + String.join(",", kinds));
            } catch (RuntimeException error) {
                System.out.println("EXCEPTION");
            }
        }
    }
}
