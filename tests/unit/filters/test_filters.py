"""Filters of records: conditions that hold, texts that are no filters, and what bounds hostile ones."""

from __future__ import annotations

import json
import pickle
import time
from typing import Any

import pytest

from barnabas.filters import (
    FILTER_CHARS_MAX,
    Content,
    Fields,
    FilterError,
    FilterLimitError,
    compile_columns,
    compile_filter,
    texts_of,
)

ORDER = {
    "total": 63.33, "count": 3, "customer": "Ann", "is_paid": True, "note": None, "ref-no": "r 1",
    "items": [{"sku": "a1", "qty": 2}, {"sku": "b2", "qty": 1}], "ship": {"city": "Köln", "zip": "50667"},
}  # fmt: skip


def record(
    value: Any = ORDER, key: bytes | None = b"ann", headers: tuple[tuple[str, bytes | None], ...] = ()
) -> Fields:
    data = (
        value if isinstance(value, bytes) or value is None else json.dumps(value, ensure_ascii=False).encode()
    )
    contents = [(name, Content(header)) for name, header in headers]
    return Fields("orders", 2, 17, 1_767_225_600_000, Content(key), Content(data), contents)


@pytest.mark.parametrize(
    "text",
    [
        "$.total > 60", "$.total >= 63.33", "$.total = 63.33", "$.total == 63.33", "60 < $.total", "$.count != 4",
        '$.total > 60 and $.customer = "Ann"', "$.customer = 'Ann' or $.nothing = 1", "not $.count = 4",
        '($.count = 4 or $.count = 3) and not ($.customer = "bob")', "$.is_paid", "$.is_paid = true", "$.note = null",
        "$.ship.city = 'Köln'", "$['ship']['zip'] = '50667'", "$.ref-no = 'r 1'", "$['ref-no'] contains ' '",
        "$.items[0].sku = 'a1'", "$.items[-1].sku = 'b2'", "$.items[*].qty = 1", "$..sku = 'b2'", "$.*.city contains 'K'",
        "$.count in (1, 2, 3)", "$.customer in ('ann', 'Ann')", "$.customer ~ /^A.n$/", "$.customer ~ '(?i)ANN'",
        "$.items[*].qty < $.count", "$.ship.zip > '5'", "$.customer < 'Bob'", "$", "$.ship", "$.total>60 AND NOT $.note",
        "key = 'ann'", "key ~ /n+/", "key", "partition = 2", "offset >= 10 and offset < 20", "topic = 'orders'",
        "timestamp >= '2026-01-01'", "timestamp < '2026-01-01T00:00:00.001Z'", "timestamp = 1767225600000",
        "timestamp < '2026-01-01T01:00+00:30' or timestamp >= '2026-01-01T01:00+01:00'",
        "value contains 'sku'", "value.total > 60", "value ~ /total/", '"KÖLN"', "/b\\d/", '"ann" and $.count = 3',
        "-1 < $.count", "6.333e1 = $.total", '$.customer = "\\u0041nn"',
    ],
)  # fmt: skip
def test_conditions_that_hold(text: str) -> None:
    assert compile_filter(text).matches(record())


@pytest.mark.parametrize(
    "text",
    [
        "$.total > 64", "$.total = '63.33'", "$.customer > 1", "$.customer = 'ann'", "$.nothing", "$.nothing != 1",
        "$.nothing < 1", "$.note", "$.note < 1", "$.items[2]", "$.items[0][0]", "$.items.sku", "$.is_paid = 1",
        "$.count = true", "$.items[*].sku != 'a1'", "$.items = $.items", "$.customer ~ /^n/", "'nothing here'", "/ANN$/",
        "$.count in (4, '3')", "key = 'Ann'", "headers.trace", "not key", "$.total > 60 and $.count = 4", "partition > 2",
    ],
)  # fmt: skip
def test_conditions_that_do_not_hold(text: str) -> None:
    assert not compile_filter(text).matches(record())


def test_and_binds_closer_than_or_and_not_closest() -> None:
    assert compile_filter("$.count = 3 or $.count = 4 and $.count = 5").matches(record())
    assert not compile_filter("not $.count = 3 and $.count = 3").matches(record())


