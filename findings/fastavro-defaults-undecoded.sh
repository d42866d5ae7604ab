#!/bin/bash
# fastavro 1.13.1: a default of the reader's schema comes out as the JSON that it is written as, not as a value of its type.
# Seen: where data has the field, `bytes` is bytes, a date is a datetime.date and a decimal a Decimal; where the reader's default
# stands in for it, they are str, int and str. By the Avro specification the default "\u00FF" of a field of bytes is the byte FF. Of a
# record the fields that its default leaves to their own defaults are missing.
# Beside it Avro's own library for Python, 1.12.2, which gives bytes, though those of UTF-8: two, not the one that is meant.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install fastavro==1.13.1 avro==1.12.2

"$dir/venv/bin/python" - >"$dir/seen" <<'PY'
import io
import json
from datetime import date
from decimal import Decimal

import avro.io
import avro.schema
import fastavro

SUB = [{"name": "x", "type": "int", "default": 7}, {"name": "y", "type": "int"}]
FIELDS = [
    {"name": "raw", "type": "bytes", "default": "\u00ff"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 1},
    {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "default": "\u0001"},
    {"name": "sub", "type": {"type": "record", "name": "S", "fields": SUB}, "default": {"y": 3}},
]
NEW = {"type": "record", "name": "R", "fields": FIELDS}
OLD = {"type": "record", "name": "R", "fields": []}


def read(writer, value):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, writer, value)
    file.seek(0)
    return fastavro.schemaless_reader(file, writer, NEW)


print("written:", read(NEW, {"raw": b"\xff", "day": date(1970, 1, 2), "sum": Decimal("0.01"), "sub": {"x": 7, "y": 3}}))
print("default:", read(OLD, {}))
schemas = [avro.schema.parse(json.dumps({**OLD, "fields": fields})) for fields in ([], [FIELDS[0], FIELDS[3]])]
print("avro:   ", avro.io.DatumReader(*schemas).read(avro.io.BinaryDecoder(io.BytesIO(b""))))
PY

diff - "$dir/seen" <<'SEEN'
written: {'raw': b'\xff', 'day': datetime.date(1970, 1, 2), 'sum': Decimal('0.01'), 'sub': {'x': 7, 'y': 3}}
default: {'raw': 'ÿ', 'day': 1, 'sum': '\x01', 'sub': {'y': 3}}
avro:    {'raw': b'\xc3\xbf', 'sub': {'x': 7, 'y': 3}}
SEEN
