#!/bin/bash
# proto-schema-parser 2.1.0: a file that is parsed and printed again means something else, or is none any more.
# Seen: of adjacent strings, which Protobuf joins, the quotes between them become part of the value (`"a" "b"`, that is ab, comes
# out as `"a\" \"b"`); a group loses its label, and a negative default in hexadecimal digits gets quotes, which protoc refuses.
# Judge: protoc (grpcio-tools 1.85.1).
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install proto-schema-parser==2.1.0 grpcio-tools==1.85.1
cd "$dir"

venv/bin/python - >"$dir/seen" <<'PY'
import pathlib
import subprocess
import sys

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from proto_schema_parser import Parser
from proto_schema_parser.generator import Generator


def by_protoc(text):
    pathlib.Path("file.proto").write_text(text)
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "-oset", "file.proto"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return "refused"
    (field,) = FileDescriptorSet.FromString(pathlib.Path("set").read_bytes()).file[0].message_type[0].field
    return f"taken, default {field.default_value!r}"


for field in (
    'optional string text = 1 [default = "a" "b"];',
    "optional group G = 1 { optional int32 x = 2; }",
    "optional int64 number = 1 [default = -0x10];",
):
    text = f'syntax = "proto2"; message M {{ {field} }}'
    printed = Generator().generate(Parser().parse(text))
    print(f"{field} {by_protoc(text)}; printed: {by_protoc(printed)}")
PY

diff - "$dir/seen" <<'SEEN'
optional string text = 1 [default = "a" "b"]; taken, default 'ab'; printed: taken, default 'a" "b'
optional group G = 1 { optional int32 x = 2; } taken, default ''; printed: refused
optional int64 number = 1 [default = -0x10]; taken, default '-16'; printed: refused
SEEN