@pytest.mark.parametrize(
    ("key", "number", "text"), [(b"5", True, True), (b'"5"', False, True), (b"x", False, False)]
)
def test_a_whole_key_is_its_text_and_its_json(key: bytes, number: bool, text: bool) -> None:
    assert compile_filter("key = 5").matches(record(key=key)) is number
    assert compile_filter("key = '5'").matches(record(key=key)) is text
    assert compile_filter("key != '5'").matches(record(key=key)) is not text


def test_headers_are_named_and_any_of_a_name_will_do() -> None:
    fields = record(headers=(("trace", b"a"), ("trace", b'{"id": 7}'), ("x y", None)))
    for text in (
        "headers.trace = 'a'",
        "headers.trace.id = 7",
        "headers['x y'] = null",
        "'trace'",
        "headers.* = 'a'",
    ):
        assert compile_filter(text).matches(fields), text
    assert not compile_filter("headers.x = 1").matches(fields)
    assert not compile_filter("headers['x y']").matches(fields)


def test_a_tombstone_is_null_and_has_no_path() -> None:
    assert compile_filter("value = null").matches(record(None))
    assert not compile_filter("$.total or value or value != null or 'x y'").matches(record(None))


def test_values_that_are_not_json_have_text_alone() -> None:
    for data in (b"total 63", b"\xff\xfe", b"[" * 100_000, b"1" * 5_000):
        assert not compile_filter("$.total = 1 or $ = 1").matches(record(data))
    assert compile_filter("value = 'total 63' and 'TOTAL' and value contains '63'").matches(
        record(b"total 63")
    )


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "a condition is expected, not the end"),
        ("$.total >", 9, "a value is expected, not the end"),
        ("$.total >> 60", 9, "a value is expected, not '>'"),
        ("$.total > 60 $.x = 1", 13, "'and', 'or' or the end is expected, not '$'"),
        ("$.total > 60 and", 16, "a condition is expected, not the end"),
        ("($.total > 60", 13, "')' is expected, not the end"),
        ("$.a = 'x", 6, "this text has no end: \"'\" is missing"),
        ("$.a ~ /x", 6, "this regular expression has no end: '/' is missing"),
        ("$. = 1", 3, "a name or '*' is expected after '.', not '='"),
        ("$.a.0 = 1", 4, "a name or '*' is expected after '.', not '0'; an element is [0]"),
        ("$.a[x]", 4, "a number, a name in quotation marks or '*' is expected in brackets, not 'x'"),
        (
            "total > 60", 0,
            "'total' is not a field: $ (the value), key, value, headers, topic, partition, offset or timestamp",
        ),
        ("5", 0, "a number alone is not a condition"),
        ("$.a = = 1", 6, "a value is expected, not '='"),
        ("$.a ~ 5", 6, "a text or a regular expression is expected after '~'"),
        ("$.a ~ /(/", 6, "not a regular expression: missing ): \"(\""),
        ("$.a in 5", 7, "'(' is expected, not '5'"),
        ("timestamp > 'soon'", 12, "not a time: 2026-01-31T12:00:00Z or ms since 1970 is expected"),
        ("$.a = 1 & $.b = 2", 8, "'&' is not part of the language; write 'and'"),
        ("$.a ; 1", 4, "';' is not part of the language"),
        ("partition.x = 1", 9, "partition has no parts"),
        ("headers = 1", 0, "a header is headers.NAME"),
        ("'\\x' = 1", 0, "not a text: Invalid \\escape"),
        ("$..", 3, "a name or '*' is expected after '..', not the end"),
        ("not " * 60 + "$.a", 200, "conditions are nested more than 50 deep"),
        ("(" * 60 + "$.a", 50, "conditions are nested more than 50 deep"),
        ("$" + ".a" * 60, 101, "a path has at most 50 parts"),
        ("'" + "x" * 1_000 + "'", FILTER_CHARS_MAX, "a filter has at most 1000 characters"),
    ],
)  # fmt: skip
def test_what_is_no_filter_is_refused_with_its_place(text: str, position: int, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter(text)
    assert (caught.value.position, caught.value.reason) == (position, reason)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == f"character {position + 1}: {reason}"


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"z": 1}
    for _ in range(depth):
        value = {"a": value, "b": 1}
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$..a..a..a..a..z = 2", nested(90)),
        ("$..*..*..*..* = 2", nested(90)),
        ("$..* < $..*", [0] * 5_000),
        ("$.*.* = 'x'", [[*range(1_000)]] * 500),
        ("$[*] in (1, 2)", ["x"] * 400_000),
    ],
)
def test_a_record_that_takes_too_many_steps_ends_soon(text: str, value: Any) -> None:
    condition, fields = compile_filter(text), record(value)
    began = time.process_time()
    with pytest.raises(FilterLimitError):
        condition.matches(fields)
    assert time.process_time() - began < 2


