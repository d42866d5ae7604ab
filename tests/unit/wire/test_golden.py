"""The codecs against bytes that Kafka's own serialisers wrote (see compat/codec-oracle)."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.messages import all_messages, codec_of, from_json

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "wire" / "kafka.jsonl"


def golden():
    """Message name -> (version, bytes, values)."""
    found = defaultdict(list)
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        name, version, data, values = json.loads(line)
        found[name].append((version, bytes.fromhex(data), values))
    return found


@pytest.mark.parametrize(("name", "rows"), golden().items(), ids=str)
def test_kafkas_bytes_are_written_and_understood(name, rows):
    message = all_messages()[name]
    codec = codec_of(message)
    for version, data, values in rows:
        expected = from_json(message, version, values)
        assert codec.decode_whole(data, version) == expected
        assert codec.encode_bytes(expected, version) == data


def test_there_are_bytes_for_every_version_of_every_message():
    published = {(name, version) for name, message in all_messages().items() for version in message.versions}
    written = {(name, row[0]) for name, rows in golden().items() for row in rows}
    assert published - written == set(), (
        "write them: make oracle ARGS='--write-golden tests/golden/wire/kafka.jsonl'"
    )
    assert written - published == set(), "no schema has these"
