"""The codecs against bytes that Kafka's own serialisers wrote (see compat/codec-oracle)."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.messages import all_messages, codec_of, from_json

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "wire" / "kafka.jsonl"


def golden():
    """Message name -> (version, bytes, values)."""
    rows = defaultdict(list)
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        name, version, data, values = json.loads(line)
        rows[name].append((version, bytes.fromhex(data), values))
    return rows


@pytest.mark.parametrize(("name", "rows"), golden().items(), ids=golden())
def test_kafkas_bytes_are_written_and_understood(name, rows):
    message = all_messages()[name]
    codec = codec_of(message)
    for version, data, values in rows:
        expected = from_json(message, version, values)
        assert codec.decode_whole(data, version) == expected
        assert codec.encode_bytes(expected, version) == data


def test_every_version_of_every_message_has_bytes():
    published = {(name, version) for name, message in all_messages().items() for version in message.versions}
    written = {(name, row[0]) for name, rows in golden().items() for row in rows}
    missing = sorted(f"{name} v{version}" for name, version in published - written)
    assert not missing, (
        f"Kafka's bytes are missing for {', '.join(missing)}. If a release of Kafka has these versions: name its "
        "kafka-clients in compat/codec-oracle (README.md), run make oracle ARGS='--write-golden "
        "tests/golden/wire/kafka.jsonl', and commit that file. If no release has them: take them out of schemas/ again"
    )
    assert written - published == set(), (
        "bytes without a schema: a published version must not be taken out of schemas/"
    )
