"""MessagePack and CBOR as JSON, for people and filters. Pure.

The rule: bytes are recognized only if they are one whole value of exactly one of the formats that contains an object with
printable names: bytes that merely begin like a number stay bytes. A type that JSON lacks becomes a text or an object that
names the type: bytes are base64url, as RFC 8949 (section 6.1) has them.
"""

from __future__ import annotations

import io
import json
import math
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any

MSGPACK, CBOR = BINARY_FORMATS = ("msgpack", "cbor")
VALUES_MAX = 200_000
"""Values in a payload, and levels of them, that are read."""
DEPTH_MAX = 100
_PLAIN_TAGS = (5, 25, 28, 29, 30, 35, 36, 256)
"""Tags of CBOR with content that is shown as it is: powers that can be huge, references, patterns, mails."""
_LEADS = frozenset((*range(0x80, 0xC0), 0xD9, 0xDC, 0xDD, 0xDE, 0xDF))
"""First bytes of what can be recognized: maps and arrays of both, and the mark of CBOR."""

_Decoded = tuple[Any, Callable[[Any], Any]]
"""A value, and what returns a value of JSON for one of a type that JSON lacks."""


class BinaryFormatError(ValueError):
    """Bytes are not a value of a format, or hold too much."""


def read(data: bytes, form: str) -> str:
    """Return the JSON of a value in MessagePack or CBOR. Raises BinaryFormatError, ModuleNotFoundError."""
    value, scalar = _READERS[form](data)
    return _text(_Plain(scalar).of(value))


def recognize(data: bytes) -> tuple[str, str] | None:
    """Return the format that bytes are certainly in, and their JSON; None where that is not certain."""
    if not data or data[0] not in _LEADS or _is_text(data):
        return None
    results = []
    for form, reader in _READERS.items():
        try:
            value, scalar = reader(data)
            if _is_named(value):
                results.append((form, _text(_Plain(scalar).of(value))))
        except (BinaryFormatError, ModuleNotFoundError):
            continue
    return results[0] if len(results) == 1 else None


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def _is_named(value: Any, depth: int = 0) -> bool:
    """Return whether a value is an object with printable names, or an array that contains one."""
    if isinstance(value, _Mapping | Mapping):
        names = [key for key, _ in value] if isinstance(value, _Mapping) else [*value]
        return bool(names) and all(isinstance(name, str) and name.isprintable() for name in names)
    return (
        isinstance(value, list) and depth < DEPTH_MAX and any(_is_named(inner, depth + 1) for inner in value)
    )


def _text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError) as error:  # an integer of more digits than Python writes
        raise BinaryFormatError(str(error)) from None


def _msgpack(data: bytes) -> _Decoded:
    import msgpack

    try:
        value = msgpack.unpackb(data, strict_map_key=False, object_pairs_hook=_Mapping)
    except Exception as error:  # msgpack's own errors have no common base
        raise BinaryFormatError(f"it is not MessagePack: {_reason(error)}") from None
    return value, _msgpack_scalar


def _msgpack_scalar(value: Any) -> Any:
    if type(value).__name__ == "Timestamp":
        return _moment(value.to_datetime, value)
    return {"ext": value.code, "data": _base64(value.data)}


def _cbor(data: bytes) -> _Decoded:
    import cbor2

    def tagged(tag: int) -> Callable[[Any, bool], Any]:
        return lambda value, is_immutable: cbor2.CBORTag(tag, value)  # noqa: ARG005

    source = io.BytesIO(data)
    try:
        decoder = cbor2.CBORDecoder(
            source,
            semantic_decoders={tag: tagged(tag) for tag in _PLAIN_TAGS},
            max_depth=DEPTH_MAX,
            allow_duplicate_keys=False,
        )
        value = decoder.decode()
    except Exception as error:  # a tag whose content does not fit it raises what its type raises
        raise BinaryFormatError(f"it is not CBOR: {_reason(error)}") from None
    if source.tell() != len(data):
        raise BinaryFormatError(f"it is not CBOR: {len(data) - source.tell()} bytes follow the value")
    return value, _cbor_scalar


def _cbor_scalar(value: Any) -> Any:
    kind = type(value).__name__
    if kind == "CBORTag":
        return {"tag": value.tag, "value": value.value}
    if kind == "CBORSimpleValue":
        return {"simple": value.value}
    if kind.lower().startswith("undefined"):
        return None
    if hasattr(value, "isoformat"):
        return _moment(lambda: value, value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)


_READERS: Mapping[str, Callable[[bytes], _Decoded]] = {MSGPACK: _msgpack, CBOR: _cbor}


class _Mapping(list[tuple[Any, Any]]):
    """The (key, value) pairs of a map, with keys of any type."""

    def __init__(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        super().__init__(pairs)


class _Plain:
    """Converts a value to JSON types, up to VALUES_MAX values."""

    def __init__(self, scalar: Callable[[Any], Any]) -> None:
        """`scalar` returns the JSON value for a value of a type that JSON lacks."""
        self._scalar = scalar
        self._count = 0

    def of(self, value: Any, depth: int = 0) -> Any:
        """Return a value converted to JSON types. Raises BinaryFormatError if it has too many values or levels."""
        self._count += 1
        if self._count > VALUES_MAX:
            raise BinaryFormatError(f"more than {VALUES_MAX} values are not shown")
        if depth > DEPTH_MAX:
            raise BinaryFormatError(f"more than {DEPTH_MAX} levels are not shown")
        if value is None or isinstance(value, bool | int | str):
            return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        if isinstance(value, float):
            return value if math.isfinite(value) else _number_name(value)
        if isinstance(value, bytes | bytearray):
            return _base64(value)
        if isinstance(value, _Mapping):
            return self._object(value, depth)
        if isinstance(value, Mapping):
            return self._object(value.items(), depth)
        if isinstance(value, list):
            return [self.of(inner, depth + 1) for inner in value]
        return self.of(self._scalar(value), depth + 1)

    def _object(self, pairs: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            plain = self.of(key, depth + 1)
            name = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
            if name in result:
                raise BinaryFormatError(f"two of its keys are {name[:40]!r}")
            result[name] = self.of(value, depth + 1)
        return result


def _number_name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _base64(data: bytes | bytearray) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _moment(read_it: Callable[[], Any], value: Any) -> str:
    """Return a time as ISO 8601; one beyond the years that Python counts as its library writes it."""
    try:
        return str(read_it().isoformat())
    except (ValueError, OverflowError):
        return str(value)


def _reason(error: Exception) -> str:
    text = str(error.__cause__ or error) or type(error).__name__
    return text[:200]
