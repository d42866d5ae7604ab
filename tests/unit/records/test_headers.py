"""Headers read one field at a time: each differs from its neighbours, so that none is taken for another."""

import struct

import pytest

from barnabas.records import batch, building
from barnabas.records.errors import CorruptRecordsError
from barnabas.records.record import Record

NOW = 1_700_000_000_000
RISING = [Record(at, NOW + 10 * at, b"k%d" % at, b"v") for at in range(4)]


V2 = building.encode_batch(RISING)


def with_length(raw, length):
    return raw[:8] + struct.pack(">i", length) + raw[12:]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (V2[: batch.HEADER_SIZE - 1], "60 bytes are too few"),
        (b"", "0 bytes are too few"),
        (V2[:16] + b"\1" + V2[17:], "magic is 1"),
        (V2[:16] + b"\3" + V2[17:], "magic is 3"),
        (with_length(V2, 48), "length 48 is less"),
        (with_length(V2, -1), "length -1 is less"),
    ],
)
@pytest.mark.parametrize("before", [b"", b"x" * 7])
def test_batch_header_is_refused_with_its_reason(raw, problem, before):
    with pytest.raises(CorruptRecordsError, match=problem):
        batch.read_header(before + raw, len(before))
