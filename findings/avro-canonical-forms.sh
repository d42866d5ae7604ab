#!/bin/bash
# Avro for Rust 0.22.0 and Python 1.12.2, hamba/avro 2.31.0, goavro 2.15.0: a schema's canonical form is not that of Avro for Java.
# Seen: hamba keeps logical types, precision and scale, the crate apache-avro precision, scale and a field's order. goavro puts an inner
# namespace behind the outer one (n.m.S, while its codec takes m.S for that type), does not hand on the namespace of a full name, and
# calls a decimal `bytes.decimal`. Avro's own library for Python defines a type again at each use; it and hamba inherit a namespace that
# a schema sets to "". Data in single-object encoding carries the fingerprint, so a reader with another library does not find its
# schema. What {"type": "long", ...} becomes is disputed (goavro 174, avro-rs 61), the rest is not.
# Judge: Avro for Java 1.12.2. Beside it: fastavro 1.13.1 and twmb/avro 1.9.1, which agree with it in all of these.
set -euo pipefail
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cat >"$dir/schemas" <<'SCHEMAS'
{"type":"record","name":"Plain","fields":[{"name":"a","type":["null","long"],"doc":"d","default":null}]}
{"type":"record","name":"Order","fields":[{"name":"a","type":"long","order":"ignore"}]}
{"type":"record","name":"Time","fields":[{"name":"a","type":{"type":"long","logicalType":"timestamp-millis"}}]}
{"type":"fixed","name":"Sum","size":4,"logicalType":"decimal","precision":4,"scale":2}
{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}
{"type":"record","name":"Twice","fields":[{"name":"a","type":{"type":"fixed","name":"F","size":1}},{"name":"b","type":"F"}]}
{"type":"record","name":"n.Full","fields":[{"name":"a","type":{"type":"fixed","name":"F","size":1}}]}
{"type":"record","name":"Inner","namespace":"n","fields":[{"name":"a","type":{"type":"fixed","name":"S","namespace":"m","size":1}}]}
{"type":"record","name":"None","namespace":"n","fields":[{"name":"a","type":{"type":"fixed","name":"S","namespace":"","size":1}}]}
SCHEMAS

cat >"$dir/pom.xml" <<'XML'
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId>
<version>1</version><dependencies><dependency><groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>1.12.2</version>
</dependency></dependencies></project>
XML
(cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars >&2)
cat >"$dir/Forms.java" <<'JAVA'
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;

public class Forms {
    public static void main(String[] arguments) throws Exception {
        for (String text : Files.readAllLines(Path.of(arguments[0]))) {
            Schema schema = new Schema.Parser().parse(text);
            System.out.printf(
                "%016x %s%n", SchemaNormalization.parsingFingerprint64(schema), SchemaNormalization.toParsingForm(schema));
        }
    }
}
JAVA
java -cp "$dir/jars/*" "$dir/Forms.java" "$dir/schemas" 2>/dev/null >"$dir/java"

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install avro==1.12.2 fastavro==1.13.1
"$dir/venv/bin/python" - "$dir" <<'PY'
import json
import sys

import avro.schema
from fastavro.schema import fingerprint, to_parsing_canonical_form

texts = open(f"{sys.argv[1]}/schemas").readlines()
with open(f"{sys.argv[1]}/avro-python", "w") as file:
    for schema in map(avro.schema.parse, texts):
        print(schema.fingerprint("CRC-64-AVRO")[::-1].hex(), schema.canonical_form, file=file)
with open(f"{sys.argv[1]}/fastavro", "w") as file:
    for form in (to_parsing_canonical_form(json.loads(text)) for text in texts):
        print(bytes.fromhex(fingerprint(form, "CRC-64-AVRO"))[::-1].hex(), form, file=file)
PY

mkdir "$dir/program"
cd "$dir/program"
cat >main.go <<'GO'
package main

import (
	"bufio"
	"fmt"
	"os"

	hamba "github.com/hamba/avro/v2"
	"github.com/linkedin/goavro/v2"
	twmb "github.com/twmb/avro"
)

func main() {
	texts := bufio.NewScanner(os.Stdin)
	files := map[string]*os.File{}
	for _, name := range []string{"hamba", "goavro", "twmb"} {
		files[name], _ = os.Create("../" + name)
	}
	for texts.Scan() {
		schema := hamba.MustParse(texts.Text())
		fingerprint, _ := schema.FingerprintUsing(hamba.CRC64Avro)
		fmt.Fprintf(files["hamba"], "%x %s\n", fingerprint, schema)
		codec, _ := goavro.NewCodec(texts.Text())
		fmt.Fprintf(files["goavro"], "%016x %s\n", codec.Rabin, codec.CanonicalSchema())
		other := twmb.MustParse(texts.Text())
		fmt.Fprintf(files["twmb"], "%x %s\n", other.Fingerprint(twmb.NewRabin()), other.Canonical())
	}
}
GO
export GOFLAGS=-mod=mod
go mod init finding 2>/dev/null
go get github.com/hamba/avro/v2@v2.31.0 github.com/linkedin/goavro/v2@v2.15.0 github.com/twmb/avro@v1.9.1 2>/dev/null
go run . <../schemas

