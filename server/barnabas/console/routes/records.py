"""Routes over the records of a topic: pages, one record, files, the live tail, search, and new records."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from binascii import Error
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.client import ConsumedRecord, ConsumerSettings, ProducerSettings, open_producer
from barnabas.client.consuming.settings import READ_COMMITTED
from barnabas.console.backend import Backend
from barnabas.console.base import Call, ConsoleError, Download, Events, Parameter, Route, Send
from barnabas.console.decoding import FORMATS, WHOLE_CHARS, Decoding
from barnabas.console.exporting import as_csv, as_json_lines
from barnabas.console.outcomes import registry_failure
from barnabas.console.previous import LOOKED_AT, Wanted, previous
from barnabas.console.reading import (
    READING,
    Bounds,
    Page,
    Place,
    Window,
    bounds_of,
    newest,
    places_of,
    read_window,
    starts_at,
)
from barnabas.console.routes.subjects import registry_of
from barnabas.console.searching import (
    FOUND_MAX,
    PLACES,
    SCANNED_MAX,
    SEARCHING,
    Search,
    matcher,
    search,
)
from barnabas.console.tailing import tail
from barnabas.registry.errors import RegistryError, SchemaError

if TYPE_CHECKING:
    from barnabas.registry.encoding import Serializer

LIMIT, LIMIT_MAX = 50, 500
EXPORTED_MAX = 10_000
SENT_MAX = 1_000
PRODUCING = ProducerSettings(
    creates_topics=False, linger_ms=0, delivery_timeout_ms=15_000, max_block_ms=10_000
)


async def _bounds(call: Call) -> Bounds:
    places = await places_of(call.backend, call.path["topic"], call.query.get("partition", ""))
    return await bounds_of(call.backend, places, is_committed=call.flag("committed"))


def decoding_of(call: Call, chars_max: int | None = None) -> Decoding:
    """Return how a request wants payloads shown."""
    form = call.one_of("as", *FORMATS)
    backend = call.backend
    return Decoding(form, backend.deserializer(), *([] if chars_max is None else [chars_max]))


async def list_records(call: Call) -> object:
    """Return a page of records."""
    bounds = await _bounds(call)
    page = await _page(call, bounds, call.whole("limit", LIMIT, least=1, most=LIMIT_MAX))
    decoding = decoding_of(call)
    return {
        "records": [await decoding.record(one) for one in page.records],
        "first": _cursor(bounds.first),
        "next": _cursor(bounds.next),
        "older": _cursor(page.window.starts) if _is_left(bounds.first, page.window.starts) else None,
        "newer": _cursor(page.window.ends) if _is_left(page.window.ends, bounds.next) else None,
        "late": page.is_late,
    }


def _reading(call: Call, settings: ConsumerSettings = READING) -> ConsumerSettings:
    """Return how a request wants records read."""
    return replace(settings, isolation=READ_COMMITTED) if call.flag("committed") else settings


async def _page(call: Call, bounds: Bounds, limit: int) -> Page:
    settings = _reading(call)
    before, after = call.query.get("before"), call.query.get("after")
    if before:
        ends = _read_cursor(before, bounds, bounds.first)
        return await newest(call.backend, Bounds(bounds.first, ends), limit, settings)
    if after:
        starts = _read_cursor(after, bounds, bounds.next)
        return await read_window(call.backend, Window(starts, bounds.next), limit, settings)
    if call.one_of("from", "newest", "oldest", "offset", "time") == "newest":
        return await newest(call.backend, bounds, limit, settings)
    starts = await _starts(call, bounds)
    return await read_window(call.backend, Window(starts, bounds.next), limit, settings)


async def _starts(call: Call, bounds: Bounds) -> dict[Place, int]:
    """Return where a request begins to read."""
    origin = call.one_of("from", "newest", "oldest", "offset", "time")
    if origin == "offset":
        offset = call.whole("offset", 0)
        return {place: min(max(offset, bounds.first[place]), end) for place, end in bounds.next.items()}
    if origin == "time":
        return await starts_at(call.backend, bounds, call.whole("time", 0))
    return dict(bounds.first)


def _cursor(offsets: Mapping[Place, int]) -> str:
    return ",".join(f"{partition}:{offset}" for (_, partition), offset in sorted(offsets.items()))


def _read_cursor(text: str, bounds: Bounds, default: Mapping[Place, int]) -> dict[Place, int]:
    found = dict(default)
    topic = next(iter(bounds.first))[0]
    try:
        for part in text.split(","):
            partition, offset = map(int, part.split(":"))
            place = topic, partition
            if place in found:
                found[place] = min(max(offset, bounds.first[place]), bounds.next[place])
    except ValueError:
        raise ConsoleError(400, "before and after: what an answer gave as older or newer expected") from None
    return found


def _is_left(low: Mapping[Place, int], high: Mapping[Place, int]) -> bool:
    return any(low[place] < high[place] for place in low)


async def show_record(call: Call) -> object:
    """Return one record in full."""
    record, _ = await _record_at(call)
    return await decoding_of(call, WHOLE_CHARS).record(record)


async def _record_at(call: Call) -> tuple[ConsumedRecord, int]:
    """Return the record that a path names, and the first offset of its partition. Raises ConsoleError, ClientError."""
    try:
        place = call.path["topic"], int(call.path["partition"])
        offset = int(call.path["offset"])
    except ValueError:
        raise ConsoleError(400, "partition and offset are numbers") from None
    places = await places_of(call.backend, place[0], str(place[1]))
    bounds = await bounds_of(call.backend, places, is_committed=call.flag("committed"))
    if not bounds.first[place] <= offset < bounds.next[place]:
        raise ConsoleError(
            404, f"partition {place[1]} holds offsets {bounds.first[place]} to {bounds.next[place] - 1}"
        )
    page = await read_window(
        call.backend, Window({place: offset}, {place: bounds.next[place]}), 1, _reading(call)
    )
    if not page.records or page.records[0].offset != offset:
        raise ConsoleError(
            404, f"there is no record at offset {offset}: it was compacted away, or is a marker"
        )
    return page.records[0], bounds.first[place]


async def find_previous(call: Call) -> object:
    """Return the record before one that has its key, as far as it is looked for."""
    record, first = await _record_at(call)
    if record.key is None:
        raise ConsoleError(400, f"the record at offset {record.offset} has no key")
    end = call.whole("before", record.offset, most=record.offset)
    wanted = Wanted(record, first, end, call.whole("limit", LOOKED_AT, least=1, most=SCANNED_MAX))
    settings = _reading(call, SEARCHING)
    decoding = decoding_of(call, WHOLE_CHARS)
    return Events(lambda send: previous(call.backend, wanted, decoding, settings, send))


async def export_records(call: Call) -> object:
    """Return records as a file."""
    form = call.one_of("format", "csv", "jsonl")
    page = await _page(call, await _bounds(call), call.whole("limit", 1_000, least=1, most=EXPORTED_MAX))
    decoding = decoding_of(call, WHOLE_CHARS)
    records = [await decoding.record(one) for one in page.records]
    name = f"{call.path['topic']}.{form}"
    if form == "csv":
        return Download(name, "text/csv; charset=utf-8", as_csv(records))
    return Download(name, "application/jsonl; charset=utf-8", as_json_lines(records))


async def tail_records(call: Call) -> object:
    """Return records as they come."""
    bounds, decoding = await _bounds(call), decoding_of(call)
    return Events(lambda send: tail(call.backend, bounds, decoding, send))


async def search_records(call: Call) -> object:
    """Return records that hold a text, as they are found."""
    wanted = Search(
        matcher(
            call.query.get("text", ""),
            call.one_of("in", *PLACES),
            is_regex=call.flag("regex"),
            is_exact_case=call.flag("case"),
        ),
        call.whole("limit", LIMIT, least=1, most=FOUND_MAX),
    )
    bounds, decoding = await _bounds(call), decoding_of(call)
    starts = await _starts(call, bounds)
    ends = dict(bounds.next)
    if call.query.get("until"):
        ends = await starts_at(call.backend, bounds, call.whole("until", 0))
    window = Window(starts, {place: max(end, starts[place]) for place, end in ends.items()})

    async def work(send: Send) -> None:
        await search(call.backend, window, wanted, decoding, send)

    return Events(work)


async def send_records(call: Call) -> object:
    """Append records to a topic."""
    rows = call.field("records", list)
    if not 0 < len(rows) <= SENT_MAX:
        raise ConsoleError(400, f"records: 1 to {SENT_MAX} expected")
    compression = call.field("compression", str, "none")
    writers = {field: await _writer(call, field) for field in ("key", "value")}
    records = [_record(row, number, writers) for number, row in enumerate(rows)]
    try:
        settings = replace(PRODUCING, compression=compression)
    except ValueError as error:
        raise ConsoleError(400, str(error)) from None
    return {"sent": await _send(call.backend, call.path["topic"], records, settings)}


async def _send(
    backend: Backend, topic: str, records: list[dict[str, Any]], settings: ProducerSettings
) -> list[dict[str, Any]]:
    async with open_producer(
        backend.target.bootstrap, settings, client_settings=backend.settings, dial=backend.target.dial
    ) as producer:
        deliveries = [await producer.send(topic, **record) for record in records]
        placed = [await one.wait() for one in deliveries]
    return [{"partition": one.partition, "offset": one.offset} for one in placed]


async def _writer(call: Call, field: str) -> Serializer | None:
    """Return what writes keys or values by the schema that a body names; None where it names none. Raises ConsoleError."""
    wanted = call.body.get(f"{field}_schema")
    if wanted is None:
        return None
    client = registry_of(call)
    from barnabas.registry.encoding import Serializer

    try:
        if isinstance(wanted, int) and not isinstance(wanted, bool):
            return await Serializer.of_id(client, wanted)
        if wanted == "latest":
            return await Serializer.of_latest(client, f"{call.path['topic']}-{field}")
    except RegistryError as error:
        raise registry_failure(error) from None
    except SchemaError as error:
        raise ConsoleError(400, f"{field}_schema: {error}") from None
    raise ConsoleError(400, f"{field}_schema: the id of a schema expected, or latest")


def _encoded(row: dict[str, Any], field: str, name: str, writer: Serializer | None) -> bytes | None:
    """Return the bytes of a record's key or value, written by a schema if there is one. Raises ConsoleError."""
    if writer is None or row.get(field) is None:
        return _bytes(row.get(field), name)
    text = row[field]
    try:
        return writer.encode(json.loads(text) if isinstance(text, str) else text)
    except SchemaError as error:
        raise ConsoleError(400, f"{name} does not fit the schema: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConsoleError(400, f"{name}: JSON expected, to be written by a schema: {error}") from None


def _record(row: Any, number: int, writers: Mapping[str, Serializer | None]) -> dict[str, Any]:
    """Return the arguments of `Producer.send` for a record of a body. Raises ConsoleError."""
    if not isinstance(row, dict):
        raise ConsoleError(400, f"records[{number}]: an object expected")
    headers = row.get("headers") or []
    if not isinstance(headers, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in headers
    ):
        raise ConsoleError(400, f"records[{number}].headers: an array of {{name, value}} expected")
    partition, timestamp_ms = row.get("partition"), row.get("timestamp")
    for name, value in (("partition", partition), ("timestamp", timestamp_ms)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ConsoleError(400, f"records[{number}].{name}: a number expected")
    return {
        **{field: _encoded(row, field, f"records[{number}].{field}", one) for field, one in writers.items()},
        "headers": [(one["name"], _bytes(one.get("value"), f"records[{number}].headers")) for one in headers],
        "partition": partition,
        "timestamp_ms": timestamp_ms if timestamp_ms is not None else time.time_ns() // 1_000_000,
    }


def _bytes(value: Any, name: str) -> bytes | None:
    """Return the bytes of a text, or of {"base64": text}. Raises ConsoleError."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return b64decode(value["base64"], validate=True)
        except Error as error:
            raise ConsoleError(400, f"{name}: {error}") from None
    raise ConsoleError(400, f'{name}: a text, null or {{"base64": text}} expected')


_CHOICE = (
    Parameter("partition", "numbers with commas between them (all)"),
    Parameter("committed", "true to leave out what transactions have not committed (false)"),
    Parameter("as", "auto, json, text, hex or registry (auto)"),
)
_FROM = (
    Parameter("from", "newest, oldest, offset or time (newest; a search begins with the oldest)"),
    Parameter("offset", "the first offset, with from=offset"),
    Parameter("time", "ms since 1970, with from=time"),
)
_PAGES = (
    Parameter("before", "what an answer gave as `older`"),
    Parameter("after", "what an answer gave as `newer`"),
)
ROUTES = (
    Route("GET", "/api/topics/{topic}/records", list_records, "A page of records",
          query=(*_FROM, *_PAGES, *_CHOICE, Parameter("limit", f"at most {LIMIT_MAX} ({LIMIT})"))),
    Route("GET", "/api/topics/{topic}/records/{partition}/{offset}", show_record, "One record in full", query=_CHOICE[1:]),
    Route("GET", "/api/topics/{topic}/records/{partition}/{offset}/previous", find_previous,
          "The record before it that has its key: events `found` with both and what differs, by JSON path or by line, "
          "`progress` and `done`; closing the connection ends it",
          query=(Parameter("before", "the offset before which to look, as `back_to` of `done` says it (the record's)"),
                 Parameter("limit", f"records after which to look no further, at most {SCANNED_MAX} ({LOOKED_AT})"),
                 *_CHOICE[1:])),
    Route("GET", "/api/topics/{topic}/export", export_records, "Records as a file; no cell of it is a formula",
          query=(Parameter("format", "csv or jsonl (csv)"), *_FROM, *_PAGES, *_CHOICE,
                 Parameter("limit", f"at most {EXPORTED_MAX} (1000)"))),
    Route("GET", "/api/topics/{topic}/tail", tail_records, "Records as they come: events `begun` and `records`",
          query=_CHOICE),
    Route("GET", "/api/topics/{topic}/search", search_records,
          "Records that hold a text: events `found`, `progress` and `done`; closing the connection ends it",
          query=(Parameter("text", "what to look for"), Parameter("in", f"{', '.join(PLACES)} (anywhere)"),
                 Parameter("regex", "true for a regular expression, RE2's (false)"),
                 Parameter("case", "true to tell A from a (false)"), *_FROM,
                 Parameter("until", "ms since 1970; records before that (all)"), *_CHOICE,
                 Parameter("limit", f"at most {FOUND_MAX} ({LIMIT})"))),
    Route("POST", "/api/topics/{topic}/records", send_records, "Append records",
          body=(Parameter("records", 'an array of {key, value, headers: [{name, value}], partition, timestamp}; bytes are '
                          'texts, null or {"base64": text}'),
                Parameter("compression", "none, gzip, snappy, lz4 or zstd (none)"),
                Parameter("value_schema", "what writes values, given as JSON: id of a schema, or latest of TOPIC-value"),
                Parameter("key_schema", "the same for keys"))),
)  # fmt: skip
