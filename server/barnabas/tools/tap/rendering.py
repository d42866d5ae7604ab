"""Exchanges as lines for the terminal and as JSON. Pure.

The rule: one line names the client, its request and the outcome; all fields are shown on request.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from barnabas.environment.terminal import counted, visible
from barnabas.records.compression import CODEC_NAMES, Codec
from barnabas.tools.inspection import records
from barnabas.tools.inspection.errors import code_name
from barnabas.tools.inspection.messages import as_json
from barnabas.tools.inspection.records import RecordsView
from barnabas.tools.tap.exchange import Connection, Exchange

TOPICS_SHOWN = 3
PARTITIONS_SHOWN = 6
ERRORS_SHOWN = 3
LINE_CHARACTERS_MAX = 1000
_ACKS = {0: "acks=0", 1: "acks=1", -1: "acks=all"}


# --- one line ---------------------------------------------------------------------------------------------------


def line(exchange: Exchange) -> str:
    """Return an exchange as one line."""
    request, connection = exchange.request, exchange.connection
    version = f" v{request.version}" if request.version >= 0 else ""
    words = [
        clock_time(exchange.sent_at),
        f"#{connection.id}.{exchange.number}",
        request.client_id if request.client_id is not None else connection.name,
        f"{request.api}{version}",
    ]
    about = describe_request(exchange)
    if about:
        words.append(about)
    words += ["->", describe_answer(exchange)]
    if exchange.latency_ms is not None:
        words.append(milliseconds(exchange.latency_ms))
    return " ".join(words)


def safe(text: str, most: int = LINE_CHARACTERS_MAX) -> str:
    """Return text without control characters, which clients may send and terminals would obey."""
    if len(text) > most:
        text = f"{text[:most]}..."
    return visible(text)


def clock_time(at: float) -> str:
    """Return a time of day with milliseconds, in local time."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S.%f")[:-3]


def milliseconds(value: float) -> str:
    """Return a duration with its significant digits."""
    return f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"


