"""Cases about frames, for every API and version: valid ones, and each kind of invalid ones.

The rule: they are derived from the table of harmless requests and the codecs alone. A frame counts as invalid only if our
own decoder refuses it, too; that decoder is compared with Kafka's, byte by byte, elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

from barnabas.tools.conformance.cases import Case, DiffersError, Need
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.inspection.errors import code_name
from barnabas.tools.probing.exchanges import ClosedByBrokerError, frame_of
from barnabas.tools.probing.harmless import BY_KEY, Harmless, Names
from barnabas.tools.probing.honoured import UNSUPPORTED_VERSION, codes_of
from barnabas.tools.probing.quirks import UNKNOWN_TAG
from barnabas.wire import registry
from barnabas.wire.errors import DecodeError, EncodeError

API_VERSIONS = 18
GUIDE = "protocol guide"
_SAMPLE = Names("t", "g", "x")


def cases() -> Iterator[Case]:
    """Return all cases: every client API, in every version known here."""
    for key, row in BY_KEY.items():
        info = registry.info(key)
        for version in range(info.request_min_version, info.max_stable_version + 1):
            yield from _of_version(row, key, version)
        yield from _outside(row, key)


def _of_version(row: Harmless, key: int, version: int) -> Iterator[Case]:
    needs = (Need(row.name, version),)

    def case(name: str, rule: str, source: str, run: Any) -> Case:
        return Case(f"{row.name}/v{version}/{name}", rule, source, run, needs)

    yield case(
        "answered",
        "A request that is right in form is answered in its version, and the answer decodes whole.",
        GUIDE,
        partial(_answered, row, key, version),
    )
    if row.ends_connection:
        return
    yield case(
        "null client id",
        "The client id of a request's header may be null.",
        GUIDE,
        partial(_with_header, row, key, version, None, None),
    )
    if registry.is_flexible(key, version):
        yield case(
            "tagged fields in the header",
            "Unknown tagged fields are skipped, in the header too.",
            "KIP-482",
            partial(_with_header, row, key, version, b"barnabas", UNKNOWN_TAG),
        )
        yield case(
            "tagged fields in the body",
            "Unknown tagged fields are skipped at the end of a body.",
            "KIP-482",
            partial(_with_tags, row, key, version),
        )
    if registry.request_codec(key).encode_bytes(row.request(_SAMPLE, version), version):
        rule = "A request that is cut short cannot be parsed, and ends its connection."
        yield case("last byte missing", rule, GUIDE, partial(_cut, row, key, version, -1))
        yield case("half of it missing", rule, GUIDE, partial(_cut, row, key, version, 0))
    for damage in damages(row, key, version):
        yield case(damage.name, damage.rule, GUIDE, partial(_damaged, row, key, version, damage))


def _outside(row: Harmless, key: int) -> Iterator[Case]:
    if key == API_VERSIONS:
        return
    needs = (Need(row.name),)
    rule = "A version that is not advertised, other than of ApiVersions, ends the connection."
    for name, offset in (("next version", 1), ("version 32767", None)):
        yield Case(f"{row.name}/outside/{name}", rule, "KIP-35", partial(_newer, key, offset), needs)
    yield Case(f"{row.name}/outside/version -1", rule, "KIP-35", partial(_version_is, key, -1), needs)
    yield Case(
        f"{row.name}/outside/version before the first",
        rule,
        "KIP-35, KIP-896",
        partial(_older, key),
        needs,
    )


# --- right frames -----------------------------------------------------------------------------------------------


def _body(row: Harmless, key: int, version: int, names: Names) -> bytes:
    return registry.request_codec(key).encode_bytes(row.request(names, version), version)


async def _answered(row: Harmless, key: int, version: int, trial: Trial) -> None:
    frame = frame_of(key, version, _body(row, key, version, trial.fixture.names()), correlation_id=77)
    wire = await trial.wire()
    answer = await wire.ask_frame(frame, key, version, correlation_id=77)
    if row.ends_connection:
        wire.is_open = False
    codes = codes_of(answer)
    if codes[:1] == (UNSUPPORTED_VERSION,) and not _is_off(trial, row.name):
        raise DiffersError("the answer is UNSUPPORTED_VERSION, though the version is advertised")


_FEATURES = {"Consumer": "group.version", "Share": "share.version", "Streams": "streams.version"}


def _is_off(trial: Trial, api: str) -> bool:
    """Return whether the API belongs to a feature that is switched off, or needs a plugin that brokers do without."""
    if api == "StreamsGroupTopologyDescriptionUpdate":
        return True
    for word, feature in _FEATURES.items():
        if word in api and api != "DescribeShareLogDirs":
            return not trial.fixture.features.get(feature)
    return False


async def _with_header(
    row: Harmless, key: int, version: int, client_id: bytes | None, tags: bytes | None, trial: Trial
) -> None:
    body = _body(row, key, version, trial.fixture.names())
    frame = frame_of(key, version, body, correlation_id=-5, client_id=client_id, header_tags=tags)
    await _as_usual(trial, frame, key, version)


async def _with_tags(row: Harmless, key: int, version: int, trial: Trial) -> None:
    body = _body(row, key, version, trial.fixture.names())
    await _as_usual(trial, frame_of(key, version, body[:-1] + UNKNOWN_TAG, correlation_id=-5), key, version)


async def _as_usual(trial: Trial, frame: bytes, key: int, version: int) -> None:
    """Send a frame that must be answered."""
    await (await trial.wire()).ask_frame(frame, key, version, correlation_id=-5)


# --- wrong frames -----------------------------------------------------------------------------------------------


async def _must_close(trial: Trial, frame: bytes, key: int, version: int) -> None:
    wire = await trial.wire()
    try:
        answer = await wire.ask_frame(frame, key, version)
    except ClosedByBrokerError:
        return
    codes = ", ".join(map(code_name, codes_of(answer)))
    raise DiffersError(f"it is answered{f' ({codes})' if codes else ''}; the connection should end")


async def _cut(row: Harmless, key: int, version: int, by: int, trial: Trial) -> None:
    body = _body(row, key, version, trial.fixture.names())
    await _must_close(
        trial, frame_of(key, version, body[:by] if by else body[: len(body) // 2]), key, version
    )


async def _damaged(row: Harmless, key: int, version: int, damage: Damage, trial: Trial) -> None:
    message = row.request(trial.fixture.names(), version)
    damaged = damage.of(key, version, message)
    assert damaged is not None
    await _must_close(trial, frame_of(key, version, damaged), key, version)


async def _newer(key: int, by: int | None, trial: Trial) -> None:
    version = trial.fixture.versions[key][1] + by if by is not None else 32767
    await _version_is(key, version, trial)


async def _older(key: int, trial: Trial) -> None:
    low = trial.fixture.versions[key][0]
    if low < 1:
        from barnabas.tools.conformance.cases import NotApplicableError

        raise NotApplicableError("version 0 is served")
    await _version_is(key, low - 1, trial)


async def _version_is(key: int, version: int, trial: Trial) -> None:
    await _must_close(
        trial, frame_of(key, version, bytes(64)), key, trial.fixture.newest(registry.name_of(key))
    )


# --- damage -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage to one field: its path in the message, and the bytes that replace its length."""

    name: str
    rule: str
    path: tuple[str | int, ...]
    wide: bytes
    compact: bytes

    def of(self, key: int, version: int, message: Any) -> bytes | None:
        """Return the body with the damage; None if the version lacks the field, or the damage is valid for it."""
        codec = registry.request_codec(key)
        holder, name = _holder(message, self.path)
        before = getattr(holder, name)
        try:
            setattr(holder, name, _nothing(before))
            empty = codec.encode_bytes(message, version)
            setattr(holder, name, _something(before))
            filled = codec.encode_bytes(message, version)
        except EncodeError:
            return None
        finally:
            setattr(holder, name, before)
        start = next(
            (at for at, pair in enumerate(zip(empty, filled, strict=False)) if pair[0] != pair[1]), None
        )
        if start is None:
            return None
        is_compact = registry.is_flexible(key, version)
        size = 1 if is_compact else len(self.wide) if isinstance(before, list | bytes) else 2
        start -= size - 1
        if start < 0 or any(empty[start : start + size]) is not is_compact:
            return None
        length = (
            self.compact if is_compact else self.wide[-size:] if self.wide[0] == 0xFF else self.wide[:size]
        )
        body = empty[:start] + length + empty[start + size :]
        try:
            codec.decode_whole(body, version)
        except (DecodeError, ValueError, OverflowError, MemoryError):
            return body
        return None


