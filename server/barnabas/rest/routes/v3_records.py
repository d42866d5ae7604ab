"""Routes of v3: records that are produced, one after the other in a stream, or several in a batch."""

from __future__ import annotations

import json
from typing import Any

import h11
import trio

from barnabas.rest.base import V3, Answer, Call, Conversation, Parameter, Route, Send
from barnabas.rest.errors import INVALID_BATCH, INVALID_PAYLOAD, RestError, failure_of
from barnabas.rest.formats import V3Record, v3_batch_of, v3_record_of
from barnabas.rest.objects import ObjectError, Objects
from barnabas.rest.producing import Acknowledged, Writers, check_topic, outcome_of, take
from barnabas.rest.resources import cluster_of
from barnabas.sandbox.bodies import AT_ONCE_BYTES_MAX, VALUES_MAX, TooManyValuesError

RECORD_BYTES_MAX = 2 << 20
"""Bytes of the JSON of a record."""
BATCH_RECORDS = 100
"""Records of a stream that are answered together, at most."""
BATCHES_IN_FLIGHT_MAX = 10
"""Batches of a stream that are not acknowledged yet; no more of the body is read meanwhile."""
STREAM_IDLE_SECONDS_MAX = 300.0
"""Time without a byte of the body after which a stream ends."""
STREAM_SECONDS_MAX = 86_400.0
"""Time after which a stream ends (`streaming.connection.max.duration.ms`)."""
ENTRIES_MAX = 100
"""Entries of a batch."""

Taken = Acknowledged | RestError


async def produce(call: Call) -> object:
    """Send the records of the body as they arrive, and answer each."""
    cluster_id = await cluster_of(call)
    topic = call.path["topic_name"]
    await check_topic(call.backend, topic)
    reader = call.reader
    assert reader is not None
    try:
        first = await reader.next_piece(seconds=STREAM_IDLE_SECONDS_MAX)
    except trio.TooSlowError:
        raise RestError(408, 408, "the body did not begin in time") from None
    except h11.RemoteProtocolError as error:
        raise RestError(400, 400, f"malformed request: {error}") from None
    if first is None:
        raise RestError(
            422, INVALID_PAYLOAD, "the body is empty: one JSON object for each record is expected"
        )

    async def work(send: Send) -> None:
        put, got = trio.open_memory_channel[list[Taken]](BATCHES_IN_FLIGHT_MAX)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer, got, send)
            async with put:
                try:
                    await read(put)
                except ObjectError as error:
                    await put.send([RestError(400, 400, str(error))])
                except h11.RemoteProtocolError as error:
                    await put.send([RestError(400, 400, f"malformed request: {error}")])
                except trio.TooSlowError:
                    await put.send([RestError(408, 408, "the stream was open for longer than allowed")])

    async def read(put: trio.MemorySendChannel[list[Taken]]) -> None:
        writers = Writers(call.backend, topic)
        objects = Objects(RECORD_BYTES_MAX)
        batch: list[Taken] = []
        with trio.fail_after(STREAM_SECONDS_MAX):
            piece: bytes | None = first
            while piece is not None:
                try:
                    for body in objects.feed(piece):
                        batch.append(await _take(call, topic, body, writers))
                        if len(batch) >= BATCH_RECORDS:
                            await put.send(batch)
                            batch = []
                finally:
                    if batch:
                        await put.send(batch)
                        batch = []
                piece = await reader.next_piece(seconds=STREAM_IDLE_SECONDS_MAX)
        objects.finish()

    async def answer(got: trio.MemoryReceiveChannel[list[Taken]], send: Send) -> None:
        async for batch in got:
            results = [await _result(cluster_id, topic, taken) for taken in batch]
            await send(b"".join(json.dumps(result).encode() + b"\r\n" for result in results))

    return Conversation(work)


async def _take(call: Call, topic: str, body: bytes, writers: Writers) -> Taken:
    """Take a record to send; its error, if any, becomes its result."""
    backend = call.backend
    try:
        if len(body) <= AT_ONCE_BYTES_MAX:
            record = v3_record_of(body)
        else:
            record = await backend.sandbox.call(v3_record_of, body, owner=backend.owner)
        return await take(backend, topic, record, writers)
    except Exception as error:
        return failure_of(error, "producing a record")


async def _result(cluster_id: str, topic: str, taken: Taken) -> dict[str, Any]:
    if isinstance(taken, Acknowledged):
        try:
            return {"error_code": 200, **await outcome_of(cluster_id, topic, taken)}
        except Exception as error:
            taken = failure_of(error, "producing a record")
    return {"error_code": taken.code, "message": taken.text}


async def produce_batch(call: Call) -> object:
    """Send the entries of a batch, and answer each."""
    cluster_id = await cluster_of(call)
    topic = call.path["topic_name"]
    if not call.body:
        raise RestError(422, INVALID_BATCH, "the body is empty: an object with entries is expected")
    entries = await _entries(call)
    await check_topic(call.backend, topic)
    writers = Writers(call.backend, topic)
    taken: list[tuple[str, Taken]] = []
    for entry in entries:
        if isinstance(entry, RestError):
            entry_id, _, text = entry.text.partition("\n")
            taken.append((entry_id, RestError(entry.status, entry.code, text)))
            continue
        try:
            taken.append((entry.record_id, await take(call.backend, topic, entry, writers)))
        except Exception as error:
            taken.append((entry.record_id, failure_of(error, "producing a record")))
    successes, failures = [], []
    for entry_id, record in taken:
        result = await _result(cluster_id, topic, record)
        code = result.pop("error_code")
        if code == 200:
            successes.append({"id": entry_id, **result})
        else:
            failures.append({"id": entry_id, "error_code": code, **result})
    return Answer({"successes": successes, "failures": failures}, 207)


async def _entries(call: Call) -> list[V3Record | RestError]:
    backend = call.backend
    try:
        if len(call.body) <= AT_ONCE_BYTES_MAX:
            return v3_batch_of(call.body, ENTRIES_MAX)
        return await backend.sandbox.call(v3_batch_of, call.body, ENTRIES_MAX, owner=backend.owner)
    except (ValueError, RecursionError) as error:
        raise RestError(400, 400, f"the body is not JSON: {error}") from None
    except TooManyValuesError:
        raise RestError(413, 413, f"a body has at most {VALUES_MAX} values") from None


_PATH = "/v3/clusters/{cluster_id}/topics/{topic_name}/records"
_DATA = (
    "object with `data` and `type` (BINARY, JSON, STRING, AVRO, JSONSCHEMA, PROTOBUF), or the schema's place"
)
ROUTES = (
    Route(
        "POST", _PATH, produce, "Produce records: one object each, one after the other in the body", V3,
        body=(
            Parameter("partition_id", "integer", "the partition (by the key)"),
            Parameter("headers", "array", "objects with `name` and `value`, in base64"),
            Parameter("key", "object", _DATA),
            Parameter("value", "object", _DATA),
            Parameter("timestamp", "string", "as 2026-01-31T12:00:00Z (now)"),
        ), is_streamed=True,
    ),
    Route(
        "POST", f"{_PATH}:batch", produce_batch, f"Produce at most {ENTRIES_MAX} records", V3, status=207,
        body=(Parameter("entries", "array", "objects with `id`, and what a record has"),),
    ),
)  # fmt: skip