def size_text(size: int) -> str:
    """Return a number of bytes, short."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def describe_request(exchange: Exchange) -> str:
    """Return the main contents of a request."""
    if exchange.token is not None:
        return _token(exchange.token)
    request = exchange.request
    if request.message is None:
        shown = (exchange.request_bytes or b"")[:32].hex(" ")
        return f"({request.problem}; {size_text(request.size)}: {shown}...)"
    words = [*_topics(exchange), *(f"group={name}" for name in exchange.groups[:TOPICS_SHOWN])]
    details = _REQUEST_DETAILS.get(request.api_key)
    if details is not None:
        words += details(request.message)
    return " ".join(words)


def _topics(exchange: Exchange) -> list[str]:
    words = []
    topics = exchange.topics
    for number, (name, partitions) in enumerate(topics.items()):
        if number == TOPICS_SHOWN:
            words.append(f"and {counted(len(topics) - TOPICS_SHOWN, 'more topic')}")
            break
        shown = sorted(partitions)
        text = ",".join(map(str, shown[:PARTITIONS_SHOWN]))
        more = f",... {len(shown)} in all" if len(shown) > PARTITIONS_SHOWN else ""
        words.append(f"{name}[{text}{more}]" if shown else name)
    return words


def describe_answer(exchange: Exchange) -> str:
    """Return the outcome of a request."""
    response = exchange.response
    if response is None:
        return f"no answer ({exchange.unanswered})"
    if exchange.is_bare_token:
        return _token(exchange.answer_token or {})
    if response.problem:
        shown = (exchange.response_bytes or b"")[:32].hex(" ")
        return f"({response.problem}; {size_text(response.size)}: {shown}...)"
    errors = exchange.errors
    words = [_errors(exchange)] if errors else ["ok"]
    details = _ANSWER_DETAILS.get(exchange.request.api_key)
    if details is not None and response.message is not None:
        words += details(response.message)
    throttle_ms = getattr(response.message, "throttle_time_ms", 0)
    if throttle_ms:
        words.append(f"throttled {throttle_ms} ms")
    return " ".join(words)


def _errors(exchange: Exchange) -> str:
    counts = Counter(error.code for error in exchange.errors)
    words = []
    for code, count in counts.most_common(ERRORS_SHOWN):
        about = next(error.about for error in exchange.errors if error.code == code)
        words.append(code_name(code) + (f" ({about}{', ...' if count > 1 else ''})" if about else ""))
    return ", ".join(words)


def _token(token: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value}" for name, value in token.items() if isinstance(value, str | int) and name != "bytes"
    )


def _produce(message: Any) -> list[str]:
    summaries = [
        records.count(partition.records) for topic in message.topic_data for partition in topic.partition_data
    ]
    count, batches = (
        sum(max(summary.records, 0) for summary in summaries),
        sum(summary.batches for summary in summaries),
    )
    codecs = sorted({codec for summary in summaries for codec in summary.codecs})
    words = [
        f"{count} record{'s' * (count != 1)} in {batches} batch{'es' * (batches != 1)}",
        size_text(sum(summary.size for summary in summaries)),
        _ACKS.get(message.acks, f"acks={message.acks}"),
    ]
    if any(codecs):
        words.append("+".join(_codec(codec) for codec in codecs))
    if message.transactional_id:
        words.append(f"transaction={message.transactional_id}")
    return words


def _codec(number: int) -> str:
    return CODEC_NAMES[Codec(number)] if number <= max(Codec) else f"codec {number}"


def _produced(message: Any) -> list[str]:
    offsets = [
        partition.base_offset
        for topic in message.responses
        for partition in topic.partition_responses
        if not partition.error_code
    ]
    if not offsets:
        return []
    return [f"offset {offsets[0]}" if len(offsets) == 1 else f"{len(offsets)} partitions"]


def _fetch(message: Any) -> list[str]:
    words = [f"wait={message.max_wait_ms}ms min={message.min_bytes}"]
    offsets = [partition.fetch_offset for topic in message.topics for partition in topic.partitions]
    if len(offsets) == 1:
        words.insert(0, f"from {offsets[0]}")
    if message.session_id or message.session_epoch >= 0:
        words.append(f"session={message.session_id}/{message.session_epoch}")
    return words


def _fetched(message: Any) -> list[str]:
    sizes = [
        len(partition.records)
        for topic in message.responses
        for partition in topic.partitions
        if partition.records
    ]
    if not sizes:
        return ["empty"]
    return [size_text(sum(sizes)) + (f" of {len(sizes)} partitions" if len(sizes) > 1 else "")]


def _metadata(message: Any) -> list[str]:
    return ["all topics"] if message.topics is None else [] if message.topics else ["no topics"]


def _brokers(message: Any) -> list[str]:
    return [f"{len(message.brokers)} broker{'s' * (len(message.brokers) != 1)}"]


def _client(message: Any) -> list[str]:
    name = f"{message.client_software_name} {message.client_software_version}".strip()
    return [name] if name else []


def _join(message: Any) -> list[str]:
    words = [f"member={message.member_id or 'new'}", f"session={message.session_timeout_ms}ms"]
    if message.group_instance_id:
        words.append(f"instance={message.group_instance_id}")
    return words


def _joined(message: Any) -> list[str]:
    if message.error_code:
        return []
    leads = " leads" if message.leader == message.member_id else ""
    return [f"generation={message.generation_id} member={message.member_id}{leads}"]


def _member(message: Any) -> list[str]:
    return [f"generation={message.generation_id} member={message.member_id}"]


def _heartbeat(message: Any) -> list[str]:
    return [f"member={message.member_id} epoch={message.member_epoch}"]


def _find(message: Any) -> list[str]:
    kind = {0: "", 1: "transaction=", 2: "share="}.get(message.key_type, "")
    return [f"{kind}{key}" for key in (message.coordinator_keys or [message.key])] if kind else []


def _found(message: Any) -> list[str]:
    nodes = message.coordinators or [message]
    return [f"node {node.node_id} at {node.host}:{node.port}" for node in nodes[:TOPICS_SHOWN] if node.host]


def _producer(message: Any) -> list[str]:
    return (
        [f"producer={message.producer_id} epoch={message.producer_epoch}"] if not message.error_code else []
    )


def _transaction(message: Any) -> list[str]:
    name = getattr(message, "transactional_id", None)
    return [f"transaction={name}"] if name else []


def _end(message: Any) -> list[str]:
    return [*_transaction(message), "commit" if message.committed else "abort"]


_REQUEST_DETAILS = {
    0: _produce, 1: _fetch, 3: _metadata, 10: _find, 11: _join, 12: _member, 14: _member, 18: _client,
    22: _transaction, 24: _transaction, 25: _transaction, 26: _end, 28: _transaction, 68: _heartbeat,
    76: _heartbeat, 88: _heartbeat,
}  # fmt: skip
_ANSWER_DETAILS = {
    0: _produced, 1: _fetched, 3: _brokers, 10: _found, 11: _joined, 22: _producer, 60: _brokers,
}  # fmt: skip


# --- connections --------------------------------------------------------------------------------------------------


def opened(connection: Connection, at: float) -> str:
    """Return the line of a new connection."""
    tls = f" ({connection.tls})" if connection.tls else ""
    return f"{clock_time(at)} #{connection.id} {connection.client} connects to {connection.broker}{tls}"


def closed(connection: Connection, at: float, reason: str) -> str:
    """Return the line of a connection's end."""
    return f"{clock_time(at)} #{connection.id} {connection.name} closed: {reason}"


