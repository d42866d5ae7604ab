#!/bin/bash
# Avro for Rust 0.22.0: with a reader's schema, be it the writer's own, small decimals, dates and times, and aliases go wrong.
# Seen: a decimal of bytes is read only if its bytes could hold the whole precision, so 0.10 of decimal(4, 2) is "Precision 4 too small to
# hold decimal values with 1 bytes"; without a reader's schema it is read. A timestamp or date is not read as the long or int that it
# is. Of a renamed field with an alias the default is read and the datum dropped (aliases are optional by the specification). The
# default "\u00ff" of bytes is that text in UTF-8, two bytes, as in Avro for Python (fastavro-defaults-undecoded).
# Judge: Avro for Java 1.12.2.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/rust/src"
cat >"$dir/cases" <<'CASES'
{"type":"bytes","logicalType":"decimal","precision":4,"scale":2};{"type":"bytes","logicalType":"decimal","precision":4,"scale":2};020a
{"type":"bytes","logicalType":"decimal","precision":4,"scale":2};{"type":"bytes","logicalType":"decimal","precision":4,"scale":2};04000a
{"type":"long","logicalType":"timestamp-millis"};"long";14
{"type":"int","logicalType":"date"};"int";14
{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]};{"type":"record","name":"R","fields":[{"name":"b","aliases":["a"],"type":"int","default":9}]};14
{"type":"record","name":"R","fields":[]};{"type":"record","name":"R","fields":[{"name":"a","type":"bytes","default":"\u00ff"}]};
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
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;

public class Resolve {
    public static void main(String[] arguments) throws Exception {
        GenericData model = new GenericData();
        model.addLogicalTypeConversion(new Conversions.DecimalConversion());
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split(";", 3);
            var decoder = DecoderFactory.get().binaryDecoder(HexFormat.of().parseHex(parts[2]), null);
            Schema writer = new Schema.Parser().parse(parts[0]), reader = new Schema.Parser().parse(parts[1]);
            System.out.println(new GenericDatumReader<>(writer, reader, model).read(null, decoder));
        }
    }
}
JAVA
java -Dstdout.encoding=UTF-8 -cp "$dir/jars/*" "$dir/Resolve.java" "$dir/cases" 2>/dev/null >"$dir/java"

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
use apache_avro::{reader::datum::GenericDatumReader, Schema};

fn main() {
    for line in std::io::stdin().lines().map(|line| line.unwrap()) {
        let parts: Vec<&str> = line.split(';').collect();
        let schema = |text| Schema::parse_str(text).unwrap();
        let bytes = |at| u8::from_str_radix(&parts[2][at..at + 2], 16).unwrap();
        let data: Vec<u8> = (0..parts[2].len()).step_by(2).map(bytes).collect();
        for reader in [Some(&schema(parts[1])), None] {
            let writer = schema(parts[0]);
            let reader = GenericDatumReader::builder(&writer).maybe_reader_schema(reader).build().unwrap();
            match reader.read_value(&mut &data[..]) {
                Ok(value) => print!("{value:?}; "),
                Err(error) => print!("{error}; "),
            }
        }
        println!();
    }
}
RUST
cargo run -q <../cases >../rust.txt

paste -d ';' "$dir/java" "$dir/rust.txt" | sed 's/;/; /; s/; $//' >"$dir/seen"
diff "$dir/seen" - <<'SEEN'
0.10; Precision 4 too small to hold decimal values with 1 bytes; Decimal(Decimal { value: 10, len: 1 })
0.10; Decimal(Decimal { value: 10, len: 2 }); Decimal(Decimal { value: 10, len: 2 })
10; Expected Value::Long or Value::Int, got: TimestampMillis(10); TimestampMillis(10)
10; Expected Value::Int, got: Date(10); Date(10)
{"b": 10}; Record([("b", Int(9))]); Record([("a", Int(10))])
{"a": "ÿ"}; Record([("a", Bytes([195, 191]))]); Record([])
SEEN
