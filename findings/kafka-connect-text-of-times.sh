#!/bin/bash
# Kafka Connect 4.3.1: the text of a timestamp is the machine's local time with a Z, without the time at midnight, without the date in 1970.
# Seen: `Cast` of a column of timestamps to `string` writes three formats into it, by the value, and outside UTC each of them is wrong by
# the offset that its Z denies. By the same way the default header.converter, SimpleHeaderConverter, changes headers that nothing
# touches: in UTC a timestamp at midnight loses its time, 2020-02-30 becomes March, 1.10 becomes 1.1 and 007 becomes 7. That types are
# inferred is documented, that the text changes is not; the review of apache/kafka#4319 feared it for spaces and exponents.
# Judge: java.time, which reads and writes the same texts. Beside it: StringConverter as header.converter, which changes none of them.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId>
<version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId><version>4.3.1</version></dependency>
</dependencies></project>
XML
(cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >&2)
cat >"$dir/Times.java" <<'JAVA'
import java.time.Instant;
import java.util.Date;
import java.util.Map;
import java.util.TimeZone;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;
import org.apache.kafka.connect.storage.StringConverter;
import org.apache.kafka.connect.transforms.Cast;

public class Times {
    static String written(HeaderConverter converter, String text) {
        converter.configure(Map.of("converter.type", "header"));
        SchemaAndValue header = converter.toConnectHeader("topic", "key", text.getBytes());
        return new String(converter.fromConnectHeader("topic", "key", header.schema(), header.value()));
    }

    public static void main(String[] arguments) {
        System.out.println(TimeZone.getDefault().getID());
        Cast<SourceRecord> cast = new Cast.Value<>();
        cast.configure(Map.of("spec", "string"));
        for (String time : new String[] {"2020-01-01T00:00:00.001Z", "2020-01-01T00:00:00.000Z", "1970-01-01T10:00:00.000Z"}) {
            SourceRecord source = new SourceRecord(null, null, "topic", Timestamp.SCHEMA, Date.from(Instant.parse(time)));
            System.out.println("cast " + time + " " + cast.apply(source).value());
        }
        for (String text : new String[] {"2020-01-01T00:00:00.000Z", "2020-02-30", "1.10", "007", "1e3", "a"}) {
            System.out.println(
                "header " + text + " " + written(new SimpleHeaderConverter(), text) + " " + written(new StringConverter(), text));
        }
    }
}
JAVA
for zone in UTC America/New_York; do
    java -Duser.timezone=$zone -cp "$dir/jars/*" "$dir/Times.java" 2>"$dir/log" || { cat "$dir/log" >&2; exit 1; }
done >"$dir/seen"

diff "$dir/seen" - <<'SEEN'
UTC
cast 2020-01-01T00:00:00.001Z 2020-01-01T00:00:00.001Z
cast 2020-01-01T00:00:00.000Z 2020-01-01
cast 1970-01-01T10:00:00.000Z 10:00:00.000Z
header 2020-01-01T00:00:00.000Z 2020-01-01 2020-01-01T00:00:00.000Z
header 2020-02-30 2020-03-01 2020-02-30
header 1.10 1.1 1.10
header 007 7 007
header 1e3 1000 1e3
header a a a
America/New_York
cast 2020-01-01T00:00:00.001Z 2019-12-31T19:00:00.001Z
cast 2020-01-01T00:00:00.000Z 2019-12-31
cast 1970-01-01T10:00:00.000Z 05:00:00.000Z
header 2020-01-01T00:00:00.000Z 2020-01-01T00:00:00.000Z 2020-01-01T00:00:00.000Z
header 2020-02-30 2020-03-01T00:00:00.000Z 2020-02-30
header 1.10 1.1 1.10
header 007 7 007
header 1e3 1000 1e3
header a a a
SEEN
