"""Random ranges of a remote segment with a sparse index, beside its batches searched from end to end."""

from types import SimpleNamespace

import pytest

from barnabas.cluster.tiering.reading import RemoteIndexes, RemoteRange, read_records
from barnabas.log.format.offset_index import OffsetIndex
from tests.support.effort import drawing, examples
from tests.support.logs import batch, rebase
from tests.support.remote_segments import remote_segment


@pytest.mark.parametrize("run", range(examples(20)))
def test_range_of_a_segment_has_the_batches_of_its_offsets(run) -> None:
    random = drawing(run)
    base = start = random.choice((0, 1000))
    index, data, batches = OffsetIndex(start), b"", []
    for _ in range(random.randint(1, 15)):
        base += random.choice((0, 0, 0, 3))  # records that were compacted
        values = [b"v" * random.choice((10, 300, 9000))] * random.randint(1, 4)
        raw, last = batch(*values), base + len(values) - 1
        rebase(raw, 0, base, 0)
        if data and random.random() < 0.4:
            index.append(last, len(data))
        batches.append((base, last, bytes(raw), len(data)))
        data, base = data + raw, last + 1
    segment = remote_segment(start, base - 1, size=len(data))
    storage = SimpleNamespace(
        read=lambda _, at, size: data[at : at + size], read_index=lambda *_: bytes(index.entries)
    )
    indexes = RemoteIndexes(storage, 1 << 20)
    for _ in range(60):
        offset, max_bytes = random.randint(start, base), random.choice((0, 100, 900, 20_000, 1 << 20))
        end = random.choice((base, base, *(each[0] for each in batches)))
        part = RemoteRange(segment, offset, end, max_bytes, random.random() < 0.5)
        records = read_records(storage, indexes, part)
        rest = [each for each in batches if each[1] >= offset]
        if not rest or rest[0][0] >= end:
            assert records is None
        elif len(rest[0][2]) > max_bytes and not part.min_one_batch:
            assert records == (b"", offset, offset, -1)
        else:
            stop = rest[0][3] + max(max_bytes, len(rest[0][2]))
            whole = [each for each in rest if each[0] < end and each[3] + len(each[2]) <= stop]
            after = whole[-1][3] + len(whole[-1][2])
            assert records.data == data[rest[0][3] : stop if end == base else after]
            assert whole[-1][1] < records.upper_offset <= end
            assert records.next_offset == whole[-1][1] + 1
            assert records.next_position == (after if end == base else -1)
