#!/bin/bash
# fastavro 1.13.1: its writer does not look whether a number fits its type, and changes or oversteps it in silence.
# Seen: 1.5 into a `long` is written as 1, any object into a `boolean` as true, and 2**31 into an `int` as five bytes that no `int`
# has; a union, and `fastavro.validate`, refuse each of them.
# Judge: Avro's own library for Python, 1.12.2, which writes none of them.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install fastavro==1.13.1 avro==1.12.2

"$dir/venv/bin/python" - >"$dir/seen" <<'PY'
import io
import json

import avro.errors
import avro.io
import avro.schema
import fastavro
from fastavro.validation import validate


def by_avro(schema, value):
    try:
        avro.io.DatumWriter(avro.schema.parse(json.dumps(schema))).write(value, avro.io.BinaryEncoder(io.BytesIO()))
    except avro.errors.AvroTypeException:
        return "refused"


for schema, value in (("long", 1.5), ("boolean", "no"), ("int", 2**31)):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, value)
    is_valid = validate(value, schema, raise_errors=False)
    print(f"{schema} {value!r}: wrote {file.getvalue().hex()}, valid {is_valid}, avro {by_avro(schema, value)}")
PY

diff - "$dir/seen" <<'SEEN'
long 1.5: wrote 02, valid False, avro refused
boolean 'no': wrote 01, valid False, avro refused
int 2147483648: wrote 8080808010, valid False, avro refused
SEEN