_NULL = (b"\xff\xff\xff\xff", b"\x00")
_BEYOND = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07")


def damages(row: Harmless, key: int, version: int) -> Iterator[Damage]:
    """Yield invalid values of a request's fields: null where it is not allowed, and lengths beyond the frame."""
    message = row.request(_SAMPLE, version)
    for path in _lengths(message, ()):
        name = ".".join(str(part) for part in path if not isinstance(part, int))
        for damage in (
            Damage(
                f"{name} is null",
                "A field that cannot be null and is null cannot be parsed, and ends the connection.",
                path,
                *_NULL,
            ),
            Damage(
                f"{name} longer than the frame",
                "A length beyond the end of the frame cannot be parsed, and ends the connection.",
                path,
                *_BEYOND,
            ),
        ):
            if damage.of(key, version, message) is not None:
                yield damage


def _lengths(message: Any, above: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of all fields with a length, in the message and in the first entries of its lists."""
    for field_of_message in fields(message):
        value = getattr(message, field_of_message.name)
        if field_of_message.name == "unknown_tagged_fields":
            continue
        if isinstance(value, str | list) or (
            isinstance(value, bytes) and not field_of_message.name.endswith("_id")
        ):
            yield (*above, field_of_message.name)
        if isinstance(value, list) and value and is_dataclass(value[0]):
            yield from _lengths(value[0], (*above, field_of_message.name, 0))
        elif is_dataclass(value):
            yield from _lengths(value, (*above, field_of_message.name))


def _holder(message: Any, path: tuple[str | int, ...]) -> tuple[Any, str]:
    for part in path[:-1]:
        message = message[part] if isinstance(part, int) else getattr(message, part)
    return message, str(path[-1])


def _nothing(value: Any) -> Any:
    return "" if isinstance(value, str) else b"" if isinstance(value, bytes) else []


def _something(value: Any) -> Any:
    if isinstance(value, str):
        return "x"
    if isinstance(value, bytes):
        return b"x"
    return value[:1] or [0]
