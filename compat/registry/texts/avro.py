"""Texts of Avro schemas: every kind of default for every kind of type, names, attributes, JSON that is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Q = {"type": "record", "name": "Q", "fields": [{"name": "x", "type": "int"}]}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
TYPES: dict[str, Any] = {
    "null": "null", "boolean": "boolean", "int": "int", "long": "long", "float": "float", "double": "double",
    "bytes": "bytes", "string": "string", "enum": ENUM, "fixed": FIXED, "record": Q,
    "record with a default": {"type": "record", "name": "D", "fields": [{"name": "x", "type": "int", "default": 1}]},
    "array": {"type": "array", "items": "int"}, "array of unions": {"type": "array", "items": ["null", "string"]},
    "map": {"type": "map", "values": "long"}, "map of records": {"type": "map", "values": Q},
    "union null first": ["null", "int"], "union int first": ["int", "null"], "union of records": [Q, "null"],
    "union of union values": ["string", {"type": "array", "items": "int"}],
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
    "date": {"type": "int", "logicalType": "date"}, "uuid": {"type": "string", "logicalType": "uuid"},
}  # fmt: skip
DEFAULTS = [
    "null", "true", "0", "1", "-1", "1.0", "1.5", "1e2", "1e400", "2147483647", "2147483648", "-2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" + "0" * 40, '""', '"A"', '"Z"', '"ab"',
    '"\\u00ff"', '"\\u0100"', '"\\u00ff\\u00ff"', "[]", "[1]", "[1.5]", '["a"]', "[null]", "[2147483648]", "[[]]", "{}",
    '{"x":1}', '{"x":1.5}', '{"x":"1"}', '{"x":1,"y":2}', '{"y":1}', '{"x":null}', '{"x":{"x":1}}', '{"x":{}}',
    "NaN", "Infinity", "-Infinity", '"NaN"', '"Infinity"', '"-Infinity"', '"1.5"', '"-1e5"',
    '".5"', '"5."', '"1e400"', '"nan"', '"1_0"', '"x"', "-0.0", "01", "1.", ".5", "+1", "'a'",
]  # fmt: skip
NAMES = [
    "R", "r_1", "_", "1R", "my-rec", "R$x", "Ré", "é", "", " ", "a.b", ".R", "R.", "a..b", "a.1", "a-b.R", "null", "boolean",
    "int", "long", "float", "double", "bytes", "string", "record", "enum", "array", "map", "union", "fixed", "error",
    "a.int", "int.a", "a.record", "中", "R\n", "R ", "x" * 1000,
]  # fmt: skip
SPACES = ["", "a", "a.b", "a-b", "1", ".", "a.", ".a", "a..b", "é", "int", " "]
VALUES: list[Any] = [None, True, 0, 1, -1, 2147483648, 1.5, "", "a", "1", [], ["a"], [1], [None], {}, {"a": 1}]
JSON = [
    "", " ", "{", "}", "5", "null", "true", '""', "int", " int", "int ", '"int"', '"Int"', "'int'", '"int" x', '"int" "long"',
    '{"type":"int",}', '{"type":"int"} ', '{"type":"int"}x', "{'type':'int'}", '{type:"int"}', '/* c */ {"type":"int"}',
    '// c\n"int"', '"int" // c', '"int" // c\n', '"int" /* c */', '{"type": // c\n"int"}', '{"type":"int" /* c', '"a//b"', '{"type":"string","x":"/*a*/"}', '# c\n"int"', '{"type":"int" /* c */}', '{"type":"int","type":"long"}', '\ufeff"int"',
    '{"type":"string","doc":"a\nb"}', '{"type":"string","doc":"\\u00e9\\n\\""}', '{"type":"string","x":"\\q"}',
    '["int",]', "[]", "[", '["int"', "{}", '{"typ":"int"}', '{"type":{}}', '{"type":[]}',
    '{"type":null}', '{"type":5}', '{"type":["int","null"]}', '{"type":{"type":"int"}}', '{"type":{"type":{"type":"int"}}}',
    '{"type":{"type":"array","items":"int"}}', '{"type":{"type":"record","name":"R","fields":[]}}', '{"type":"union"}',
    '{"type":"nothing"}', '{"type":"a.b.Nothing"}', '{"type":"error","name":"X","fields":[]}', '{"protocol":"P"}',
    '{"type":"int","x":NaN}', '{"type":"int","x":01}', '{"type":"int","x":1e400}', '{"type":"int","x":undefined}',
]  # fmt: skip
UNIONS: list[Any] = [
    [], ["int"], ["int", "int"], [["null", "int"], "string"], ["null", Q, Q], ["null", Q, {**Q, "namespace": "n"}],
    ["int", {"type": "int", "logicalType": "date"}], ["int", {"type": "int"}], [{"type": "map", "values": "int"}] * 2,
    [{"type": "array", "items": "int"}, {"type": "array", "items": "long"}], [ENUM, FIXED, Q], ["null", "Nothing"],
]  # fmt: skip


def texts() -> Iterator[str]:
    """Yield the texts."""
    for kind in TYPES.values():
        for default in DEFAULTS:
            yield f'{{"type":"record","name":"R","fields":[{{"name":"a","type":{json.dumps(kind)},"default":{default}}}]}}'
    yield from JSON
    for name in NAMES:
        yield _text(_record(name=name))
        yield _text(_record([{"name": name, "type": "int"}]))
        yield _text({**ENUM, "symbols": [name]})
        yield _text({**ENUM, "name": name})
        yield _text({**FIXED, "name": name})
        yield _text(_record(aliases=[name]))
        yield _text(_record([{"name": "a", "type": "int", "aliases": [name]}]))
        yield _text(_record([{"name": "a", "type": Q}, {"name": "b", "type": name}]))
    for space in SPACES:
        yield _text(_record(namespace=space))
        yield _text(_record(namespace=space, name="b.R"))
        yield _text(_record([{"name": "a", "type": Q}, {"name": "b", "type": "Q"}], namespace=space))
        yield _text(_record([{"name": "a", "type": {**Q, "namespace": space}}, {"name": "b", "type": "Q"}], namespace="n"))
    yield from map(_text, UNIONS)
    for value in VALUES:
        for attribute in ("name", "namespace", "doc", "aliases", "fields", "type"):
            yield _text({**_record(), attribute: value})
        for attribute in ("name", "type", "doc", "order", "aliases", "default"):
            yield _text(_record([{"name": "a", "type": "int", attribute: value}]))
        for attribute in ("symbols", "default", "doc", "aliases"):
            yield _text({**ENUM, attribute: value})
        yield _text({**FIXED, "size": value})
        yield _text({"type": "array", "items": value})
        yield _text({"type": "map", "values": value})
        yield _text({"type": "int", "x": value})
        for attribute in ("logicalType", "precision", "scale"):
            yield _text({"type": "bytes", "logicalType": "decimal", "precision": 4, attribute: value})
            yield _text({**FIXED, "logicalType": "decimal", "precision": 4, attribute: value})
    yield from map(_text, _others())


def _others() -> Iterator[Any]:
    a = {"name": "a", "type": "int"}
    yield from ({"type": "array"}, {"type": "map"}, {"type": "record", "name": "R"}, {"type": "enum", "name": "E"})
    yield from ({"type": "fixed", "name": "F"}, {"type": "record", "fields": []}, {"type": "enum", "symbols": ["A"]})
    yield from ({**ENUM, "symbols": ["A", "A"]}, {**ENUM, "symbols": []}, {**ENUM, "default": "Z"}, {**FIXED, "size": 0})
    yield from (_record([a, a]), _record([a, {**a, "name": "A"}]), _record([{"name": "a"}]), _record([{"type": "int"}]))
    yield from (_record([5]), _record(["int"]), _record([[]]), _record([None]))
    for order in ("ascending", "descending", "ignore", "Ascending", "sideways"):
        yield _record([{**a, "order": order}])
    for other in (
        Q, {**Q, "doc": "d"}, {**Q, "fields": []}, {**Q, "fields": [{"name": "x", "type": "long"}]}, {**Q, "namespace": "n"},
        {**Q, "aliases": ["P"]}, {**Q, "x": 1}, {**ENUM, "name": "Q"},
    ):  # fmt: skip
        yield _record([{"name": "a", "type": Q}, {"name": "b", "type": other}])  # a name that is defined twice
    yield _record([{"name": "a", "type": ENUM}, {"name": "b", "type": {**ENUM, "symbols": ["B", "A"]}}])
    yield _record([{"name": "a", "type": ENUM}, {"name": "b", "type": ENUM}])
    yield _record([{"name": "a", "type": FIXED}, {"name": "b", "type": {**FIXED, "size": 3}}])
    yield _record([{"name": "a", "type": {"type": "record", "name": "R", "fields": []}}])  # within itself
    yield _record([{"name": "a", "type": ["null", "R"], "default": None}])
    yield _record([{"name": "a", "type": "R"}])
    yield _record([{"name": "a", "type": "Q"}, {"name": "b", "type": Q}])  # named before it is defined
    yield _record([{"name": "a", "type": "n.R"}], namespace="n")
    yield _record([{"name": "a", "type": {"type": "R"}}])
    yield _record([{"name": "a", "type": {"type": "Q"}}])
    for kind in ("int", "long", "string", "bytes", FIXED):
        for logical in ("date", "uuid", "decimal", "timestamp-millis", "duration", "whatever"):
            yield {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": logical}


def _record(fields: list[Any] | None = None, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields or [], **more}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
