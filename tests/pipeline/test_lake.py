"""Loading and auditing: exact to the offset, and loud when it cannot be."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_pipeline import schema
from barnabas_pipeline.jobs.audit import AuditReport, audit
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.lake import frames
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.log.model import LogOptions
from barnabas_pipeline.log.transports import open_log
from barnabas_pipeline.simulate.bad import choose

from .conftest import BAD_FRACTION, SITE, Broker, Stream

HOUR_MS = 3_600_000
LATER = SITE.start_ms + 48 * HOUR_MS


def options(stream: Stream, root: Path, topic: str, **more: Any) -> LoadOptions:
    transport = more.pop("transport", "wire")
    log = LogOptions(topic, transport, stream.bootstrap, (str(stream.broker.data),))
    return LoadOptions(log, str(root / topic), schema.load(topic), **more)


def check(spark: Any, loading: LoadOptions, **more: Any) -> AuditReport:
    return audit(spark, loading, **{"now_ms": LATER, "lateness_ms": 0, **more})


def good_events(stream: Stream, kind: str) -> Counter[str]:
    spoilt = choose(len(stream.events), BAD_FRACTION, SITE.seed)
    return Counter(
        json.dumps(event.fields, sort_keys=True)
        for n, event in enumerate(stream.events)
        if event.kind == kind and n not in spoilt
    )


def rows_of(spark: Any, loading: LoadOptions) -> Counter[str]:
    names = [field.name for field in loading.schema.fields]
    rows = frames.events(spark, Table(loading.root)).select(*names).collect()
    return Counter(json.dumps(row.asDict(), sort_keys=True) for row in rows)


@pytest.mark.parametrize("transport", ["wire", "disk"])
def test_load_has_good_events_as_rows_and_bad_ones_as_letters(
    spark: Any, stream: Stream, tmp_path: Path, transport: str
) -> None:
    loading = options(stream, tmp_path, "views", transport=transport, split_bytes=200_000)
    summary = load(spark, loading)
    assert rows_of(spark, loading) == good_events(stream, "views")
    spoilt = choose(len(stream.events), BAD_FRACTION, SITE.seed)
    expected = Counter(reason for n, reason in spoilt.items() if stream.events[n].kind == "views")
    assert summary.reasons == expected
    letters = frames.dead_letters(spark, Table(loading.root)).collect()
    assert Counter(row.reason for row in letters) == expected
    assert all(row.value is not None and row.key is not None for row in letters)
    report = check(spark, loading)
    assert report.problems == []
    assert report.rows_compared == len(stream.of("views")) == report.offsets
    assert report.lag == 0


def test_portions_equal_one_commit_and_a_reload_is_empty(spark: Any, stream: Stream, tmp_path: Path) -> None:
    loading = options(stream, tmp_path, "votes", offsets_per_commit_max=1000, target_file_bytes=20_000)
    summary = load(spark, loading)
    assert summary.commits == -(-len(stream.of("votes")) // 1000)
    assert rows_of(spark, loading) == good_events(stream, "votes")
    assert load(spark, loading).commits == 0
    assert check(spark, loading).problems == []


def test_rows_lie_in_the_hour_of_their_event_even_if_late(spark: Any, stream: Stream, tmp_path: Path) -> None:
    loading = options(stream, tmp_path, "votes")
    load(spark, loading)
    table = Table(loading.root)
    late = sum(event.delivered // HOUR_MS > event.ts // HOUR_MS for event in stream.of("votes"))
    assert late > 10, "the simulation delivers some late"
    pieces = table.pieces()
    assert {file.path for file in pieces} == set(table.files().rows)
    for piece in pieces:
        file = table.files().rows[piece.path]
        assert f"event_hour={piece.partition[0]}" in file.path
        hours = {ms // HOUR_MS for ms in (file.event_time_min, file.event_time_max)}
        assert hours == {*file.hours} == {piece.partition[0] // HOUR_MS}


# --- what is gone ---------------------------------------------------------------------------------------------------


def small_topic(broker: Broker, count: int, topic: str = "logins") -> LogOptions:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"retention.ms": "-1"}  # the simulated time is long ago
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(10)
    send_small(broker, topic, 0, count)
    return LogOptions(topic, "wire", broker.bootstrap)


def send_small(broker: Broker, topic: str, start: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(start, start + count):
        value = b'{"ts":%d,"member":"m%d","ip":"i","ok":true}' % (SITE.start_ms, n)
        producer.produce(topic, value, b"%d" % n, timestamp=SITE.start_ms)
    producer.flush(10)


# --- damage and transactions ----------------------------------------------------------------------------------------


def test_damaged_batches_are_dead_letters_with_their_bytes(spark: Any, tmp_path: Path) -> None:
    """Segment files by hand: a flipped bit in one batch, and a length that cannot be in another."""
    from barnabas.log.format import checkpoints
    from barnabas.log.format.offset_index import OffsetIndex
    from barnabas.records.building import encode_batch
    from barnabas.records.record import Record

    directory = tmp_path / "data" / "logins-0"
    directory.mkdir(parents=True)
    batches = []
    for base in range(0, 50, 10):
        value = b'{"ts":%d,"member":"m","ip":"i","ok":true}' % SITE.start_ms
        records = [Record(base + n, SITE.start_ms, None, value) for n in range(10)]
        batches.append(bytearray(encode_batch(records, base_offset=base)))
    batches[1][100] ^= 1
    batches[3][8:12] = b"\x7f\xff\xff\xff"
    index, position = OffsetIndex(0), 0
    for n, data in enumerate(batches):
        index.append(n * 10 + 9, position)
        position += len(data)
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    (directory / f"{0:020d}.index").write_bytes(bytes(index.entries))
    checkpoint = checkpoints.encode_offsets({("logins", 0): 50})
    (tmp_path / "data" / "replication-offset-checkpoint").write_bytes(checkpoint)
    log = LogOptions("logins", "disk", log_dirs=(str(tmp_path / "data"),))
    loading = LoadOptions(log, str(tmp_path / "lake"), schema.load("logins"))
    summary = load(spark, loading)
    assert (summary.loaded, summary.dead) == (30, 20)
    letters = frames.dead_letters(spark, Table(loading.root)).orderBy("offset").collect()
    assert [(row.offset, row.end_offset, row.reason) for row in letters] == [(10, 20, "crc"), (30, 40, "crc")]
    assert [bytes(row.value) for row in letters] == [bytes(batches[1]), bytes(batches[3])]
    offsets = [
        row["_offset"] for row in frames.events(spark, Table(loading.root)).orderBy("_offset").collect()
    ]
    assert offsets == [*range(10), *range(20, 30), *range(40, 50)]
    assert check(spark, loading, now_ms=SITE.start_ms).problems == []


@pytest.mark.parametrize("transport", ["wire", "disk"])
def test_aborted_and_open_transactions_are_not_loaded(
    spark: Any, tmp_path: Path, new_broker: Callable[..., Broker], transport: str
) -> None:
    broker = new_broker()
    small_topic(broker, 5)

    def produce(producer: Producer, count: int) -> None:
        for n in range(count):
            value = b'{"ts":%d,"member":"m%d","ip":"i","ok":true}' % (SITE.start_ms, n)
            producer.produce("logins", value, timestamp=SITE.start_ms)
        producer.flush(20)

    def begin(name: str, count: int) -> Producer:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
        producer.init_transactions(20)
        producer.begin_transaction()
        produce(producer, count)
        return producer

    begin("one", 7).commit_transaction(20)
    begin("two", 11).abort_transaction(20)
    open_one = begin("three", 3)
    send_small(broker, "logins", 5, 4)  # behind what is open: not to be seen yet
    log = LogOptions("logins", transport, broker.bootstrap, (str(broker.data),))
    loading = LoadOptions(log, str(tmp_path / "lake"), schema.load("logins"))
    wait_for_high_watermark(log, 5 + 8 + 12 + 3 + 4)
    summary = load(spark, loading)
    assert (summary.loaded, summary.aborted, summary.control) == (12, 11, 2)
    open_one.commit_transaction(20)
    wait_for_high_watermark(log, 5 + 8 + 12 + 3 + 4 + 1)
    assert load(spark, loading).loaded == 7
    report = check(spark, loading, now_ms=SITE.start_ms)
    assert (report.problems, report.offsets, report.lag) == ([], 33, 0)


def wait_for_high_watermark(options: LogOptions, offset: int) -> None:
    """The disk transport sees what the broker has checkpointed; markers are written after the client was answered."""
    deadline = time.monotonic() + 30
    while True:
        log = open_log(options)
        bounds = log.bounds()[0]
        log.close()
        if bounds.high_watermark == offset:
            return
        assert time.monotonic() < deadline, bounds
        time.sleep(0.05)