mkdir -p "$dir/rust/src"
cd "$dir/rust"
cat >Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.1.0"
edition = "2021"

[dependencies]
apache-avro = "=0.22.0"
TOML
cat >src/main.rs <<'RUST'
use apache_avro::{rabin::Rabin, Schema};

fn main() {
    for text in std::io::stdin().lines() {
        let schema = Schema::parse_str(&text.unwrap()).unwrap();
        let fingerprint: String = schema.fingerprint::<Rabin>().bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
        println!("{fingerprint} {}", schema.canonical_form());
    }
}
RUST
cargo run -q <../schemas >../avro-rust

cd "$dir"
cat java >seen
for library in fastavro twmb avro-python avro-rust hamba goavro; do
    echo "$library" >>seen
    diff java $library | grep '^>' >>seen || true
done

diff seen - <<'SEEN'
6488fb5a2437f61f {"name":"Plain","type":"record","fields":[{"name":"a","type":["null","long"]}]}
88918cfb9d109871 {"name":"Order","type":"record","fields":[{"name":"a","type":"long"}]}
f79609b74498a8ff {"name":"Time","type":"record","fields":[{"name":"a","type":"long"}]}
1e2971219b6883fb {"name":"Sum","type":"fixed","size":4}
4fc016dac3201965 "bytes"
b1eacb0f3f51d458 {"name":"Twice","type":"record","fields":[{"name":"a","type":{"name":"F","type":"fixed","size":1}},{"name":"b","type":"F"}]}
e11014b26a95f8a2 {"name":"n.Full","type":"record","fields":[{"name":"a","type":{"name":"n.F","type":"fixed","size":1}}]}
d49271ce1f34e94c {"name":"n.Inner","type":"record","fields":[{"name":"a","type":{"name":"m.S","type":"fixed","size":1}}]}
f8cd5c93535d96f3 {"name":"n.None","type":"record","fields":[{"name":"a","type":{"name":"S","type":"fixed","size":1}}]}
fastavro
twmb
avro-python
> 1aac1e0d1e1b8e5f {"name":"Time","type":"record","fields":[{"name":"a","type":{"type":"long"}}]}
> f96800399438d02e {"type":"bytes"}
> c591050bc9811f7f {"name":"Twice","type":"record","fields":[{"name":"a","type":{"name":"F","type":"fixed","size":1}},{"name":"b","type":{"name":"F","type":"fixed","size":1}}]}
> c3a33dfdc852aa42 {"name":"n.None","type":"record","fields":[{"name":"a","type":{"name":"n.S","type":"fixed","size":1}}]}
avro-rust
> c68630f7fa3867aa {"name":"Order","type":"record","fields":[{"name":"a","type":"long","order":"ignore"}]}
> 1aac1e0d1e1b8e5f {"name":"Time","type":"record","fields":[{"name":"a","type":{"type":"long"}}]}
> bad4956e5b24adf6 {"name":"Sum","type":"fixed","size":4,"precision":4,"scale":2}
> 450fd4846e1d39c6 {"type":"bytes","precision":4,"scale":2}
hamba
> 0b13ebf3f49e03cc {"name":"Time","type":"record","fields":[{"name":"a","type":{"type":"long","logicalType":"timestamp-millis"}}]}
> 2f1d160833b4c971 {"name":"Sum","type":"fixed","size":4,"logicalType":"decimal","precision":4,"scale":2}
> eeb4ee37786d146e {"type":"bytes","logicalType":"decimal","precision":4,"scale":2}
> c3a33dfdc852aa42 {"name":"n.None","type":"record","fields":[{"name":"a","type":{"name":"n.S","type":"fixed","size":1}}]}
goavro
> 1aac1e0d1e1b8e5f {"name":"Time","type":"record","fields":[{"name":"a","type":{"type":"long"}}]}
> 2686a30a6dcefbf4 {"name":"bytes.decimal","type":"bytes"}
> 27def32660d38eb5 {"name":"n.Full","type":"record","fields":[{"name":"a","type":{"name":"F","type":"fixed","size":1}}]}
> 097b65e018c78b34 {"name":"n.Inner","type":"record","fields":[{"name":"a","type":{"name":"n.m.S","type":"fixed","size":1}}]}
> e4cd985e9264df9e {"name":"n.None","type":"record","fields":[{"name":"a","type":{"name":"n..S","type":"fixed","size":1}}]}
SEEN
