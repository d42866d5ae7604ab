"""Records as they are shown and saved: whatever a producer has sent."""

import csv
import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import ConsumedRecord
from barnabas.console.decoding import Decoding, plain_text
from barnabas.console.exporting import as_csv, as_json_lines, cell
from barnabas.console.known_bugs import warnings_of


@pytest.mark.parametrize(
    ("data", "form", "expected"),
    [
        (b'{"a": 1}', "auto", ("json", '{"a": 1}')),
        (b"12", "auto", ("json", "12")),
        (b"plain", "auto", ("text", "plain")),
        (b"", "auto", ("text", "")),
        (b"\x00\xff", "auto", ("hex", "00 ff")),
        (b"a\x00b", "auto", ("hex", "61 00 62")),
        (b"a\x00b", "text", ("text", "a\x00b")),
        (b'{"a": 1}', "hex", ("hex", "7b 22 61 22 3a 20 31 7d")),
        (b"[" * 100_000, "json", ("text", "[" * 100_000)),
        (b"\xff", "text", ("hex", "ff")),
    ],
)
def test_bytes_are_shown_as_what_they_can_be_read_as(
    data: bytes, form: str, expected: tuple[str, str]
) -> None:
    assert plain_text(data, form) == expected


class Known:
    """Stands in for a registry of schemas."""

    async def decode(self, data: bytes) -> Any:
        if data.endswith(b"bad"):
            raise ValueError("schema 9 is not known")
        return (
            None if data.endswith(b"none") else SimpleNamespace(value={"id": 7}, format="avro", schema_id=3)
        )


async def test_a_value_with_a_schema_is_read_through_the_registry() -> None:
    decoding = Decoding("auto", Known())
    found = await decoding.payload(b"\x00\x00\x00\x00\x03abc")
    assert found == {"form": "avro", "text": '{"id": 7}', "schema_id": 3, "size": 8}
    assert (await decoding.payload(b'{"a":1}'))["form"] == "json"  # not framed: nobody is asked
    assert (await decoding.payload(b"\x00\x00\x00\x00\x03none"))["form"] == "hex"
    failed = await decoding.payload(b"\x00\x00\x00\x00\x09bad")
    assert failed["form"] == "hex"
    assert "schema 9 is not known" in failed["problem"]
    assert (await Decoding("hex", Known()).payload(b"\x00\x00\x00\x00\x03abc"))["form"] == "hex"


async def test_what_is_cut_says_so() -> None:
    found = await Decoding("auto", None, 10).payload(b"x" * 50)
    assert found == {"form": "text", "text": "x" * 10, "cut": True, "size": 50}
    assert await Decoding("auto", None).payload(None) == {"form": "null", "text": "", "size": -1}


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "|calc", "%0A=1", "＝1+1", "＠x"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula(text: str) -> None:
    assert cell(text) == f"'{text}"
    assert cell(f"a{text}") == f"a{text}"


@pytest.mark.parametrize("text", FORMULAS)
async def test_no_cell_of_an_export_is_a_formula(text: str) -> None:
    record = ConsumedRecord("t", 0, 1, -1, text.encode(), text.encode(), [(text, text.encode())])
    rows = list(
        csv.reader(io.StringIO(as_csv([await Decoding("text", None).record(record)]).decode(), newline=""))
    )
    assert rows[0] == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert rows[1][:3] == ["0", "1", ""]
    assert rows[1][3] == rows[1][4] == f"'{text}"
    assert json.loads(rows[1][5]) == {text: text}  # begins with a brace


async def test_an_export_in_json_is_what_was_sent() -> None:
    record = ConsumedRecord("t", 0, 1, 5, b"=k", None, [("h\udcff", None)])
    (line,) = as_json_lines([await Decoding("auto", None).record(record)]).splitlines()
    found = json.loads(line)
    assert found["key"] == {"form": "text", "text": "=k", "size": 2}
    assert found["value"]["form"] == "null"
    assert found["headers"][0]["name"] == "h?"


@pytest.mark.parametrize(
    ("name", "version", "is_warned"),
    [
        ("librdkafka", "2.3.0", True),
        ("confluent-kafka-python", "2.9.0-rdkafka-2.3.0", True),
        ("librdkafka", "2.4.0", False),
        ("sarama", "1.47.0", True),
        ("sarama", "", False),
        ("", "", False),
    ],
)
def test_clients_with_a_known_bug_are_named(name: str, version: str, is_warned: bool) -> None:
    assert bool(warnings_of(name, version)) == is_warned


def test_a_warning_names_the_release_of_librdkafka_and_not_that_of_its_binding() -> None:
    for name, version in (("librdkafka", "2.3.0"), ("confluent-kafka-python", "2.9.0-rdkafka-2.3.0")):
        (warning,) = warnings_of(name, version)
        assert warning.startswith("librdkafka 2.3.0: known bug: one error makes it ask")
        assert warning.endswith("(librdkafka-metadata-loop)")
