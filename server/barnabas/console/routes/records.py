"""Routes over the records of a topic: pages, one record, files, the live tail, search, and new records."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from binascii import Error
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import trio

from barnabas.client import ConsumerSettings, ProducerSettings, open_producer
from barnabas.client.consuming.settings import READ_COMMITTED
from barnabas.console.backend import Backend
from barnabas.console.base import Call, ConsoleError, Download, Events, Parameter, Route, Send, as_json
from barnabas.console.batches import Row, View
from barnabas.console.decoding import FORMATS, SHOWN_CHARS, WHOLE_CHARS
from barnabas.console.exporting import csv_heading
from barnabas.console.matching import Pattern, SameKey, Sought, Where
from barnabas.console.outcomes import registry_failure
from barnabas.console.previous import LOOKED_AT, Target, previous
from barnabas.console.reader import READING, ROWS_BYTES_MAX, Place
from barnabas.console.reading import Bounds, Page, bounds_of, places_of, read_page, starts_at
from barnabas.console.routes.subjects import registry_of
from barnabas.console.searching import FOUND_MAX, SCANNED_MAX, check_sought, column_names, search
from barnabas.console.tailing import tail
from barnabas.console.walking import Window
from barnabas.filters import PLACES
from barnabas.registry.errors import RegistryError, SchemaError

if TYPE_CHECKING:
    from barnabas.registry.encoding import Serializer

ORIGINS = "newest", "oldest", "offset", "time"
LIMIT, LIMIT_MAX = 50, 500
EXPORTED_MAX = 10_000
EXPORTED_CHARS = 200_000
"""Characters of a key or value, and of all headers, in a file."""
SENT_MAX = 1_000
PRODUCING = ProducerSettings(
    creates_topics=False, linger_ms=0, delivery_timeout_ms=15_000, max_block_ms=10_000
)


async def _bounds(call: Call) -> Bounds:
    places = await places_of(call.backend, call.path["topic"], call.query.get("partition", ""))
    return await bounds_of(call.backend, places, is_committed=call.flag("committed"))


def view_of(call: Call, chars_max: int = SHOWN_CHARS) -> View:
    """Return the requested display of records."""
    return View(call.one_of("as", *FORMATS), chars_max, topic=call.path["topic"])


async def _listed_view(call: Call, chars_max: int = SHOWN_CHARS) -> View:
    """Return the requested display of a list of records, with its columns. Raises ConsoleError."""
    columns = call.query.get("columns", "").strip()
    await column_names(call.backend, columns)
    return replace(view_of(call, chars_max), columns=columns)


async def _sought(call: Call) -> Sought | None:
    """Return the checked search of a request; None if it has none. Raises ConsoleError."""
    sought: Sought
    if "where" in call.query:
        if "text" in call.query:
            raise ConsoleError(400, "text and where: one of them expected")
        sought = Where(call.query["where"])
    elif "text" in call.query:
        sought = Pattern(
            call.query["text"],
            call.one_of("in", *PLACES),
            is_regex=call.flag("regex"),
            is_exact_case=call.flag("case"),
        )
    else:
        return None
    await check_sought(call.backend, sought)
    return sought


async def list_records(call: Call) -> object:
    """Return a page of records."""
    bounds = await _bounds(call)
    view = await _listed_view(call)
    page = await _page(call, bounds, call.whole("limit", LIMIT, least=1, most=LIMIT_MAX), view)
    rest = {
        "first": _cursor(bounds.first),
        "next": _cursor(bounds.next),
        "older": _cursor(page.window.starts) if _is_left(bounds.first, page.window.starts) else None,
        "newer": _cursor(page.window.ends) if _is_left(page.window.ends, bounds.next) else None,
        "late": page.is_late,
    }
    return b'{"records":[%s],%s' % (b",".join(row.content for row in page.rows), as_json(rest)[1:])


def _reading(call: Call) -> ConsumerSettings:
    """Return the requested way of reading records."""
    return replace(READING, isolation=READ_COMMITTED) if call.flag("committed") else READING


async def _page(call: Call, bounds: Bounds, limit: int, view: View) -> Page:
    before, after = call.query.get("before"), call.query.get("after")
    starts, ends, is_newest_first = bounds.first, bounds.next, False
    if before:
        ends, is_newest_first = _read_cursor(before, bounds, bounds.first), True
    elif after:
        starts = _read_cursor(after, bounds, bounds.next)
    elif call.one_of("from", *ORIGINS) == "newest":
        is_newest_first = True
    else:
        starts = await _starts(call, bounds)
    window = Window(starts, ends)
    return await read_page(call.backend, window, limit, view, _reading(call), is_newest_first=is_newest_first)


async def _starts(call: Call, bounds: Bounds) -> dict[Place, int]:
    """Return where a request begins to read."""
    origin = call.one_of("from", *ORIGINS)
    if origin == "offset":
        offset = call.whole("offset", 0)
        return {place: min(max(offset, bounds.first[place]), end) for place, end in bounds.next.items()}
    if origin == "time":
        return await starts_at(call.backend, bounds, call.whole("time", 0))
    return dict(bounds.first)


def _cursor(offsets: Mapping[Place, int]) -> str:
    return ",".join(f"{partition}:{offset}" for (_, partition), offset in sorted(offsets.items()))


def _read_cursor(text: str, bounds: Bounds, default: Mapping[Place, int]) -> dict[Place, int]:
    cursor = dict(default)
    topic = next(iter(bounds.first))[0]
    try:
        for part in text.split(","):
            partition, offset = map(int, part.split(":"))
            place = topic, partition
            if place in cursor:
                cursor[place] = min(max(offset, bounds.first[place]), bounds.next[place])
    except ValueError:
        raise ConsoleError(
            400, "before and after: the value of older or newer of a response expected"
        ) from None
    return cursor


def _is_left(low: Mapping[Place, int], high: Mapping[Place, int]) -> bool:
    return any(low[place] < high[place] for place in low)


async def show_record(call: Call) -> object:
    """Return one record in full."""
    view = replace(view_of(call, WHOLE_CHARS), match=await _sought(call), shows_others=True)
    row, _ = await _record_at(call, view)
    return row.content


def _place(call: Call) -> tuple[Place, int]:
    """Return the partition and the offset of a path. Raises ConsoleError."""
    try:
        return (call.path["topic"], int(call.path["partition"])), int(call.path["offset"])
    except ValueError:
        raise ConsoleError(400, "partition and offset are numbers") from None


async def _record_at(call: Call, view: View) -> tuple[Row, int]:
    """Return the record of a path, and the first offset of its partition. Raises ConsoleError, ClientError."""
    place, offset = _place(call)
    places = await places_of(call.backend, place[0], str(place[1]))
    bounds = await bounds_of(call.backend, places, is_committed=call.flag("committed"))
    if not bounds.first[place] <= offset < bounds.next[place]:
        raise ConsoleError(
            404, f"partition {place[1]} holds offsets {bounds.first[place]} to {bounds.next[place] - 1}"
        )
    page = await read_page(
        call.backend, Window({place: offset}, {place: bounds.next[place]}), 1, view, _reading(call)
    )
    if page.is_late and not page.rows:
        raise ConsoleError(503, f"the record at offset {offset} could not be read in time: try again")
    if not page.rows or page.rows[0].offset != offset:
        raise ConsoleError(
            404, f"there is no record at offset {offset}: it was compacted away, or is a marker"
        )
    return page.rows[0], bounds.first[place]


async def find_previous(call: Call) -> object:
    """Return the previous record with the same key, within the limit of the search."""
    view = view_of(call, WHOLE_CHARS)
    row, first = await _record_at(call, replace(view, with_records=True))
    key = _key_of(row)
    end = call.whole("before", row.offset, most=row.offset)
    place, _ = _place(call)
    target = Target(place, row, first, end, call.whole("limit", LOOKED_AT, least=1, most=SCANNED_MAX))
    settings, view = _reading(call), replace(view, match=SameKey(key))
    return Events(lambda send: previous(call.backend, target, view, settings, send))


def _key_of(row: Row) -> bytes:
    """Return the key of a record. Raises ConsoleError if it has none."""
    if row.record is None or row.problem:
        raise ConsoleError(422, row.problem)
    if row.record.key is None:
        raise ConsoleError(400, f"the record at offset {row.offset} has no key")
    return row.record.key


async def export_records(call: Call) -> object:
    """Return records as a file."""
    form = call.one_of("format", "csv", "jsonl")
    view = await _listed_view(call, EXPORTED_CHARS)
    view = replace(view, is_csv=form == "csv", match=await _sought(call))
    limit = call.whole("limit", 1_000, least=1, most=EXPORTED_MAX)
    page = await _page(call, await _bounds(call), limit, view)
    if page.is_too_large:
        raise ConsoleError(413, f"these records make more than {ROWS_BYTES_MAX} bytes: export fewer (limit)")
    name = f"{call.path['topic']}.{form}"
    if form == "csv":
        heading = csv_heading(await column_names(call.backend, view.columns))
        return Download(name, "text/csv; charset=utf-8", (heading, *(row.content for row in page.rows)))
    lines = tuple(row.content + b"\n" for row in page.rows)
    return Download(name, "application/jsonl; charset=utf-8", lines)


async def tail_records(call: Call) -> object:
    """Return new records, as a stream of events."""
    view = replace(await _listed_view(call), match=await _sought(call))
    bounds = await _bounds(call)
    return Events(lambda send: tail(call.backend, bounds, view, send))


async def search_records(call: Call) -> object:
    """Return records that hold a text, or meet a filter, as they are found."""
    sought = await _sought(call)
    if sought is None:
        raise ConsoleError(400, "text or where: what to look for is expected")
    limit = call.whole("limit", LIMIT, least=1, most=FOUND_MAX)
    view = replace(await _listed_view(call), match=sought)
    is_newest_first = call.one_of("from", *ORIGINS) == "newest"
    settings, bounds = _reading(call), await _bounds(call)
    starts = await _starts(call, bounds)
    ends = dict(bounds.next)
    if call.query.get("until"):
        ends = await starts_at(call.backend, bounds, call.whole("until", 0))
    window = Window(starts, {place: max(end, starts[place]) for place, end in ends.items()})

    async def work(send: Send) -> None:
        await search(call.backend, window, view, limit, send, settings, is_newest_first=is_newest_first)

    return Events(work)


async def send_records(call: Call) -> object:
    """Append records to a topic."""
    rows = call.field("records", list)
    if not 0 < len(rows) <= SENT_MAX:
        raise ConsoleError(400, f"records: 1 to {SENT_MAX} expected")
    compression = call.field("compression", str, "none")
    schemas = [field for field in ("key", "value") if call.body.get(f"{field}_schema") is not None]
    records = []
    for number, row in enumerate(rows):
        records.append(_record(row, number, schemas))
        await trio.lowlevel.checkpoint()
    for field in schemas:
        await _write(call, field, rows, records)
    try:
        settings = replace(PRODUCING, compression=compression)
    except ValueError as error:
        raise ConsoleError(400, str(error)) from None
    return {"sent": await _send(call.backend, call.path["topic"], records, settings)}


async def send_tombstone(call: Call) -> object:
    """Append a record without a value, with the key of a record and in its partition."""
    row, _ = await _record_at(call, replace(view_of(call), with_records=True))
    now_ms = time.time_ns() // 1_000_000
    record = {"key": _key_of(row), "value": None, "partition": row.partition, "timestamp_ms": now_ms}
    return {"sent": await _send(call.backend, call.path["topic"], [record], PRODUCING)}


async def _send(
    backend: Backend, topic: str, records: list[dict[str, Any]], settings: ProducerSettings
) -> list[dict[str, Any]]:
    async with open_producer(
        backend.target.bootstrap, settings, client_settings=backend.settings, dial=backend.target.dial
    ) as producer:
        deliveries = [await producer.send(topic, **record) for record in records]
        placed = [await delivery.wait() for delivery in deliveries]
    return [{"partition": record.partition, "offset": record.offset} for record in placed]


async def _writer(call: Call, field: str) -> Serializer:
    """Return the serializer of keys or values for the schema in a body. Raises ConsoleError."""
    schema = call.body[f"{field}_schema"]
    client = registry_of(call)
    from barnabas.registry.encoding import Serializer

    try:
        if isinstance(schema, int) and not isinstance(schema, bool):
            return await Serializer.of_id(client, schema, call.backend.sandbox)
        if schema == "latest":
            return await Serializer.of_latest(client, f"{call.path['topic']}-{field}", call.backend.sandbox)
    except RegistryError as error:
        raise registry_failure(error) from None
    except SchemaError as error:
        raise ConsoleError(400, f"{field}_schema: {error}") from None
    raise ConsoleError(400, f"{field}_schema: the id of a schema expected, or latest")


async def _write(call: Call, field: str, rows: list[dict[str, Any]], records: list[dict[str, Any]]) -> None:
    """Replace keys or values by their serialized form, by the schema in a body. Raises ConsoleError."""
    writer = await _writer(call, field)
    numbers = [number for number, row in enumerate(rows) if row.get(field) is not None]
    texts = [_text(rows[number][field]) for number in numbers]
    try:
        datas = await writer.encode_many(texts, owner=call.backend.owner)
    except SchemaError as error:
        raise ConsoleError(400, f"{field}_schema: {error}") from None
    for number, data in zip(numbers, datas, strict=True):
        if isinstance(data, SchemaError):
            raise ConsoleError(400, f"records[{number}].{field} does not fit the schema: {data}")
        records[number][field] = data


def _text(value: Any) -> str:
    """Return the JSON of a value that a schema writes: a text is that JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _record(row: Any, number: int, schemas: Collection[str] = ()) -> dict[str, Any]:
    """Return the arguments of `Producer.send` for a record of a body. Raises ConsoleError."""
    if not isinstance(row, dict):
        raise ConsoleError(400, f"records[{number}]: an object expected")
    headers = row.get("headers") or []
    if not isinstance(headers, list) or not all(
        isinstance(header, dict) and isinstance(header.get("name"), str) for header in headers
    ):
        raise ConsoleError(400, f"records[{number}].headers: an array of {{name, value}} expected")
    partition, timestamp_ms = row.get("partition"), row.get("timestamp")
    for name, value in (("partition", partition), ("timestamp", timestamp_ms)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ConsoleError(400, f"records[{number}].{name}: a number expected")
    return {
        **{
            field: None if field in schemas else _bytes(row.get(field), f"records[{number}].{field}")
            for field in ("key", "value")
        },
        "headers": [
            (header["name"], _bytes(header.get("value"), f"records[{number}].headers")) for header in headers
        ],
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
    Parameter("as", "auto, json, text, hex, registry, msgpack or cbor (auto)"),
)
_COLUMNS = Parameter(
    "columns",
    "paths and fields of filters.md with commas between them, to show by themselves: $.total, key.id (none)",
)
_FROM = (
    Parameter("from", "newest, oldest, offset or time (newest)"),
    Parameter("offset", "the first offset, with from=offset"),
    Parameter("time", "ms since 1970, with from=time"),
)
_SOUGHT = (
    Parameter("text", "what to look for"),
    Parameter("in", f"{', '.join(PLACES)} (anywhere)"),
    Parameter("regex", "true for a regular expression, RE2's (false)"),
    Parameter("case", "true to tell A from a (false)"),
    Parameter("where", "instead of a text: a filter, see filters.md"),
)
_PAGES = (
    Parameter("before", "what an answer gave as `older`"),
    Parameter("after", "what an answer gave as `newer`"),
)
ROUTES = (
    Route("GET", "/api/topics/{topic}/records", list_records, "A page of records",
          query=(*_FROM, *_PAGES, *_CHOICE, _COLUMNS, Parameter("limit", f"at most {LIMIT_MAX} ({LIMIT})"))),
    Route("GET", "/api/topics/{topic}/records/{partition}/{offset}", show_record,
          "One record in full; what matches a text or a filter is marked", query=(*_CHOICE[1:], *_SOUGHT)),
    Route("GET", "/api/topics/{topic}/records/{partition}/{offset}/previous", find_previous,
          "The record before it that has its key: events `found` with both and what differs, by JSON path or by line, "
          "`progress` and `done`; closing the connection ends it",
          query=(Parameter("before", "the offset before which to look, as `back_to` of `done` says it (the record's)"),
                 Parameter("limit", f"records after which to look no further, at most {SCANNED_MAX} ({LOOKED_AT})"),
                 *_CHOICE[1:])),
    Route("GET", "/api/topics/{topic}/export", export_records,
          "Records as a file, all or those that match; no cell of it is a formula",
          query=(Parameter("format", "csv or jsonl (csv)"), *_FROM, *_PAGES, *_CHOICE, _COLUMNS, *_SOUGHT,
                 Parameter("limit", f"at most {EXPORTED_MAX} (1000)"))),
    Route("GET", "/api/topics/{topic}/tail", tail_records,
          "Records as they come, all or those that match: events `begun` and `records`",
          query=(*_CHOICE, _COLUMNS, *_SOUGHT)),
    Route("GET", "/api/topics/{topic}/search", search_records,
          "Records that hold a text or meet a filter, as they are shown, with `marks` of what matches: events `found`, "
          "`progress` and `done` with `order`; closing the connection ends it",
          query=(*_SOUGHT, *_FROM,
                 Parameter("until", "ms since 1970; records before that (all)"), *_CHOICE, _COLUMNS,
                 Parameter("limit", f"at most {FOUND_MAX} ({LIMIT})"))),
    Route("POST", "/api/topics/{topic}/records", send_records, "Append records",
          body=(Parameter("records", 'an array of {key, value, headers: [{name, value}], partition, timestamp}; bytes are '
                          'texts, null or {"base64": text}'),
                Parameter("compression", "none, gzip, snappy, lz4 or zstd (none)"),
                Parameter("value_schema", "what writes values, given as JSON: id of a schema, or latest of TOPIC-value"),
                Parameter("key_schema", "the same for keys"))),
    Route("POST", "/api/topics/{topic}/records/{partition}/{offset}/tombstone", send_tombstone,
          "Append a record without a value that has the key of this one, to its partition: compaction removes the key"),
)  # fmt: skip
