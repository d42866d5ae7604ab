"""Rows about records: appending wrong ones, and reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.records.batch import iter_batches, read_records
from barnabas.tools.conformance.batches import batch
from barnabas.tools.conformance.fixture import RECORDS, UNKNOWN_ID
from barnabas.tools.conformance.rows import LAST, Row, row
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.probing.harmless import records_of

BATCHES = (3, LAST)
ID_SINCE = 13
NEWER_EPOCH = 1_000_000


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_produce(), *_fetch()]


def _wrong_checksum(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 0x55])


def _unknown_topic(version: int) -> str:
    return "UNKNOWN_TOPIC_ID" if version >= ID_SINCE else "UNKNOWN_TOPIC_OR_PARTITION"


# --- Produce ----------------------------------------------------------------------------------------------------


def _appending(
    make: Callable[[int], bytes | None],
    *,
    index: int = 0,
    acks: int = -1,
    name: str = "",
    transactional_id: str | None = None,
) -> Callable[[Trial, int], dict[str, Any]]:
    def values(trial: Trial, version: int) -> dict[str, Any]:
        partition = {"index": index, "records": make(version)}
        topic = {
            "name": name or trial.topic,
            "topic_id": UNKNOWN_ID if name else trial.topic_id,
            "partition_data": [partition],
        }
        return {
            "acks": acks,
            "timeout_ms": 10_000,
            "topic_data": [topic],
            "transactional_id": transactional_id,
        }

    return values


def _produce() -> list[Row]:
    path = "responses.0.partition_responses.0."
    code = f"{path}error_code"
    one_batch = "A request has one batch of magic 2 for each partition, no more and no less: INVALID_RECORD."
    exists = "A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, a topic id UNKNOWN_TOPIC_ID."

    def as_it_comes(version: int) -> bytes:
        return records_of(version, b"v") if version < 3 else batch()

    return [
        row(
            "Produce",
            "an unknown partition",
            exists,
            "protocol guide",
            _appending(as_it_comes, index=9),
            {code: "UNKNOWN_TOPIC_OR_PARTITION", f"{path}base_offset": -1},
        ),
        row(
            "Produce",
            "a negative partition",
            exists,
            "protocol guide",
            _appending(as_it_comes, index=-1),
            {code: "UNKNOWN_TOPIC_OR_PARTITION"},
        ),
        row(
            "Produce",
            "an unknown topic",
            exists,
            "KIP-516",
            _appending(as_it_comes, name="conform-no-such-topic"),
            lambda _, v: {code: _unknown_topic(v)},
            with_topic=False,
        ),
        row(
            "Produce",
            "acks 2",
            "Acks are 0, 1 or -1: INVALID_REQUIRED_ACKS.",
            "Apache Kafka 0.9",
            _appending(as_it_comes, acks=2),
            {code: "INVALID_REQUIRED_ACKS"},
        ),
        row(
            "Produce",
            "acks -2",
            "Acks are 0, 1 or -1: INVALID_REQUIRED_ACKS.",
            "Apache Kafka 0.9",
            _appending(as_it_comes, acks=-2),
            {code: "INVALID_REQUIRED_ACKS"},
        ),
        row(
            "Produce",
            "a wrong checksum",
            "Records whose checksum is wrong are CORRUPT_MESSAGE.",
            "protocol guide",
            _appending(lambda v: _wrong_checksum(as_it_comes(v))),
            {code: "CORRUPT_MESSAGE"},
        ),
        row(
            "Produce",
            "no batch",
            one_batch,
            "KIP-98",
            _appending(lambda _: b""),
            {code: "INVALID_RECORD"},
            BATCHES,
        ),
        row(
            "Produce",
            "two batches",
            one_batch,
            "KIP-98",
            _appending(lambda _: batch() + batch()),
            {code: "INVALID_RECORD"},
            BATCHES,
        ),
        row(
            "Produce",
            "messages of magic 1",
            one_batch,
            "KIP-98",
            _appending(lambda _: records_of(2, b"v")),
            {code: "INVALID_RECORD"},
            BATCHES,
        ),
        row(
            "Produce",
            "a control batch",
            "Clients cannot append control batches: INVALID_RECORD.",
            "KIP-98",
            _appending(lambda _: batch(control=True)),
            {code: "INVALID_RECORD"},
            BATCHES,
        ),
        row(
            "Produce",
            "more records than there are",
            "The header of a batch counts its records rightly: INVALID_RECORD.",
            "protocol guide",
            _appending(lambda _: _with_count(batch(b"a", b"b"), 3)),
            {code: {"INVALID_RECORD", "CORRUPT_MESSAGE"}},
            BATCHES,
        ),
        row(
            "Produce",
            "zstd in an old version",
            "Records compressed with zstd need version 7: UNSUPPORTED_COMPRESSION_TYPE.",
            "KIP-110",
            _appending(lambda _: batch(codec=4)),
            {code: "UNSUPPORTED_COMPRESSION_TYPE"},
            (3, 6),
        ),
        row(
            "Produce",
            "a producer id that nobody was given",
            "A transactional batch needs a transaction that the coordinator knows of.",
            "KIP-890",
            _appending(
                lambda _: batch(transactional=True, producer_id=10**12, producer_epoch=0, base_sequence=0),
                transactional_id="conform-no-such-id",
            ),
            {
                code: {
                    "INVALID_PRODUCER_ID_MAPPING",
                    "INVALID_TXN_STATE",
                    "NOT_COORDINATOR",
                    "COORDINATOR_NOT_AVAILABLE",
                    "NETWORK_EXCEPTION",
                    "NOT_LEADER_OR_FOLLOWER",
                    "NOT_ENOUGH_REPLICAS",
                }
            },
            BATCHES,
            releases="4",
        ),
    ]


def _with_count(records: bytes, count: int) -> bytes:
    """Return a batch with another record count in its header, and a valid checksum."""
    from barnabas.records.batch import (
        CRC_OFFSET,
        LAST_OFFSET_DELTA_OFFSET,
        RECORDS_COUNT_OFFSET,
        compute_crc,
        read_header,
    )

    data = bytearray(records)
    data[RECORDS_COUNT_OFFSET : RECORDS_COUNT_OFFSET + 4] = count.to_bytes(4, "big")
    data[LAST_OFFSET_DELTA_OFFSET : LAST_OFFSET_DELTA_OFFSET + 4] = (count - 1).to_bytes(4, "big")
    crc = compute_crc(data, 0, read_header(data))
    data[CRC_OFFSET : CRC_OFFSET + 4] = crc.to_bytes(4, "big")
    return bytes(data)


# --- Fetch ------------------------------------------------------------------------------------------------------


def fetching(trial: Trial, offset: int = 0, *, index: int = 0, name: str = "", **more: Any) -> dict[str, Any]:
    """Return a Fetch of one partition, without a session; `more` are fields of the request or of the partition."""
    of_partition = {
        key: more.pop(key) for key in ("current_leader_epoch", "partition_max_bytes") if key in more
    }
    partition = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20} | of_partition
    topic = {
        "topic": name or trial.topic,
        "topic_id": UNKNOWN_ID if name else trial.topic_id,
        "partitions": [partition],
    }
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [topic],
    } | more


def _reads_all(data: Any) -> bool:
    """the records from the batch of the offset on"""
    batches = [at for at, header in iter_batches(data) if header.magic == 2]
    values = [record.value for at in batches for record in read_records(data, at)]
    return values == [b"v%d" % number for number in range(RECORDS)]


def _is_empty(value: Any) -> bool:
    """nothing"""
    return not value


def _fetch() -> list[Row]:
    path = "responses.0.partitions.0."
    code = f"{path}error_code"
    exists = "A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, a topic id UNKNOWN_TOPIC_ID."
    beyond = "An offset before the log start or after the log end is OFFSET_OUT_OF_RANGE."
    session = "A session that the broker does not have is FETCH_SESSION_ID_NOT_FOUND."
    return [
        row(
            "Fetch",
            "from the start",
            "Records are read from the batch on that has the offset.",
            "protocol guide",
            lambda t, _: fetching(t),
            lambda _, v: (
                {code: 0, f"{path}high_watermark": RECORDS, f"{path}records": _reads_all}
                | ({f"{path}last_stable_offset": RECORDS} if v >= 4 else {})
                | ({f"{path}log_start_offset": 0} if v >= 5 else {})
            ),
            (4, LAST),
        ),
        row(
            "Fetch",
            "from the middle of a batch",
            "A batch is sent whole, from its first record on.",
            "protocol guide",
            lambda t, _: fetching(t, 5),
            {code: 0, f"{path}records": _reads_all},
            (4, LAST),
        ),
        row(
            "Fetch",
            "committed only",
            "Without transactions nothing is aborted, and all is stable.",
            "KIP-98",
            lambda t, _: fetching(t, isolation_level=1),
            {
                code: 0,
                f"{path}last_stable_offset": RECORDS,
                f"{path}aborted_transactions": _is_empty,
                f"{path}records": _reads_all,
            },
            (4, LAST),
        ),
        row(
            "Fetch",
            "from the end",
            "At the log end there is nothing to read.",
            "protocol guide",
            lambda t, _: fetching(t, RECORDS),
            {code: 0, f"{path}high_watermark": RECORDS, f"{path}records": _is_empty},
        ),
        row(
            "Fetch",
            "a batch larger than the limit",
            "The first batch is sent even if it is larger than all limits.",
            "KIP-74",
            lambda t, _: fetching(t, max_bytes=1, partition_max_bytes=1),
            {code: 0, f"{path}records": _reads_all},
            (4, LAST),
        ),
        row(
            "Fetch",
            "after the end",
            beyond,
            "protocol guide",
            lambda t, _: fetching(t, RECORDS + 1),
            {code: "OFFSET_OUT_OF_RANGE"},
        ),
        row(
            "Fetch",
            "before the start",
            beyond,
            "protocol guide",
            lambda t, _: fetching(t, -1),
            {code: "OFFSET_OUT_OF_RANGE"},
        ),
        row(
            "Fetch",
            "an unknown partition",
            exists,
            "protocol guide",
            lambda t, _: fetching(t, index=9),
            {code: "UNKNOWN_TOPIC_OR_PARTITION"},
        ),
        row(
            "Fetch",
            "an unknown topic",
            exists,
            "KIP-516",
            lambda t, _: fetching(t, name="conform-no-such-topic"),
            lambda _, v: {code: _unknown_topic(v)},
            with_topic=False,
        ),
        row(
            "Fetch",
            "a leader epoch to come",
            "A leader epoch after the leader's own is UNKNOWN_LEADER_EPOCH.",
            "KIP-320",
            lambda t, _: fetching(t, current_leader_epoch=NEWER_EPOCH),
            {code: "UNKNOWN_LEADER_EPOCH"},
            (9, LAST),
        ),
        row(
            "Fetch",
            "an unknown session",
            session,
            "KIP-227",
            lambda t, _: fetching(t, session_id=123_456, session_epoch=5),
            {"error_code": "FETCH_SESSION_ID_NOT_FOUND", "responses.len": 0},
            (7, LAST),
        ),
        row(
            "Fetch",
            "no partitions",
            "Nothing is read where nothing is named.",
            "protocol guide",
            lambda t, _: fetching(t) | {"topics": []},
            {"responses.len": 0},
            with_topic=False,
        ),
    ]