def spans(text: str, fields: Fields) -> dict[str, list[str]]:
    marks = compile_filter(text).marks(fields)
    contents = {"key": fields.key, "value": fields.value}
    contents |= {f"header {number}": content for number, (_, content) in enumerate(fields.headers)}
    return {
        place: [(contents[place].text or "")[start:end] for start, end in ranges]
        for place, ranges in marks.items()
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$.total > 60", {"value": ["63.33"]}),
        ("$.total > 60 and key = 'ann'", {"value": ["63.33"], "key": ["ann"]}),
        ("$.total > 64 or $.customer = 'Ann'", {"value": ['"Ann"']}),
        ("$.items[*].qty = 1", {"value": ["1"]}),
        ("$..sku ~ /\\d/", {"value": ['"a1"', '"b2"']}),
        ("$.ship", {"value": ['{"city": "Köln", "zip": "50667"}']}),
        ("not $.total > 64", {}),
        ("'köln'", {"value": ["Köln"]}),
        ("/[ab]\\d/", {"value": ["a1", "b2"]}),
        ("value contains 'sku'", {"value": ["sku", "sku"]}),
        ("key ~ /n+/", {"key": ["nn"]}),
        ("partition = 2", {}),
        ("'trace'", {}),
        ("headers.trace.id = 7", {"header 0": ["7"]}),
        ("$.count in (3, 4)", {"value": ["3"]}),
    ],
)
def test_marks_are_the_places_that_made_it_match(text: str, expected: dict[str, list[str]]) -> None:
    fields = record(headers=(("trace", b'{"id": 7}'),))
    assert compile_filter(text).matches(fields)
    assert spans(text, fields) == expected


def test_marks_of_a_name_that_occurs_twice_are_at_the_last() -> None:
    fields = record(b' { "a" : 1, "a\\u0062": [1, 2], "a":\n 2 } ')
    assert spans("$.a = 2", fields) == {"value": ["2"]}
    assert compile_filter("$.a = 2").marks(fields)["value"] == [(37, 38)]
    assert spans("$.ab[-1] = 2", fields) == {"value": ["2"]}


def test_columns_are_the_values_of_paths_as_texts() -> None:
    columns = compile_columns(
        "$.customer, $.items[*].qty ,key,headers.trace, $.nothing, $.note, offset, $.ship"
    )
    assert texts_of(columns, record(headers=(("trace", b'{"id": 7}'),))) == {
        "$.customer": "Ann", "$.items[*].qty": "2, 1", "key": "ann", "headers.trace": '{"id": 7}', "$.nothing": None,
        "$.note": "null", "offset": "17", "$.ship": '{"city": "Köln", "zip": "50667"}',
    }  # fmt: skip
    (text,) = texts_of(compile_columns("$.long"), record({"long": "x" * 5_000})).values()
    assert text == "x" * 200 + " ..."
    assert texts_of(compile_columns("$..z..z"), record(nested(200))) == {"$..z..z": None}


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "a path or a field is expected, not the end"),
        ("$.a,", 4, "a path or a field is expected, not the end"),
        ("$.a, 5", 5, "a path or a field is expected, not '5'"),
        ("$.a $.b", 4, "',' or the end is expected, not '$'"),
        (", ".join(["$.a"] * 11), 50, "there are at most 10 columns"),
    ],
)
def test_what_is_no_column_is_refused_with_its_place(text: str, position: int, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        compile_columns(text)
    assert (caught.value.position, caught.value.reason) == (position, reason)
