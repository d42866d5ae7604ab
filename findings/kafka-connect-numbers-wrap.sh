#!/bin/bash
# Kafka Connect 4.3.1: a whole number that its type cannot hold wraps around in silence, in JSON without a schema and in `Cast`.
# Seen: JsonConverter with `schemas.enable=false` reads each whole number as a `long`, the largest of 64 bits without a sign as -1, a
# number of 30 digits as a negative one; a sink stores them. `Cast` to int8 makes 44 of 300, to int32 0 of 2**32, while the text "300"
# is "out of range for requested data type". Its documentation says "force an integer field to a smaller width", and no more.
# Judge: Connect's own Values.parseString, which takes the same numbers from headers as a Decimal; Python's json, for their values.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId>
<version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>4.3.1</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId><version>4.3.1</version></dependency>
</dependencies></project>
XML
(cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >&2)
cat >"$dir/Numbers.java" <<'JAVA'
import java.util.Map;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Cast;

public class Numbers {
    public static void main(String[] arguments) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), false);
        for (String number : new String[] {"9223372036854775807", "18446744073709551615", "123456789012345678901234567890"}) {
            Object value = converter.toConnectData("topic", number.getBytes()).value();
            System.out.println(number + " in JSON: " + value + ", in a header: " + Values.parseString(number).value());
        }
        Object[][] casts = {{"int8", 127}, {"int8", 300}, {"int8", "300"}, {"int32", 1L << 32}};
        for (Object[] cast : casts) {
            Cast<SourceRecord> transform = new Cast.Value<>();
            transform.configure(Map.of("spec", cast[0]));
            Object result;
            try {
                result = transform.apply(new SourceRecord(null, null, "topic", null, cast[1])).value();
            } catch (DataException error) {
                result = error.getMessage();
            }
            System.out.printf("%s %s to %s: %s%n", cast[1].getClass().getSimpleName(), cast[1], cast[0], result);
        }
    }
}
JAVA
java -cp "$dir/jars/*" "$dir/Numbers.java" 2>"$dir/log" >"$dir/seen" || { cat "$dir/log" >&2; exit 1; }

diff "$dir/seen" - <<'SEEN'
9223372036854775807 in JSON: 9223372036854775807, in a header: 9223372036854775807
18446744073709551615 in JSON: -1, in a header: 18446744073709551615
123456789012345678901234567890 in JSON: -4362896299872285998, in a header: 123456789012345678901234567890
Integer 127 to int8: 127
Integer 300 to int8: 44
String 300 to int8: Value (300) was out of range for requested data type
Long 4294967296 to int32: 0
SEEN
