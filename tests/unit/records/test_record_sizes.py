"""A topic bounds each record of a compressed batch, once it is decompressed (max.decompressed.message.bytes)."""

from dataclasses import replace

import pytest

from barnabas.records import building, legacy
from barnabas.records.compression import Codec
from barnabas.records.errors import Code, RecordsError
from barnabas.records.record import Record
from barnabas.records.rules import AppendRules
from tests.support.whole_steps import validate_produce

NOW = 1_700_000_000_000
LARGE = AppendRules(max_message_bytes=10_000_000, message_timestamp_after_max_ms=2**62)


def validate(buf, rules, api_version):
    return validate_produce(
        buf, api_version=api_version, config=rules, now_ms=NOW, first_offset=500, leader_epoch=8
    )


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("api_version", [2, 9])
@pytest.mark.parametrize("mode", ["full", "header"])
def test_decompressed_record_is_bounded_by_its_topic(codec, api_version, mode):
    if api_version == 2 and codec is Codec.ZSTD:
        return  # old formats have no zstd
    records = [Record(0, NOW, b"k", b"v"), Record(1, NOW, b"k", bytes(100_000)), Record(2, NOW, b"k", b"v")]
    raw = (
        building.encode_batch(records, codec=codec)
        if api_version == 9
        else legacy.encode_message_set(records, magic=1, codec=codec)
    )
    size = 100_009 if api_version == 9 else 100_023
    rules = replace(LARGE, max_decompressed_message_bytes=size, record_validation=mode)
    assert validate(bytearray(raw), rules, api_version).record_count == 3
    tighter = replace(rules, max_decompressed_message_bytes=size - 1)
    if not codec:
        assert validate(bytearray(raw), tighter, api_version).record_count == 3
    else:
        with pytest.raises(RecordsError, match=f"a record of {size} bytes exceeds") as caught:
            validate(bytearray(raw), tighter, api_version)
        assert caught.value.code == Code.INVALID_RECORD
