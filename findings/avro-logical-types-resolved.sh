#!/bin/bash
# Avro for Java 1.12.2 and Python 1.12.2, fastavro 1.13.1, hamba/avro 2.31.0: a reader's logical type gives one datum two values.
# Seen: milliseconds that are read with a schema of microseconds are a thousandth of what they were in Java and hamba, and right in both
# Python libraries, which take the writer's logical type; a decimal read with one more digit of scale is a tenth, or right; a `long` read
# as a timestamp is a time, or a number. SchemaCompatibility, which registries ask, says COMPATIBLE to each of them, though by the
# specification decimals match only if scale and precision do. So a change that passed the registry moves all older times to 1970.
# Judge: the specification for decimals. Beside it: twmb/avro 1.9.1, which refuses them, and not the timestamps.
set -euo pipefail
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cat >"$dir/cases" <<'CASES'
{"type":"long","logicalType":"timestamp-millis"};{"type":"long","logicalType":"timestamp-micros"};80d095ffbc63
{"type":"bytes","logicalType":"decimal","precision":4,"scale":2};{"type":"bytes","logicalType":"decimal","precision":6,"scale":3};0263
"long";{"type":"long","logicalType":"timestamp-millis"};80d095ffbc63
CASES

cat >"$dir/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId>
<version>1</version><dependencies><dependency><groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>1.12.2</version>
</dependency></dependencies></project>
XML
(cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >&2)
cat >"$dir/Resolve.java" <<'JAVA'
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;

public class Resolve {
    public static void main(String[] arguments) throws Exception {
        GenericData model = new GenericData();
        model.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        model.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
        model.addLogicalTypeConversion(new Conversions.DecimalConversion());
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split(";");
            Schema writer = new Schema.Parser().parse(parts[0]), reader = new Schema.Parser().parse(parts[1]);
            var decoder = DecoderFactory.get().binaryDecoder(HexFormat.of().parseHex(parts[2]), null);
            Object value = new GenericDatumReader<>(writer, reader, model).read(null, decoder);
            System.out.println(SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getType() + " " + value);
        }
    }
}
JAVA
{
    echo Java
    java -cp "$dir/jars/*" "$dir/Resolve.java" "$dir/cases" 2>/dev/null
} >"$dir/seen"

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install avro==1.12.2 fastavro==1.13.1
"$dir/venv/bin/python" - "$dir/cases" >>"$dir/seen" <<'PY'
import io
import json
import sys

import avro.io
import avro.schema
import fastavro

print("fastavro; Avro for Python")
for line in open(sys.argv[1]):
    writer, reader, data = line.split(";")
    file = io.BytesIO(bytes.fromhex(data))
    value = fastavro.schemaless_reader(file, json.loads(writer), json.loads(reader))
    file.seek(0)
    other = avro.io.DatumReader(avro.schema.parse(writer), avro.schema.parse(reader)).read(avro.io.BinaryDecoder(file))
    print(f"{value}; {other}")
PY

mkdir "$dir/program"
cd "$dir/program"
cat >main.go <<'GO'
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"strings"

	hamba "github.com/hamba/avro/v2"
	twmb "github.com/twmb/avro"
)

func main() {
	fmt.Println("hamba; twmb")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		parts := strings.Split(lines.Text(), ";")
		data, _ := hex.DecodeString(parts[2])
		resolved, _ := hamba.NewSchemaCompatibility().Resolve(hamba.MustParse(parts[1]), hamba.MustParse(parts[0]))
		var value, other any
		hamba.Unmarshal(resolved, data, &value)
		if fraction, isFraction := value.(*big.Rat); isFraction {
			value = fraction.FloatString(3)
		}
		schema, err := twmb.Resolve(twmb.MustParse(parts[0]), twmb.MustParse(parts[1]))
		if err != nil {
			other = "refused"
		} else {
			schema.Decode(data, &other)
		}
		fmt.Printf("%v; %v\n", value, other)
	}
}
GO
export GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/hamba/avro/v2@v2.31.0 github.com/twmb/avro@v1.9.1 2>/dev/null
go run . <../cases >>../seen

diff "$dir/seen" - <<'SEEN'
Java
COMPATIBLE 1970-01-20T18:43:13.459200Z
COMPATIBLE 0.099
COMPATIBLE 2024-02-27T00:24:19.200Z
fastavro; Avro for Python
2024-02-27 00:24:19.200000+00:00; 2024-02-27 00:24:19.200000+00:00
0.99; 0.99
1708993459200; 1708993459200
hamba; twmb
1970-01-20 18:43:13.4592 +0000 UTC; 1970-01-20 18:43:13.4592 +0000 UTC
0.099; refused
2024-02-27 00:24:19.2 +0000 UTC; 2024-02-27 00:24:19.2 +0000 UTC
SEEN
