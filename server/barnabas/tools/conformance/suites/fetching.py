"""Fetch and ListOffsets: waiting, limits, sessions, what is gone, and offsets by time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import trio

from barnabas.tools.conformance.batches import batch
from barnabas.tools.conformance.cases import Case
from barnabas.tools.conformance.suites.acting import (
    append,
    appended,
    described,
    offset_at,
    read,
    reading,
    values_in,
)
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.inspection.errors import code_name

SESSIONS = 7
WAIT_MS = 15_000


def cases() -> Iterator[Case]:
    """Return the cases of this module."""
    yield from described(
        "fetching",
        "KIP-74",
        {
            "waits for records": _waits,
            "waits no longer": _waits_no_longer,
            "one batch of many": _one_batch,
            "limit of a request": _request_limit,
            "in the order of the request": _order,
        },
        "Produce",
        "Fetch",
    )
    yield from described(
        "fetch sessions",
        "KIP-227",
        {
            "only what is new": _incremental,
            "forgotten": _forgotten,
            "a wrong epoch": _wrong_epoch,
            "closed": _closed,
        },
        "Produce",
        Fetch=SESSIONS,
    )
    yield from described(
        "offsets of logs",
        "KIP-79, KIP-107",
        {
            "by time": _by_time,
            "after records are deleted": _deleted,
        },
        "Produce",
        "ListOffsets",
        "DeleteRecords",
    )


async def _waits(trial: Trial) -> None:
    """A Fetch with min_bytes waits until records come."""
    topic = await trial.new_topic()
    responses: list[Any] = []

    async def fetch() -> None:
        responses.append(await read(trial, topic, max_wait_ms=WAIT_MS, min_bytes=1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch)
        async with trial.connection() as wire:
            await append(trial, topic, batch(b"a"), wire=wire)
    trial.check(values_in(responses[0].records) == [b"a"], f"read {values_in(responses[0].records)}")


async def _waits_no_longer(trial: Trial) -> None:
    """A Fetch that gets nothing is answered, empty, when max_wait_ms have passed."""
    topic = await trial.new_topic()
    began = trio.current_time()
    response = await read(trial, topic, max_wait_ms=300, min_bytes=1)
    trial.check(not response.records, "there are records")
    trial.check(
        trio.current_time() - began > 0.25,
        f"answered after {(trio.current_time() - began) * 1000:.0f} ms, not 300",
    )


async def _one_batch(trial: Trial) -> None:
    """A partition's limit holds for all but its first batch."""
    topic = await trial.new_topic()
    for number in range(5):
        await appended(trial, topic, batch(b"%d" % number * 500))
    response = await read(trial, topic, partition_max_bytes=700)
    trial.check(
        len(values_in(response.records)) == 1, f"{len(values_in(response.records))} batches are read, not 1"
    )


async def _request_limit(trial: Trial) -> None:
    """A request's limit holds for all partitions together, but for the first batch."""
    topic = await trial.new_topic(2)
    for index in range(2):
        await appended(trial, topic, batch(bytes(2000)), index=index)
    asked = reading(topic, max_bytes=1000)
    asked["topics"][0]["partitions"].append(
        {"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    )
    answer = await trial.ask("Fetch", asked)
    sizes = [len(partition.records or b"") for partition in answer.responses[0].partitions]
    trial.check(sizes[0] > 2000 and sizes[1] == 0, f"the partitions have {sizes} bytes")


async def _order(trial: Trial) -> None:
    """Partitions are answered in the order of the request."""
    topic = await trial.new_topic(3)
    asked = reading(topic)
    asked["topics"][0]["partitions"] = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1000} for index in (2, 0, 1)
    ]
    answer = await trial.ask("Fetch", asked)
    indexes = [partition.partition_index for partition in answer.responses[0].partitions]
    trial.check(indexes == [2, 0, 1], f"the order is {indexes}, not 2, 0, 1")


# --- sessions ---------------------------------------------------------------------------------------------------


