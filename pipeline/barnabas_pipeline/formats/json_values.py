"""JSON values to columns, one at a time and strictly: values that do not match the schema exactly are refused.

The rule: nothing is rounded, guessed or dropped. A number keeps its digits; text for base64 or a time must have exactly
that form.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal as Number
from decimal import InvalidOperation
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from barnabas_pipeline.field_types import (
    DAY_MAX,
    DAY_MIN,
    DAY_US,
    INT64_MAX,
    PLAIN,
    Array,
    Decimal,
    Enum,
    Field,
    Map,
    Record,
    Union,
    name_of,
)
from barnabas_pipeline.formats.base import VALUE_BYTES_MAX, RefusedError

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Document, Json, Row, Value
    from barnabas_pipeline.field_types import Type

LONG_DIGITS_MAX = 400  # an integer with more digits exceeds all types, and is expensive to parse
TOO_LARGE = 10**LONG_DIGITS_MAX
DECIMAL_BYTES_MAX = 32  # 38 digits need 16
ISO8601 = (
    r"^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2})?)(?:\.(\d{1,9}))?"
    r"(Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d|[+-](?:[01]\d|2[0-3]))$"
)
UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
DATE = r"^\d{4}-\d{2}-\d{2}$"
_ISO8601 = re.compile(ISO8601, re.ASCII)
_UUID = re.compile(UUID, re.IGNORECASE)
_DATE = re.compile(DATE, re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)
_WHOLE = re.compile(r"0|-?[1-9]\d*", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


class Digits(float):
    """A number with its original text."""

    text: str


def _digits(text: str) -> Digits:
    number = Digits(text)
    number.text = text
    return number


_INTEGERS = (int,)
_NUMBERS = (int, float, Digits)


# --- text -----------------------------------------------------------------------------------------------------------


def parse_object(value: bytes | None, bytes_max: int = VALUE_BYTES_MAX, *, exact: bool = False) -> Document:
    """Parse a single JSON object; with `exact` fractions are Digits. Raises RefusedError."""
    if not value:
        raise RefusedError("empty", "the value is null" if value is None else "the value has no bytes")
    if len(value) > bytes_max:
        raise RefusedError("too_large", f"{len(value)} bytes are more than {bytes_max}")
    try:
        text = value.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise RefusedError("utf8", f"no UTF-8 at byte {error.start}") from None
    if not text:
        raise RefusedError("empty", "the value is blank")
    try:
        parsed, end = (_EXACT if exact else _DECODER).raw_decode(text)
    except RecursionError:
        raise RefusedError("json", "nested too deeply") from None
    except ValueError as error:
        raise RefusedError("json", str(error)) from None
    if end != len(text):
        raise RefusedError("trailing", f"more text at character {end}")
    if not isinstance(parsed, dict):
        raise RefusedError("type", "the value is no JSON object")
    try:
        json.dumps(parsed, ensure_ascii=False).encode() if "\\u" in text else None
    except UnicodeEncodeError:
        raise RefusedError("utf8", "half of a surrogate pair") from None
    return parsed


def members(value: bytes) -> Iterator[tuple[str, str]]:
    """Yield name and raw text of each member of an object that `parse_object` accepts."""
    text = value.decode()
    at = text.index("{") + 1
    while True:
        begin = _skip_space(text, at)
        name, at = _DECODER.raw_decode(text, begin)
        at = _skip_space(text, _skip_space(text, at) + 1)
        _, at = _DECODER.raw_decode(text, at)
        yield name, text[begin:at]
        at = _skip_space(text, at)
        if text[at] == "}":
            return
        at += 1


def _skip_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _no_duplicates(pairs: list[tuple[str, Json]]) -> Document:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        names = [name for name, _ in pairs]
        raise RefusedError(
            "duplicate_key", f"{next(n for n in names if names.count(n) > 1)!r} is there twice"
        )
    return parsed


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _integer(text: str) -> int:
    if len(text) <= LONG_DIGITS_MAX:
        return int(text)
    return -TOO_LARGE if text[0] == "-" else TOO_LARGE


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_int=_integer)
_EXACT = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_int=_integer, parse_float=_digits
)


def written(value: Json, path: str) -> str:
    """Write an exact value as JSON again, without spaces. Raises RefusedError."""
    if isinstance(value, dict):
        inner = (
            f"{json.dumps(name, ensure_ascii=False)}:{written(held, path)}" for name, held in value.items()
        )
        return f"{{{','.join(inner)}}}"
    if isinstance(value, list):
        return f"[{','.join(written(held, path) for held in value)}]"
    if isinstance(value, Digits):
        return value.text
    if type(value) is int and abs(value) >= TOO_LARGE:
        raise RefusedError("range", f"{path} has an integer of more than {LONG_DIGITS_MAX} digits")
    return json.dumps(value, ensure_ascii=False)


def needs_digits(fields: tuple[Field, ...]) -> bool:
    """Return whether fields need the original text of numbers."""
    return any(_needs_digits(field) for field in fields)


def _needs_digits(field: Field) -> bool:
    match field.type:
        case Decimal() | "json":
            return True
        case Array():
            return _needs_digits(field.type.element)
        case Map():
            return _needs_digits(field.type.value)
        case Record():
            return needs_digits(field.type.fields)
        case Union():
            return needs_digits(field.type.branches)
    return False


# --- values ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Checker:
    """Converter of JSON values to values for Arrow; `strange` is set if a nested record has an unknown field."""

    strange: bool = False

    def record(self, value: Document, fields: tuple[Field, ...], path: str = "") -> Row:
        """Check the fields of an object, and remove the known fields from it. Raises RefusedError."""
        values = {}
        for field in fields:
            name = f"{path}{field.name}"
            known_as = next((name for name in (field.name, *field.aliases) if name in value), None)
            if known_as is not None:
                values[field.name] = self.checked(value.pop(known_as), field, name)
            elif field.default is not None:
                values[field.name] = self.checked(field.default, field, name)
            elif field.required:
                raise RefusedError("missing_field", f"{name} is missing")
        return values

    def checked(self, value: Json, field: Field, path: str) -> Value:
        """Return the value in the form of its field. Raises RefusedError."""
        if value is None:
            if field.required:
                raise RefusedError("type", f"{path} is null")
            return None
        kind = field.type
        if isinstance(kind, str):
            if kind in OF_TIME and kind != "date" and is_beyond(value, kind):
                self.strange = True
                return None
            self.strange |= kind in OF_TEXT and is_more_exact(value)
            checked = _PLAIN[kind](value, path)
        else:
            checked = self._nested(value, kind, path)
        if field.min is None and field.max is None:
            return checked
        size = len(checked) if isinstance(checked, str | bytes | list) else checked
        if (field.min is not None and size < field.min) or (field.max is not None and size > field.max):
            raise RefusedError("range", f"{path} is not within {field.min} and {field.max}")
        return checked

    def _nested(self, value: Json, kind: Type, path: str) -> Value:
        match kind:
            case Record() if type(value) is dict:
                remaining = dict(value)
                record = self.record(remaining, kind.fields, f"{path}.")
                self.strange |= bool(remaining)
                return record
            case Array() if type(value) is list:
                return [self.checked(item, kind.element, path) for item in value]
            case Map() if type(value) is dict:
                return [
                    (_map_key(name, kind.key, path), self.checked(held, kind.value, f"{path}.{name}"))
                    for name, held in value.items()
                ]
            case Enum() if type(value) is str:
                if value not in kind.symbols:
                    raise RefusedError("range", f"{path} is none of the symbols")
                return value
            case Decimal():
                return _decimal(_unscaled(value, kind, path) if kind.is_bytes else value, kind, path)
            case Union():
                return self._union(value, kind, path)
        raise RefusedError("type", f"{path} is no {name_of(kind)}")

    def _union(self, value: Json, kind: Union, path: str) -> Value:
        strange = self.strange
        for branch in kind.branches:
            try:
                return {branch.name: self.checked(value, branch, path)}
            except RefusedError:
                self.strange = strange
        raise RefusedError("type", f"{path} is none of the union's types")


def _map_key(name: str, kind: str, path: str) -> Value:
    if kind == "string":
        return name
    if kind == "boolean" and name in ("true", "false"):
        return name == "true"
    if kind != "boolean" and _WHOLE.fullmatch(name):
        return _PLAIN[kind](_integer(name), path)
    raise RefusedError("type", f"a key of {path} is no {kind}")


def _decimal(value: Json, kind: Decimal, path: str) -> Number:
    if type(value) not in (*_NUMBERS, str):
        raise RefusedError("type", f"{path} is no decimal")
    text = value.text if isinstance(value, Digits) else str(value) if abs_fits(value) else ""
    if not text or not _DECIMAL.fullmatch(text):
        raise RefusedError("type" if isinstance(value, str) else "range", f"{path} is no decimal")
    try:
        sign, digits, exponent = Number(text).as_tuple()
    except InvalidOperation:
        raise RefusedError("range", f"{path} has too many digits") from None
    assert isinstance(exponent, int)
    digits = tuple(digits)
    if not any(digits):
        return Number((sign, (0,), -kind.scale))
    shift = exponent + kind.scale
    if len(digits) + shift > kind.precision:
        raise RefusedError(
            "range", f"{path} has more than {kind.precision - kind.scale} digits before the point"
        )
    if shift < 0:
        if any(digits[shift:]):
            raise RefusedError("range", f"{path} has more than {kind.scale} digits behind the point")
        digits = digits[:shift]
    return Number((sign, digits + (0,) * max(shift, 0), -kind.scale))


def _unscaled(value: Json, kind: Decimal, path: str) -> str:
    data = _bytes(value, path)
    if not 0 < len(data) <= DECIMAL_BYTES_MAX:
        raise RefusedError("range", f"{path} is no decimal of 1 to {DECIMAL_BYTES_MAX} bytes")
    return f"{int.from_bytes(data, signed=True)}E-{kind.scale}"


def abs_fits(value: Json) -> bool:
    """Return whether a number was parsed: it has at most LONG_DIGITS_MAX digits. Texts fit."""
    return type(value) is not int or abs(value) < TOO_LARGE


# --- plain types ----------------------------------------------------------------------------------------------------


def _whole(kind: str) -> Callable[[Json, str], int]:
    plain = PLAIN[kind]
    low, high = plain.min, plain.max
    bits = {"int": "32 bit integer", "long": "64 bit integer"}.get(kind, kind)

    def check(value: Json, path: str) -> int:
        if type(value) is not int:
            raise RefusedError("type", f"{path} is no {kind}")
        if not low <= value <= high:  # type: ignore[operator]
            raise RefusedError("range", f"{path} is no {bits}")
        return value * plain.factor

    return check


def _double(value: Json, path: str) -> float:
    if type(value) not in _NUMBERS:
        raise RefusedError("type", f"{path} is no double")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number - number != 0:
        raise RefusedError("range", f"{path} is no finite number")
    return number


def _float(value: Json, path: str) -> float:
    with np.errstate(over="ignore"):
        number = float(np.float32(_double(value, path)))
    if number - number != 0:
        raise RefusedError("range", f"{path} is no finite number of 32 bits")
    return number


def _boolean(value: Json, path: str) -> bool:
    if type(value) is not bool:
        raise RefusedError("type", f"{path} is no boolean")
    return value


def _string(value: Json, path: str) -> str:
    if type(value) is not str:
        raise RefusedError("type", f"{path} is no string")
    return value


def _bytes(value: Json, path: str) -> bytes:
    try:
        return b64decode(_string(value, path), validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError("type", f"{path} is no base64") from None


def _uuid(value: Json, path: str) -> str:
    if not _UUID.fullmatch(_string(value, path)):
        raise RefusedError("type", f"{path} is no UUID")
    return str(value).lower()


def _date(value: Json, path: str) -> int:
    if not _DATE.fullmatch(_string(value, path)):
        raise RefusedError("type", f"{path} is no date like 2026-11-20")
    try:
        return date.fromisoformat(value).toordinal() - _EPOCH_DAY
    except ValueError:
        raise RefusedError("range", f"{path} is no date of the years 1 to 9999") from None


def is_beyond(value: Json, kind: str) -> bool:
    """Return whether a whole number is a time out of a column's range, such as infinity in PostgreSQL, or 24:00."""
    low, high = PLAIN[kind].min, PLAIN[kind].max
    assert low is not None
    assert high is not None
    return type(value) is int and not low <= value <= high


