"""Texts of .proto files: numbers and literals in every spelling, labels, names, options, what is defined twice, syntax."""

from __future__ import annotations

from collections.abc import Iterator

P3 = 'syntax = "proto3";\n'
P2 = 'syntax = "proto2";\n'
NUMBERS = [
    "1", "0", "-1", "+1", "01", "017", "08", "0x10", "0X1f", "0xG", "1.0", "1e1", "1_0", "536870911", "536870912",
    "0x1fffffff", "2147483647", "2147483648", "18446744073709551616", "max", "'1'", "a", "", "18999", "20000",
]  # fmt: skip
SCALARS = [
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64",
    "bool", "string", "bytes", "E", "N", ".E", "Nothing", "int", "group", "message",
]  # fmt: skip
DEFAULTS = [
    "1", "-1", "0x10", "-0x10", "017", "1.5", "-1.5", "1e3", ".5", "5.", "inf", "-inf", "nan", "true", "false", '"a"',
    "'a'",
    '"a" "b"', '"\\x41\\101\\n"', '"\\q"', "A", "Z", "2147483648", "4294967296", "18446744073709551616", "{}", "[1]", "",
]  # fmt: skip
NAMES = [
    "a", "A", "_", "_a", "a1", "1a", "a-b", "a.b", "é", "message", "string", "optional", "reserved", "to", "max", "option",
    "syntax", "package", "map", "oneof", "enum", "extend", "rpc", "stream", "returns", "true", "inf", "import", "group",
]  # fmt: skip
RESERVED = [
    "1", "2", "2, 3", "2 to 3", "2 to max", "max", "3 to 2", "2 to 2", "0", "-1", "0x10", "0x10 to 0x20", "2 to",
    "to 3", "",
    '"b"', "'b'", '"b", "c"', '"a"', '"b" "c"', "b", '2, "b"', "2, 2", "2 to 5, 4 to 6", '"b", "b"', '"1b"', "536870911",
    "536870912",
]  # fmt: skip
OPTIONS = [
    "deprecated = true", "deprecated = false", "deprecated = 1", "deprecated = TRUE", 'deprecated = "true"', "deprecated",
    "packed = true", "lazy = true", "json_name = 'x'", "json_name = x", 'json_name = "a" "b"', "ctype = CORD",
    "ctype = NONE",
    "nothing = true", "(my.option) = 1", "(my.option).field = 1", "(.my.option) = 1", "(my.option) = { a: 1 }",
    "(x) = -1.5",
    "(x) = { a: [1, 2], b { c: 'd' } }", "deprecated = true, deprecated = true", "deprecated = true, packed = false",
    "", ",", "deprecated = true,",
]  # fmt: skip
BODIES = [
    "", ";", ";;", "string a = 1", "string a = 1;;", "string a 1;", "string = 1;", "a = 1;", "string a = 1 string b = 2;",
    "optional string a = 1;", "required string a = 1;", "repeated string a = 1;", "optional repeated string a = 1;",
    "string a = 1; string b = 1;", "string a = 1; string a = 2;", "string a_b = 1; string aB = 2;",
    "string a = 1; message a {}",
    "message N {} message N {}", "enum E { A = 0; } enum F { A = 0; }", "enum E { A = 0; } message E {}", "enum E {}",
    "enum E { A = 1; }", "enum E { A = 0; A = 1; }", "enum E { A = 0; B = 0; }", "enum E { A = -1; }",
    "enum E { A = 0x10; }",
    "enum E { option allow_alias = true; A = 0; B = 0; }", "enum E { option allow_alias = true; A = 0; B = 1; }",
    "enum E { A = 2147483648; }", "enum E { A = 0; reserved 1; B = 1; }", "enum E { A = 0; reserved -5 to -1; }",
    "enum E { A = 0; reserved 2 to max; }", 'enum E { A = 0; reserved "A"; }', "enum E { A = 0 [deprecated = true]; }",
    "oneof o { string a = 1; }", "oneof o {}", "oneof o { repeated string a = 1; }", "oneof o { optional string a = 1; }",
    "oneof o { map<string, string> a = 1; }", "oneof o { string a = 1; } oneof o { string b = 2; }",
    "oneof o { string a = 1; } string a = 2;", "oneof o { string o = 1; }", "oneof o { oneof p { string a = 1; } }",
    "oneof o { option (x) = 1; string a = 1; }", "oneof o { message N {} }",
    "map<string, string> a = 1;", "map<double, string> a = 1;", "map<bytes, string> a = 1;", "map<bool, M> a = 1;",
    "map<string, map<string, string>> a = 1;", "repeated map<string, string> a = 1;",
    "map<string, string> a = 1; M AEntry = 2;",
    "map<string, string> a = 1; message AEntry {}", "map<M, string> a = 1;", "map<string> a = 1;",
    "map <string,string>a=1;",
    "map<string, E> a = 1; enum E { A = 1; }", "optional group G = 1 { optional string a = 1; }", "group G = 1 {}",
    "optional group g = 1 {}", "repeated group G = 1 { optional string a = 1; }", "extensions 100 to 199;",
    "extensions 100;",
    "extensions 100 to max;", "extensions 1; optional string a = 1;", "extend M { optional string e = 100; }",
    "message N { message O { N n = 1; } O o = 1; } N.O a = 1;", "M.N a = 1; message N {}", ".M a = 1;", "..M a = 1;",
    "string a = 1; reserved 1;", "string a = 19000;", "string a = 19999;", "reserved 19000;", "option deprecated = true;",
    "option message_set_wire_format = true;", "option map_entry = true;", "option (x) = 1;", "option nothing = 1;",
    "string a = 1 [default = 'x'];", "/* c */ string a /* d */ = 1; // e", "// only", "/* open", "# hash",
]  # fmt: skip
FILES = [
    "", " ", "hello", "message M {}", "message M {", "message M }", "}", "message {}",
    "message M { }\nmessage M { }", P3, P2,
    'syntax = "proto4";', "syntax = 'proto3';", 'syntax = "proto3"', "syntax = proto3;", 'syntax: "proto3";', P3 + P3,
    "message M {} " + P3, 'edition = "2023";', P3 + "package a;", P3 + "package a.b.c;", P3 + "package a; package b;",
    P3 + "package 1;", P3 + "package a-b;", P3 + "package ;", P3 + "package .a;",
    P3 + 'import "google/protobuf/any.proto";',
    P3 + 'import public "google/protobuf/any.proto";', P3 + 'import weak "google/protobuf/any.proto";',
    P3 + "import google;", P3 + 'import "google/protobuf/any.proto"; import "google/protobuf/any.proto";',
    P3 + 'import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }',
    P3 + "message M { google.protobuf.Timestamp t = 1; }", P3 + "option java_package = 'a';",
    P3 + "option java_package = 1;",
    P3 + 'option java_package = "a"; option java_package = "b";', P3 + "option optimize_for = SPEED;",
    P3 + "option optimize_for = FAST;", P3 + "option nothing = 1;", P3 + "option (x) = 1;",
    P3 + "option cc_enable_arenas = true;",
    P3 + "enum E { A = 0; }", P3 + "enum E { A = 0; } enum F { A = 0; }", P3 + "enum E { A = 0; } message E {}",
    P3 + "service S {}", P3 + "message M {} service S { rpc G (M) returns (M); }",
    P3 + "service S { rpc G (M) returns (M); }",
    P3 + "message M {} service S { rpc G (stream M) returns (stream M) { option deprecated = true; } }",
    P3 + "message M {} service S { rpc G (M) returns (M) {} rpc G (M) returns (M) {} }", P3 + "service M {} message M {}",
    P3 + "message M {} service S { rpc G (string) returns (M); }", P3 + "message M {} extend M { string a = 100; }",
    P2 + "message M { extensions 100 to 199; } extend M { optional string a = 100; }",
    P2 + "message M { extensions 100 to 199; } extend M { optional string a = 200; }",
    P2 + "message M { extensions 100 to 199; } extend M { required string a = 100; }",
    P2 + "extend N { optional int32 a = 1; }",
    P3 + "message M { M m = 1; }", P3 + "package a; message M { a.M m = 1; .a.M n = 2; M o = 3; }",
    P3 + "package a; message M { b.M m = 1; }", P3 + "message message { string string = 1; message message = 2; }",
    P3 + "\ufeffmessage M {}", "\ufeff" + P3, P3 + "message M { string a = 1; } \x00", P3 + ";;message M {};",
    P3 + "string a = 1;",
]  # fmt: skip