async def _begun(trial: Trial) -> tuple[tuple[str, bytes], int]:
    """Begin a session with two partitions; return topic and session id."""
    topic = await trial.new_topic(2)
    asked = reading(topic, session_epoch=0)
    asked["topics"][0]["partitions"].append(
        {"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    )
    answer = await trial.ask("Fetch", asked)
    trial.expect(answer, {"error_code": 0, "responses.0.partitions.len": 2})
    if not answer.session_id:
        from barnabas.tools.conformance.cases import NotApplicableError

        raise NotApplicableError("the broker keeps no fetch sessions")
    return topic, answer.session_id


def _next(session_id: int, epoch: int, **more: Any) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_id": session_id,
        "session_epoch": epoch,
        "topics": [],
    } | more


async def _incremental(trial: Trial) -> None:
    """A session answers with the partitions that have something new."""
    topic, session = await _begun(trial)
    await trial.expecting(
        "Fetch", _next(session, 1), {"error_code": 0, "session_id": session, "responses.len": 0}
    )
    await appended(trial, topic, batch(b"a"), index=1)
    answer = await trial.ask("Fetch", _next(session, 2))
    records_by_partition = [
        (partition.partition_index, values_in(partition.records))
        for topic_response in answer.responses
        for partition in topic_response.partitions
    ]
    trial.check(records_by_partition == [(1, [b"a"])], f"answered with {records_by_partition}")


async def _forgotten(trial: Trial) -> None:
    """A partition that is forgotten is answered no more."""
    topic, session = await _begun(trial)
    forgotten = [{"topic": topic[0], "topic_id": topic[1], "partitions": [1]}]
    await trial.expecting("Fetch", _next(session, 1, forgotten_topics_data=forgotten), {"error_code": 0})
    await appended(trial, topic, batch(b"a"), index=1)
    await trial.expecting("Fetch", _next(session, 2), {"error_code": 0, "responses.len": 0})


async def _wrong_epoch(trial: Trial) -> None:
    """An epoch out of turn is INVALID_FETCH_SESSION_EPOCH."""
    _, session = await _begun(trial)
    await trial.expecting("Fetch", _next(session, 7), {"error_code": "INVALID_FETCH_SESSION_EPOCH"})


async def _closed(trial: Trial) -> None:
    """Epoch -1 ends a session, which is FETCH_SESSION_ID_NOT_FOUND then."""
    _, session = await _begun(trial)
    await trial.expecting("Fetch", _next(session, -1), {"error_code": 0, "session_id": 0})
    answer = await trial.ask("Fetch", _next(session, 1))
    trial.check(answer.error_code == 70, f"answered {code_name(answer.error_code)}")


# --- offsets ----------------------------------------------------------------------------------------------------


async def _by_time(trial: Trial) -> None:
    """A time is answered with the first offset of a record that is not before it, across batches."""
    topic = await trial.new_topic()
    first = 1_650_000_000_000
    for number in range(5):
        await appended(trial, topic, batch(b"a", b"b", timestamp_ms=first + number * 1000))
    offsets = [await offset_at(trial, topic, first + after) for after in (0, 1, 2000, 4000, 4001)]
    trial.check(offsets == [0, 2, 4, 8, -1], f"the offsets are {offsets}, not 0, 2, 4, 8, -1")


async def _deleted(trial: Trial) -> None:
    """Deleted records are gone: the log begins after them, and reading before is OFFSET_OUT_OF_RANGE."""
    topic = await trial.new_topic()
    for number in range(4):
        await appended(trial, topic, batch(b"%d" % number))
    partitions = [{"partition_index": 0, "offset": 2}]
    answer = await trial.ask(
        "DeleteRecords", {"topics": [{"name": topic[0], "partitions": partitions}], "timeout_ms": 20_000}
    )
    trial.expect(answer, {"topics.0.partitions.0.error_code": 0, "topics.0.partitions.0.low_watermark": 2})
    trial.check(await offset_at(trial, topic, -2) == 2, "the log does not begin at 2")
    await trial.expecting(
        "Fetch", reading(topic, 1), {"responses.0.partitions.0.error_code": "OFFSET_OUT_OF_RANGE"}
    )
    response = await read(trial, topic, 2)
    trial.check(values_in(response.records) == [b"2", b"3"], f"read {values_in(response.records)}")