def noted(connection: Connection, at: float, text: str, data: bytes) -> str:
    """Return the line of an anomaly."""
    shown = f": {data[:32].hex(' ')}" if data else ""
    return f"{clock_time(at)} #{connection.id} {connection.name} ! {text}{shown}"


# --- JSON ---------------------------------------------------------------------------------------------------------


def exchange_as_json(exchange: Exchange, view: RecordsView | None = None) -> dict[str, Any]:
    """Return an exchange as JSON; records are shown by `view`, counted without one."""
    request, response, connection = exchange.request, exchange.response, exchange.connection
    values: dict[str, Any] = {
        "type": "exchange",
        "at": timestamp(exchange.sent_at),
        "connection": connection.id,
        "number": exchange.number,
        "client": connection.client,
        "broker": connection.broker,
        "client_id": request.client_id,
        "user": connection.user,
        "api": request.api,
        "api_key": request.api_key,
        "version": request.version,
        "correlation_id": request.correlation_id,
        "request_bytes": request.size,
        "latency_ms": None if exchange.latency_ms is None else round(exchange.latency_ms, 3),
        "request": None if request.message is None else as_json(request.message, records=view),
    }
    if exchange.topics:
        values["topics"] = {name: sorted(partitions) for name, partitions in exchange.topics.items()}
    if request.problem:
        values["request_problem"] = request.problem
    if exchange.request_bytes is not None:
        values["request_hex"] = exchange.request_bytes.hex()
    if exchange.token is not None:
        values["sasl"] = exchange.token
    if response is None:
        values["unanswered"] = exchange.unanswered
        return values
    values["response_bytes"] = response.size
    values["response"] = None if response.message is None else as_json(response.message, records=view)
    if exchange.errors:
        values["errors"] = [
            {"code": error.code, "name": code_name(error.code), "path": error.path, "about": error.about}
            for error in exchange.errors
        ]
    if response.problem:
        values["response_problem"] = response.problem
    if exchange.response_bytes is not None:
        values["response_hex"] = exchange.response_bytes.hex()
    if exchange.answer_token is not None:
        values["sasl_answer"] = exchange.answer_token
    return values


def connection_as_json(kind: str, connection: Connection, at: float, **more: Any) -> dict[str, Any]:
    """Return an event of a connection as JSON: `opened`, `closed`, or an anomaly that was `noted`."""
    return {
        "type": kind,
        "at": timestamp(at),
        "connection": connection.id,
        "client": connection.client,
        "broker": connection.broker,
        "client_id": connection.client_id,
        "software": connection.software or None,
        **more,
    }


def timestamp(at: float) -> str:
    """Return a time as ISO 8601 in UTC, with microseconds."""
    from datetime import UTC

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
