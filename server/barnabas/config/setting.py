"""A setting: its name, its type with limits, its default, and its description.

The rule: a value is parsed and checked once, when it is set; a reader gets the right Python type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class SettingError(ValueError):
    """The value of a setting is invalid; the text names the setting and the values that are valid."""


class Kind(Generic[T]):
    """A type of value: Kafka's name for it, its number in DescribeConfigs, and how text becomes a value.

    `high` is the largest whole number that fits, if it is a whole number; the least is one below its negative.
    """

    __slots__ = ("code", "expected", "high", "name", "parse")

    def __init__(self, name: str, code: int, parse: Callable[[str], T], expected: str, high: int = 0) -> None:
        self.name = name
        self.code = code
        self.parse = parse
        self.expected = expected
        self.high = high


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _whole(text: str) -> int:
    text = text.strip()
    if not text.isascii() or not (text[1:] if text[:1] in ("+", "-") else text).isdigit():
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    text = text.strip().rstrip("fFdD")
    if (
        not text.isascii()
        or not text.strip("+-").replace(".", "0").replace("e", "0").replace("E", "0")[:1].isdigit()
    ):
        raise ValueError(text)
    if "_" in text:
        raise ValueError(text)
    return float(text)


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.strip() for item in text.split(","))) if text.strip() else ()


BOOLEAN: Kind[bool] = Kind("boolean", 1, _boolean, "true or false")
STRING: Kind[str] = Kind("string", 2, str, "text")
INT: Kind[int] = Kind("int", 3, _whole, "a whole number", INT_MAX)
SHORT: Kind[int] = Kind("short", 4, _whole, "a whole number", SHORT_MAX)
LONG: Kind[int] = Kind("long", 5, _whole, "a whole number", LONG_MAX)
DOUBLE: Kind[float] = Kind("double", 6, _number, "a number")
LIST: Kind[tuple[str, ...]] = Kind("list", 7, _list, "values with commas between them")
CLASS: Kind[str] = Kind("class", 8, str.strip, "the name of a class")
PASSWORD: Kind[str] = Kind("password", 9, str, "text")
KINDS: dict[str, Kind[Any]] = {
    kind.name: kind for kind in (BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD)
}

_OF_LISTENERS = frozenset(("connections.max.reauth.ms", "max.connection.creation.rate", "max.connections"))

ANY_CASE = "/"
REPLICAS = "replicas"
COUNTS = "counts"
_DIGITS_MAX = 20
"""Of a number that is read: `int` refuses some thousand."""


class Setting(Generic[T]):
    """A setting; `allowed`, `importance`, `changes` and `effect` are as in the columns of `config/tables`.

    `broker_names`: for a topic or group setting, the broker settings that give its default, most specific first.
    `base`: for a setting of one listener, the name of the setting that it stands in for.
    `stops`: whether the broker does not start with a value other than the default, which it would not act upon.
    """

    __slots__ = (
        "allowed", "base", "broker_names", "changes", "default", "doc", "effect", "importance", "kind", "name", "stops",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        kind: Kind[T],
        default: T,
        allowed: str,
        importance: str,
        changes: str,
        effect: str,
        doc: str,
        *,
        broker_names: tuple[str, ...] = (),
        base: str = "",
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.allowed = allowed
        self.importance = importance
        self.changes = changes
        self.stops = effect.startswith("!")
        self.effect = effect.removeprefix("!")
        self.doc = doc
        self.broker_names = broker_names
        self.base = base

    @classmethod
    def of_row(cls, row: tuple[Any, ...], broker_names: tuple[str, ...] = ()) -> Setting[Any]:
        """A setting from a table's row."""
        name, kind_name, text, *rest = row
        kind = KINDS[kind_name]
        return Setting(
            name, kind, None if text is None else kind.parse(text), *rest, broker_names=broker_names
        )

    def with_limits(self, allowed: str) -> Setting[T]:
        """The same setting with other values allowed."""
        return Setting(
            self.name,
            self.kind,
            self.default,
            allowed,
            self.importance,
            self.changes,
            f"{'!' if self.stops else ''}{self.effect}",
            self.doc,
            broker_names=self.broker_names,
            base=self.base,
        )

    def for_listener(self, name: str) -> Setting[Any]:
        """The same setting for one listener, unset by default; those of TLS, SASL and connections have an effect."""
        kind: Kind[Any] = self.kind
        effect = f"{'!' if self.stops else ''}{self.effect}"
        if not effect and self.name not in _OF_LISTENERS and not self.name.startswith(("ssl.", "sasl.")):
            effect = "!limits"
        columns = (self.allowed, self.importance, self.changes, effect, self.doc)
        return Setting(name, kind, None, *columns, base=self.name)

    def __repr__(self) -> str:
        return f"Setting({self.name})"

    @property
    def dynamic(self) -> bool:
        """True if the setting can change while the broker runs."""
        return self.changes in ("broker", "cluster")

    @property
    def is_removed(self) -> bool:
        """True if Kafka 4 has no such setting."""
        return self.effect in ("removed", "zookeeper")

    @property
    def acts_in_cluster(self) -> bool:
        """True if a broker in a cluster acts on the setting, but not a broker without a cluster."""
        return self.effect in ("cluster", "zookeeper", "quorum", "controller")

    def acts_with(self, keeper: str) -> bool:
        """Return whether a node in a cluster acts on the setting, by its keeper, as in `keeper.Keeper`."""
        in_quorum = keeper in ("quorum", "controller", "combined")
        return (
            self.effect in ("cluster", keeper)
            or (self.effect == "quorum" and in_quorum)
            or (self.effect == "controller" and keeper == "combined")
        )

    @property
    def sensitive(self) -> bool:
        """True if the setting's value is never shown."""
        return self.kind is PASSWORD

    def parse(self, text: str) -> T:
        """The typed value of `text`. Raises SettingError."""
        try:
            value = self.kind.parse(text)
        except (ValueError, KeyError):
            raise self._error(text, self.expected) from None
        self.check(value)
        return value

    @property
    def expected(self) -> str:
        """The allowed values of the setting, in words."""
        if not self.allowed or self.allowed == "+":
            return self.kind.expected
        if self.allowed == REPLICAS:
            return "PARTITION:BROKER with commas between them, or *"
        if self.allowed == COUNTS:
            return "ADDRESS:COUNT with commas between them"
        if ".." not in self.allowed:
            choices = self.allowed.removeprefix("|").replace("|", ", ").replace(ANY_CASE, ", ")
            or_none = " or nothing" if self.allowed.startswith("|") else ""
            return f"{'some' if self.kind is LIST else 'one'} of {choices}{or_none}"
        extra, _, bounds = self.allowed.rpartition(", ")
        low, _, high = bounds.partition("..")
        text = f"{self.kind.expected} from {low} " + (f"to {high}" if high else "on")
        return f"{text}, or {extra}" if extra else text

    def check(self, value: Any) -> None:
        """See that a typed value is within bounds. Raises SettingError."""
        if self.kind.high and not -self.kind.high - 1 <= value <= self.kind.high:
            raise self._error(value, f"{self.kind.expected} from {-self.kind.high - 1} to {self.kind.high}")
        if self.kind is LIST and "" in value and self.allowed != REPLICAS:
            raise self._error(",".join(value), self.kind.expected)
        if self.allowed and not self._allows(value):
            raise self._error(self.format(value), self.expected)

    def check_items_differ(self, text: str) -> None:
        """See that no item of a list is in a text twice. Raises SettingError."""
        items = [item.strip() for item in text.split(",")]
        if self.kind is LIST and len(set(items)) < len(items):
            raise self._error(text, "each item once")

    def _allows(self, value: Any) -> bool:
        if self.allowed == "+":
            return bool(value.strip())
        if self.allowed == REPLICAS:
            return value == ("*",) or all(not item or _is_replica(item) for item in value)
        if self.allowed == COUNTS:
            return not value.strip() or all(map(_is_count, value.split(",")))
        if ".." in self.allowed:
            extra, _, bounds = self.allowed.rpartition(", ")
            low, _, high = bounds.partition("..")
            return bool(float(low) <= value and (not high or value <= float(high))) or (
                bool(extra) and value == float(extra)
            )
        if ANY_CASE in self.allowed:
            return value.lower() in self.allowed.lower().split(ANY_CASE)
        choices = self.allowed.split("|")
        return all(item in choices for item in (value if self.kind is LIST else (value,)))

    def _error(self, value: object, expected: str) -> SettingError:
        shown = "..." if self.sensitive else value
        return SettingError(f"{self.name}={shown}: {expected} expected")

    def format(self, value: Any) -> str:
        """The value as text, as Kafka writes it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return _java_double(value)
        return str(value)

    def normal(self, text: str) -> str:
        """Return the normal form of a valid text: `007` as `7`, `TRUE` as `true`, an item once. Raises SettingError."""
        value = self.parse(text)
        if self.allowed == REPLICAS:
            return ",".join(item.strip() for item in text.split(","))
        return self.format(value)


def _is_replica(text: str) -> bool:
    partition, _, broker = text.partition(":")
    return text.isascii() and partition.isdigit() and broker.isdigit()


def _is_count(text: str) -> bool:
    address, _, count = text.strip().rpartition(":")
    if not address or not count.isascii() or not count.isdigit():
        return False
    return len(count) <= _DIGITS_MAX and int(count) <= INT_MAX


def _java_double(value: float) -> str:
    """A number as Java prints it: with an exponent from 10^7 on and below 10^-3, and always with a decimal."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    shift = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits)) - 1
    digits = digits.rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{shift}"
