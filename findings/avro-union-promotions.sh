#!/bin/bash
# fastavro 1.13.1, avsc 5.7.9: a datum in a union is promoted to an earlier branch than its own; hamba/avro 2.31.0 resolves no such union.
# Seen: after a field with a default was added to a record, a `long` of its field ["double", "long"] is read as a double, which cannot hold
# it (avsc does so with the writer's own schema), and the text of ["bytes", "string"] as bytes. The letter of the specification says "the
# first schema in the reader's union that matches", and promotions count as matches; by it a change that has nothing to do with the
# field changes its value. hamba finds one branch for both of the writer's and says "union type must be unique", also of equal schemas.
# Judge: Avro for Java 1.12.2, in which an exact match goes first. Beside it: Avro for Python 1.12.2, which does as Java.
set -euo pipefail
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cat >"$dir/cases" <<'CASES'
["double", "long"];0282808080808080c001
["bytes", "string"];020261
["long", "double"];000e
CASES
record() {
    echo '{"type": "record", "name": "R", "fields": [{"name": "a", "type": '"$1}$2"']}'
}
while IFS=';' read -r type data; do
    echo "$(record "$type" '');$(record "$type" ', {"name": "b", "type": "int", "default": 1}');$data"
done <"$dir/cases" >"$dir/schemas"

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
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;

public class Resolve {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split(";");
            var decoder = DecoderFactory.get().binaryDecoder(HexFormat.of().parseHex(parts[2]), null);
            Schema writer = new Schema.Parser().parse(parts[0]), reader = new Schema.Parser().parse(parts[1]);
            System.out.println("Java " + new GenericDatumReader<>(writer, reader).read(null, decoder));
        }
    }
}
JAVA
java -cp "$dir/jars/*" "$dir/Resolve.java" "$dir/schemas" 2>/dev/null >"$dir/seen"

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install avro==1.12.2 fastavro==1.13.1
"$dir/venv/bin/python" - "$dir/schemas" >>"$dir/seen" <<'PY'
import io
import json
import sys

import avro.io
import avro.schema
import fastavro

for line in open(sys.argv[1]):
    writer, reader, data = line.split(";")
    file = io.BytesIO(bytes.fromhex(data))
    print("fastavro", fastavro.schemaless_reader(file, json.loads(writer), json.loads(reader)))
    file.seek(0)
    datum_reader = avro.io.DatumReader(avro.schema.parse(writer), avro.schema.parse(reader))
    print("avro", datum_reader.read(avro.io.BinaryDecoder(file)))
PY

mkdir "$dir/node"
cd "$dir/node"
npm install --silent --no-audit --no-fund avsc@5.7.9 >&2
cat >main.js <<'JS'
const { readFileSync } = require('fs')
const { Type } = require('avsc')

for (const line of readFileSync(process.argv[2], 'utf8').trim().split('\n')) {
  const [writer, reader, data] = line.split(';')
  for (const text of [reader, writer]) {
    const type = Type.forSchema(JSON.parse(text))
    const record = type.fromBuffer(Buffer.from(data, 'hex'), type.createResolver(Type.forSchema(JSON.parse(writer))))
    console.log('avsc', text === writer ? 'same schema' : '', JSON.stringify(record))
  }
}
JS
node main.js "$dir/schemas" >>"$dir/seen"

mkdir "$dir/go"
cd "$dir/go"
cat >main.go <<'GO'
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/hamba/avro/v2"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		parts := strings.Split(lines.Text(), ";")
		data, _ := hex.DecodeString(parts[2])
		schema, err := avro.NewSchemaCompatibility().Resolve(avro.MustParse(parts[1]), avro.MustParse(parts[0]))
		var record any
		if err == nil {
			err = avro.Unmarshal(schema, data, &record)
		}
		fmt.Println("hamba", record, err)
	}
}
GO
export GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/hamba/avro/v2@v2.31.0 2>/dev/null
go run . <"$dir/schemas" >>"$dir/seen"

diff "$dir/seen" - <<'SEEN'
Java {"a": 54043195528445953, "b": 1}
Java {"a": "a", "b": 1}
Java {"a": 7, "b": 1}
fastavro {'a': 5.404319552844595e+16, 'b': 1}
avro {'a': 54043195528445953, 'b': 1}
fastavro {'a': b'a', 'b': 1}
avro {'a': 'a', 'b': 1}
fastavro {'a': 7, 'b': 1}
avro {'a': 7, 'b': 1}
avsc  {"a":{"double":54043195528445950},"b":1}
avsc same schema {"a":{"double":54043195528445950}}
avsc  {"a":{"type":"Buffer","data":[97]},"b":1}
avsc same schema {"a":{"type":"Buffer","data":[97]}}
avsc  {"a":{"long":7},"b":1}
avsc same schema {"a":{"long":7}}
hamba <nil> avro: union type must be unique
hamba <nil> avro: union type must be unique
hamba map[a:7 b:1] <nil>
SEEN
