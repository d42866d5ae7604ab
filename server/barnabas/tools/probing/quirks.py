"""Behaviour in which broker implementations differ: each look is one question with Apache Kafka's behaviour.

The rule: a look changes nothing, has its own connection, and describes its observation in words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from barnabas.tools.inspection.errors import code_name
from barnabas.tools.probing.exchanges import ClosedByBrokerError, Exchange, ExchangeError, Target, frame_of
from barnabas.tools.probing.harmless import BY_KEY, Names
from barnabas.tools.probing.messages import make
from barnabas.wire import registry
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import parse_response_header

Versions = dict[int, tuple[int, int]]
METADATA, API_VERSIONS, HEARTBEAT_848, HEARTBEAT_SHARE, HEARTBEAT_STREAMS = 3, 18, 68, 76, 88
PIPELINED = 50


@dataclass(frozen=True, slots=True)
class Quirk:
    """Answer to one question; `as_kafka` None where there is nothing to compare."""

    name: str
    seen: str
    as_kafka: bool | None
    rule: str


@dataclass(frozen=True, slots=True)
class Look:
    """A question: its name, Apache Kafka's behaviour, and the check, which returns (observation, is the same)."""

    name: str
    rule: str
    find: Callable[[Target, Versions, Names], Awaitable[tuple[str, bool | None]]]


async def look_at_all(target: Target, versions: Versions, names: Names) -> list[Quirk]:
    """Answer every question. Raises ClientError when the broker cannot be reached."""
    quirks = []
    for look in LOOKS:
        try:
            seen, as_kafka = await look.find(target, versions, names)
        except ExchangeError as error:
            seen, as_kafka = str(error), False
        quirks.append(Quirk(look.name, seen, as_kafka, look.rule))
    return quirks


# --- the questions ----------------------------------------------------------------------------------------------


async def _newer_api_versions(target: Target, _: Versions, __: Names) -> tuple[str, bool | None]:
    async with target.connect() as wire:
        answer = await wire.ask_frame(frame_of(API_VERSIONS, 99, b"whatever"), API_VERSIONS, 99)
        ranges = [api_key for api_key in answer.api_keys if api_key.api_key == API_VERSIONS]
        again = await wire.ask(make("ApiVersions", 0, {}), 0)
    seen = f"error {code_name(answer.error_code)}, {len(answer.api_keys)} APIs named"
    is_so = answer.error_code == ErrorCode.UNSUPPORTED_VERSION and bool(ranges) and not again.error_code
    return seen, is_so


async def _closes(target: Target, frame: bytes, key: int, version: int) -> tuple[str, bool | None]:
    async with target.connect() as wire:
        try:
            await wire.ask_frame(frame, key, version)
        except ClosedByBrokerError:
            return "connection closed", True
        return "answered", False


async def _unknown_api(target: Target, _: Versions, __: Names) -> tuple[str, bool | None]:
    return await _closes(target, frame_of(9999, 0, b""), API_VERSIONS, 0)


async def _unknown_version(target: Target, versions: Versions, _: Names) -> tuple[str, bool | None]:
    above = versions[METADATA][1] + 20
    return await _closes(target, frame_of(METADATA, above, b"\0\0\0\0"), METADATA, versions[METADATA][1])


async def _cut_short(target: Target, versions: Versions, names: Names) -> tuple[str, bool | None]:
    version = _known(versions, METADATA)
    body = _body(METADATA, version, names)
    return await _closes(target, frame_of(METADATA, version, body[:-1]), METADATA, version)


async def _left_over(target: Target, versions: Versions, names: Names) -> tuple[str, bool | None]:
    version = _known(versions, METADATA)
    frame = frame_of(METADATA, version, _body(METADATA, version, names) + b"\0\0\0")
    async with target.connect() as wire:
        try:
            await wire.ask_frame(frame, METADATA, version)
        except ClosedByBrokerError:
            return "connection closed", None
        return "answered as if they were not there", None


async def _correlation(target: Target, _: Versions, __: Names) -> tuple[str, bool | None]:
    async with target.connect() as wire:
        for number in (0, -1, -(2**31), 2**31 - 1):
            await wire.ask_frame(
                frame_of(API_VERSIONS, 0, b"", correlation_id=number), API_VERSIONS, 0, correlation_id=number
            )
    return "echoed, negative ones too", True


async def _null_client_id(target: Target, _: Versions, __: Names) -> tuple[str, bool | None]:
    async with target.connect() as wire:
        await wire.ask_frame(frame_of(API_VERSIONS, 0, b"", client_id=None), API_VERSIONS, 0)
    return "taken", True


async def _tagged_fields(target: Target, versions: Versions, names: Names) -> tuple[str, bool | None]:
    version = _known(versions, METADATA)
    if not registry.is_flexible(METADATA, version):
        return "no version with tagged fields", None
    body = _body(METADATA, version, names)
    frame = frame_of(METADATA, version, body[:-1] + UNKNOWN_TAG, header_tags=UNKNOWN_TAG)
    async with target.connect() as wire:
        await wire.ask_frame(frame, METADATA, version)
    return "unknown ones ignored, in header and body", True


async def _order(target: Target, versions: Versions, names: Names) -> tuple[str, bool | None]:
    version = _known(versions, METADATA)
    body = _body(METADATA, version, names)
    frames = [
        frame_of(METADATA, version, body, correlation_id=number)
        if number % 2
        else frame_of(API_VERSIONS, 0, b"", correlation_id=number)
        for number in range(PIPELINED)
    ]
    async with target.connect() as wire:
        await wire.send(b"".join(frames))
        numbers = []
        for number in range(PIPELINED):
            key, of = (METADATA, version) if number % 2 else (API_VERSIONS, 0)
            frame = await wire.frame(Exchange("", key, of, b""))
            numbers.append(parse_response_header(frame, API_VERSIONS, 0)[0])
    is_so = numbers == list(range(PIPELINED))
    return f"{PIPELINED} answers {'in order' if is_so else 'out of order'}", is_so