def texts() -> Iterator[str]:
    """Yield the texts."""
    yield from FILES
    for head in (P2, P3):
        for body in BODIES:
            yield f"{head}message M {{ {body} }}"
    for number in NUMBERS:
        yield f"{P3}message M {{ string a = {number}; }}"
        yield f"{P3}enum E {{ Z = 0; A = {number}; }}"
        yield f"{P2}message M {{ extensions {number}; }}"
    for kind in SCALARS:
        yield f"{P3}message M {{ {kind} a = 1; }} message N {{}} enum E {{ A = 0; }}"
        yield f"{P3}message M {{ repeated {kind} a = 1 [packed = true]; }} message N {{}} enum E {{ A = 0; }}"
        yield f"{P3}message M {{ map<{kind}, string> a = 1; }} message N {{}} enum E {{ A = 0; }}"
        yield f"{P3}message M {{ map<string, {kind}> a = 1; }} message N {{}} enum E {{ A = 0; }}"
    for kind in (
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float",
        "double",
        "bool",
        "string",
        "bytes",
        "E",
        "N",
    ):
        for default in DEFAULTS:
            yield f"{P2}message M {{ optional {kind} a = 1 [default = {default}]; }} message N {{}} enum E {{ A = 0; }}"
    for name in NAMES:
        yield f"{P3}message M {{ string {name} = 1; }}"
        yield f"{P3}message {name} {{ string a = 1; }}"
        yield f"{P3}enum E {{ {name} = 0; }}"
        yield f"{P3}enum {name} {{ A = 0; }}"
        yield f"{P3}message M {{ oneof {name} {{ string x = 1; }} }}"
        yield f"{P3}package {name}; message M {{}}"
    for reserved in RESERVED:
        yield f"{P3}message M {{ reserved {reserved}; string a = 1; }}"
        yield f"{P3}enum E {{ reserved {reserved}; a = 0; }}"
    for option in OPTIONS:
        yield f"{P3}message M {{ repeated int32 a = 1 [{option}]; }}"
        yield f"{P3}enum E {{ A = 0 [{option}]; }}"
        yield f"{P3}message M {{ option {option}; }}"
