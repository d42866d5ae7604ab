#!/bin/bash
# Avro for Java 1.12.2: a defined type's name, written as an object ({"type": "R"}), is refused as the type of a field.
# Seen: 1.12.1 takes it, so a patch release refuses schemas that the one before it parses. The specification lists primitive
# types in that form and says nothing of names.
# Beside it: {"type": "int"} in the same place, which both take.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/Parse.java" <<'JAVA'
import org.apache.avro.Schema;

public class Parse {
    public static void main(String[] arguments) {
        for (String type : new String[] {"\"R\"", "{\"type\": \"R\"}", "{\"type\": \"int\"}"}) {
            String text = "{\"type\": \"record\", \"name\": \"S\", \"fields\": [{\"name\": \"a\", \"type\": {\"type\": \"record\", \"name\": \"R\", "
                + "\"fields\": []}}, {\"name\": \"b\", \"type\": " + type + "}]}";
            try {
                new Schema.Parser().parse(text);
                System.out.println(type + " taken");
            } catch (org.apache.avro.AvroRuntimeException error) {
                System.out.println(type + " " + error.getClass().getSimpleName());
            }
        }
    }
}
JAVA
for version in 1.12.1 1.12.2; do
    mkdir "$dir/$version"
    cat >"$dir/$version/pom.xml" <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId>
<version>1</version><dependencies><dependency><groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>$version</version>
</dependency></dependencies></project>
XML
    (cd "$dir/$version" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >&2)
    javac -cp "$dir/$version/jars/*" -d "$dir/$version" "$dir/Parse.java"
    java -cp "$dir/$version:$dir/$version/jars/*" Parse 2>/dev/null | sed "s/^/$version /" >>"$dir/seen"
done

diff "$dir/seen" - <<'SEEN'
1.12.1 "R" taken
1.12.1 {"type": "R"} taken
1.12.1 {"type": "int"} taken
1.12.2 "R" taken
1.12.2 {"type": "R"} SchemaParseException
1.12.2 {"type": "int"} taken
SEEN