def is_more_exact(value: Json) -> bool:
    """Return whether a time has more digits after the point than a column holds."""
    if not isinstance(value, str):
        return False
    match = _ISO8601.fullmatch(value) or _ISO8601.fullmatch(f"{value}Z")
    return match is not None and bool((match[3] or "")[6:].strip("0"))


def _local_iso8601(value: Json, path: str) -> int:
    if _ISO8601.fullmatch(_string(value, path)):
        raise RefusedError("type", f"{path} has a zone, which a local time has not")
    return _iso8601(f"{value}Z", path)


def _iso8601(value: Json, path: str) -> int:
    match = _ISO8601.fullmatch(_string(value, path))
    if not match:
        raise RefusedError("type", f"{path} is no time like 2026-11-20T14:00:00.5Z")
    day, time, fraction, zone = match.groups()
    micros = (fraction or "").ljust(6, "0")  # more precise values are truncated here, and kept in `_extra`
    try:
        when = datetime.fromisoformat(f"{day}T{time}+00:00")
    except ValueError:
        raise RefusedError("range", f"{path} is no time of the years 1 to 9999") from None
    seconds = 0
    if zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
        seconds = (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)
    total_us = ((when - _EPOCH) // timedelta(seconds=1) - seconds) * 1_000_000 + int(micros[:6])
    if not DAY_MIN * DAY_US <= total_us < (DAY_MAX + 1) * DAY_US:
        raise RefusedError("range", f"{path} is no time of the years 1 to 9999")
    return total_us


def _json(value: Json, path: str) -> str:
    return written(value, path)


_PLAIN: dict[str, Callable[[Json, str], Value]] = {
    name: _whole(name) for name, plain in PLAIN.items() if plain.min is not None and name != "date"
} | {
    "boolean": _boolean,
    "double": _double,
    "float": _float,
    "string": _string,
    "bytes": _bytes,
    "uuid": _uuid,
    "json": _json,
    "date": _date,
    "iso8601": _iso8601,
    "local_iso8601": _local_iso8601,
}
OF_TEXT = ("iso8601", "local_iso8601")
OF_TIME = frozenset(
    name
    for name, plain in PLAIN.items()
    if plain.max not in (None, INT64_MAX) and name.startswith(("date", "time", "local"))
)
"""Types of times that are whole numbers with bounds."""
