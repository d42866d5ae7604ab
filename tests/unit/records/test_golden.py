"""Records that the clients of other people wrote: see tests/golden/records/README.md."""

from pathlib import Path

import pytest

from barnabas.records import batch, building, control, legacy
from barnabas.records.batch import TimestampType
from barnabas.records.compression import CODECS_BY_NAME
from barnabas.records.record import Record
from barnabas.records.rules import AppendRules
from tests.support.logs import rebase
from tests.support.whole_steps import down_convert, validate_produce

GOLDEN = Path(__file__).parents[2] / "golden" / "records"
T = 1_700_000_000_000
APPEND_TIME = T + 99_999
HEADERS = [("h1", b"a"), ("h2", None), ("ünï", b"")]
COMMON = [
    (0, T, b"key-0", b"value-0"),
    (1, T + 5, None, b"v" * 300),
    (2, T - 10, b"tombstone", None),
    (3, T + 70_000, b"", b""),
]
LONG = (T + 6, b"long", b"0123456789" * 10_000)
MARKERS = ["v2-commit", "v2-abort"]

JAVA = sorted(path for path in (GOLDEN / "java-3.9.1").glob("*.bin") if path.stem not in MARKERS)
PYTHON = sorted(
    path for path in GOLDEN.glob("*/*.bin") if "python" in path.parent.name or "aio" in path.parent.name
)


def test_all_fixtures_are_there():
    assert len(JAVA) == 33
    assert len(PYTHON) == 24


def name_of(path):
    return f"{path.parent.name}-{path.stem}"


def codec_of(path):
    return CODECS_BY_NAME.get(
        path.stem.split("-")[1], CODECS_BY_NAME["gzip" if "gzip" in path.stem else "none"]
    )


def read_all(raw):
    records = []
    for pos, header in batch.iter_batches(raw):
        assert batch.check_crc(raw, pos, header)
        read = batch.read_records if header.magic == 2 else legacy.read_records
        records += read(raw, pos)
    assert batch.whole_size(raw) == len(raw)
    return records


def expected_java(path):
    magic = int(path.stem[1])
    base = 1000 if "offset" in path.stem or "append-time" in path.stem else 0
    rows = [*COMMON, (5, T + 5, b"key-5", b"after a gap")]
    if codec_of(path):
        rows.append((6, *LONG))
    records = [Record(base + offset, timestamp, key, value) for offset, timestamp, key, value in rows]
    if magic == 2:
        records[0].headers = HEADERS
    for record in records:
        if magic == 0:
            record.timestamp = -1
        elif "append-time" in path.stem:
            record.timestamp = APPEND_TIME
    return records


def expected_python(path):
    magic = int(path.stem[1])
    rows = [*COMMON, (4, *LONG)] if codec_of(path) else COMMON
    records = [
        Record(offset, timestamp if magic else -1, key, value) for offset, timestamp, key, value in rows
    ]
    if magic == 2:
        records[0].headers = HEADERS
    return records


@pytest.mark.parametrize("path", JAVA, ids=name_of)
def test_records_of_the_java_client(path):
    assert read_all(path.read_bytes()) == expected_java(path)


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_records_of_the_python_clients(path):
    assert read_all(path.read_bytes()) == expected_python(path)


@pytest.mark.parametrize("path", JAVA + PYTHON, ids=name_of)
def test_header_has_codec_and_timestamp_type(path):
    header = batch.read_any_header(path.read_bytes())
    assert header.codec == codec_of(path)
    if header.magic == 0:
        assert header.timestamp_type is TimestampType.NO_TIMESTAMP
    else:
        assert (header.timestamp_type is TimestampType.LOG_APPEND_TIME) == ("append-time" in path.stem)


@pytest.mark.parametrize(
    "path", [p for p in JAVA if p.stem.startswith("v2") and not codec_of(p)], ids=name_of
)
def test_our_bytes_are_those_of_the_java_client(path):
    raw = path.read_bytes()
    header = batch.read_header(raw)
    ours = building.encode_batch(
        expected_java(path.with_stem("v2-none")),
        base_offset=0,
        timestamp_type=header.timestamp_type,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        leader_epoch=7,
        delete_horizon_ms=header.delete_horizon_ms,
    )
    moved = bytearray(ours)
    rebase(moved, 0, header.base_offset, 7)
    assert moved == raw


@pytest.mark.parametrize("path", [p for p in JAVA if p.stem.startswith("v2")], ids=name_of)
def test_producer_state_in_the_header(path):
    header = batch.read_header(path.read_bytes())
    if "transactional" in path.stem or "idempotent" in path.stem:
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 3, 40)
        assert header.last_sequence == 40 + header.last_offset_delta
    else:
        assert not header.has_producer_id
        assert header.last_sequence == -1
    assert header.is_transactional == ("transactional" in path.stem)
    assert header.delete_horizon_ms == (T + 1_000_000 if "delete-horizon" in path.stem else None)


@pytest.mark.parametrize("path", [p for p in JAVA + PYTHON if p.stem[1] in "01"], ids=name_of)
def test_base_offset_of_a_message_set(path):
    assert legacy.base_offset(path.read_bytes()) == (
        1000 if "offset" in path.stem or "append" in path.stem else 0
    )


@pytest.mark.parametrize("name", MARKERS)
def test_end_markers_of_the_java_client(name):
    raw = (GOLDEN / "java-3.9.1" / f"{name}.bin").read_bytes()
    header = batch.read_header(raw)
    assert header.is_control
    assert header.is_transactional
    (record,) = batch.read_records(raw)
    marker = control.parse_end_marker(record)
    assert marker is not None
    assert marker.is_commit == (name == "v2-commit")
    assert marker.coordinator_epoch == 21
    assert raw == control.encode_end_marker(
        commit=marker.is_commit,
        producer_id=4000,
        producer_epoch=3,
        coordinator_epoch=21,
        timestamp_ms=T,
        base_offset=17,
        leader_epoch=7,
    )


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_a_leader_takes_what_the_python_clients_produce(path):
    raw = path.read_bytes()
    magic = int(path.stem[1])
    result = validate_produce(
        bytearray(raw), api_version=9 if magic == 2 else magic, config=AppendRules(), now_ms=T,
        first_offset=77, leader_epoch=4,
    )  # fmt: skip
    expected = expected_python(path)
    for record in expected:
        record.offset += 77
    assert batch.read_records(result.records) == expected
    header = batch.read_header(result.records)
    assert result.batches == [header]
    assert batch.check_crc(result.records, 0, header)
    assert (header.leader_epoch, header.codec) == (4, codec_of(path))
    assert (result.base_offset, result.last_offset) == (77, 77 + len(expected) - 1)
    assert result.max_timestamp == (T + 70_000 if magic else -1)


@pytest.mark.parametrize("path", [p for p in JAVA if p.stem[1] == "2" and "zstd" not in p.stem], ids=name_of)
@pytest.mark.parametrize("magic", [0, 1])
def test_down_conversion_keeps_offsets_and_codec(path, magic):
    raw = path.read_bytes()
    expected = expected_java(path)
    converted = down_convert(raw, magic, bytes_max=1 << 20)
    for record in expected:
        record.headers = []
        if magic == 0:
            record.timestamp = -1
    assert read_all(converted) == expected
    assert batch.read_any_header(converted).codec == codec_of(path)