async def null_and_empty(target: Target, versions: Versions, _: Names) -> tuple[str, bool | None]:
    """Look whether null and empty arrays of topics differ."""
    version = _known(versions, METADATA)
    if version < 1:
        return "Metadata v0 only", None
    async with target.connect() as wire:
        none = await wire.ask(
            make("Metadata", version, {"topics": [], "allow_auto_topic_creation": version < 4}), version
        )
        every = await wire.ask(
            make("Metadata", version, {"topics": None, "allow_auto_topic_creation": version < 4}), version
        )
    return f"an empty list: {len(none.topics)} topics, null: {len(every.topics)}", not none.topics


async def _first_request(target: Target, versions: Versions, names: Names) -> tuple[str, bool | None]:
    version = versions[METADATA][0]
    if target.settings.sasl is not None:
        return "not tried: a login comes first", None
    async with target.connect() as wire:
        await wire.ask(BY_KEY[METADATA].request(names, version), version)
    return f"Metadata v{version} answered without ApiVersions before it", True


async def _software_name(target: Target, versions: Versions, _: Names) -> tuple[str, bool | None]:
    if versions[API_VERSIONS][1] < 3:
        return "no version with a name", None
    values = {"client_software_name": "not a name!", "client_software_version": "1"}
    async with target.connect() as wire:
        answer = await wire.ask(make("ApiVersions", 3, values), 3)
    return code_name(answer.error_code), answer.error_code == ErrorCode.INVALID_REQUEST


async def huge_frame(target: Target, _: Versions, __: Names) -> tuple[str, bool | None]:
    """Look whether a frame that is larger than any limit closes the connection."""
    async with target.connect() as wire:
        try:
            await wire.send(b"\x7f\xff\xff\xff")
            await wire.frame()
        except ClosedByBrokerError:
            return "a frame that says 2 GiB: connection closed", True
    return "answered", False


async def _topic_ids(_: Target, versions: Versions, __: Names) -> tuple[str, bool | None]:
    by_id = [name for name, key, version in (("Fetch", 1, 13), ("Produce", 0, 13), ("OffsetCommit", 8, 10))
             if versions.get(key, (0, -1))[1] >= version]  # fmt: skip
    in_metadata = versions[METADATA][1] >= 10
    if not in_metadata:
        return "none", None
    return f"in Metadata{''.join(f', {name}' for name in by_id)}", None


def _switched_on(
    key: int, what: str
) -> Callable[[Target, Versions, Names], Awaitable[tuple[str, bool | None]]]:
    async def find(target: Target, versions: Versions, names: Names) -> tuple[str, bool | None]:
        if key not in versions:
            return f"{what}: not advertised", None
        if not names.has_offsets_topic:
            return f"{what}: advertised; not tried, a broker may make __consumer_offsets first", None
        version = _known(versions, key)
        async with target.connect() as wire:
            answer = await wire.ask(BY_KEY[key].request(names, version), version)
        is_on = answer.error_code != ErrorCode.UNSUPPORTED_VERSION
        return f"{what}: {'on' if is_on else 'advertised, and off'}", None

    return find


UNKNOWN_TAG = b"\x01\xe7\x07\x03abc"
"""Tagged fields with an unknown tag: 999, three bytes."""

LOOKS = (
    Look(
        "ApiVersions in an unknown version",
        "UNSUPPORTED_VERSION in version 0, with the versions of ApiVersions at least (KIP-511)",
        _newer_api_versions,
    ),
    Look("an unknown API", "the connection is closed", _unknown_api),
    Look("an unknown version of another API", "the connection is closed", _unknown_version),
    Look("a request that is cut short", "the connection is closed", _cut_short),
    Look("bytes left over after a request", "Kafka's decoders do not look at them", _left_over),
    Look("correlation ids", "any int32 is echoed", _correlation),
    Look("a client id of null", "taken (KIP-482 keeps it nullable)", _null_client_id),
    Look("tagged fields", "unknown ones are skipped (KIP-482)", _tagged_fields),
    Look("pipelined requests", "answered in the order in which they came", _order),
    Look(
        "topics null and empty",
        "null asks for all topics, an empty list for none (since Metadata v1)",
        null_and_empty,
    ),
    Look("a client that does not ask for versions", "any request may come first", _first_request),
    Look("a wrong name of the client's software", "INVALID_REQUEST (KIP-511)", _software_name),
    Look("a frame larger than any limit", "the connection is closed (socket.request.max.bytes)", huge_frame),
    Look("topic ids", "in Metadata since v10, in Fetch since v13 (KIP-516)", _topic_ids),
    Look(
        "consumer groups of KIP-848",
        "on since 4.0 (group.version 1)",
        _switched_on(HEARTBEAT_848, "ConsumerGroupHeartbeat"),
    ),
    Look(
        "share groups of KIP-932",
        "on since 4.2 (share.version 1)",
        _switched_on(HEARTBEAT_SHARE, "ShareGroupHeartbeat"),
    ),
    Look(
        "streams groups of KIP-1071",
        "on since 4.2 (streams.version 1)",
        _switched_on(HEARTBEAT_STREAMS, "StreamsGroupHeartbeat"),
    ),
)


def _known(versions: Versions, key: int) -> int:
    """The newest version that broker and codecs know."""
    return min(versions[key][1], registry.info(key).max_stable_version)


def _body(key: int, version: int, names: Names) -> bytes:
    return registry.request_codec(key).encode_bytes(BY_KEY[key].request(names, version), version)
