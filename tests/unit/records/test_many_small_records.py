"""Many records, or many bytes, in few compressed ones: refused where clients do not send them."""

import pytest

from barnabas.records import building, legacy
from barnabas.records.compression import Codec
from barnabas.records.errors import Code
from barnabas.records.record import Record
from barnabas.records.rules import AppendRules
from compat.hostile.batches import many_small, zero_deltas

from .test_validate import FULL, HEADER_ONLY, LARGE, NOW, refused, validate


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("rules", [FULL, HEADER_ONLY])
def test_more_records_than_the_bytes_can_hold_are_not_looked_at(codec, rules):
    error = refused(zero_deltas(500_000, codec), rules)
    assert error.code == Code.INVALID_RECORD
    assert "at most 4 can be in each" in error.message


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_misnumbered_records_are_renumbered_within_their_bytes(codec):
    count = 3_000 if codec is Codec.SNAPPY else 150
    error = refused(zero_deltas(count, codec), LARGE)
    assert error.code == Code.INVALID_RECORD
    assert "too many to be numbered anew" in error.message
    assert validate(zero_deltas(100, codec), LARGE).record_count == 100


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_as_many_empty_records_as_a_client_can_send_are_taken(codec):
    assert validate(many_small(2, codec, 50_000), LARGE).record_count == 50_000


@pytest.mark.parametrize("compression_type", ["producer", "uncompressed", "zstd"])
def test_decompression_is_bounded(compression_type):
    raw = building.encode_batch([Record(0, NOW, None, bytes(1 << 20))], codec=Codec.GZIP)
    rules = AppendRules(compression_type=compression_type, decompressed_bytes_max=1 << 20)
    assert refused(raw, rules).code == Code.MESSAGE_TOO_LARGE
    old = legacy.encode_message_set([Record(0, NOW, None, bytes(1 << 20))], magic=1, codec=Codec.GZIP)
    assert refused(old, rules, 2).code == Code.MESSAGE_TOO_LARGE
