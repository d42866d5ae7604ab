"""Reading a description of seeds: from YAML or JSON, already parsed, to values. Pure.

    topics:
      orders:
        partitions: 3
        settings: {cleanup.policy: compact}
        records:
          - {key: a, value: text, headers: {source: shop}, timestamp: 1700000000000, partition: 0}
          - {key: {base64: AAE=}, value: {json: {id: 1}}}
          - only a value
    groups:
      billing: {orders: {0: 5, 1: earliest}}
    acls:
      - {principal: "User:alice", operation: READ, topic: orders-, pattern: prefixed}
    users:
      alice: {password: secret}
    quotas:
      - {user: alice, producer_byte_rate: 1000000}

The rule: an unknown name is an error, and so is a value of another type than the expected one.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

from barnabas.errors import RequestError
from barnabas.security.acls import (
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.security.authorizer import CLUSTER_NAME, OPERATIONS_ON, Operation, ResourceType
from barnabas.security.scram import MECHANISMS
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.tools.seeding.seeds import (
    EARLIEST,
    LATEST,
    SeedError,
    SeedOffset,
    SeedQuota,
    SeedRecord,
    Seeds,
    SeedTopic,
    SeedUser,
)

Path = tuple[str | int, ...]
"""Path of a value: the keys and numbers that lead to it."""
E = TypeVar("E", bound=IntEnum)

_ENTITY_PARTS = ("user", "client_id", "ip")
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
    "cluster": ResourceType.CLUSTER,
}
_TIMESTAMP_MAX = 1 << 63
_OFFSETS = {"earliest": EARLIEST, "latest": LATEST}


def read_seeds(value: Any, lines: Mapping[Path, int] | None = None, file: str = "") -> Seeds:
    """Return the seeds in a parsed document; `lines` are those of the places in it, from 1. Raises SeedError."""
    root = _Place(value, (), lines or {}, file)
    if value is None:
        return Seeds()
    readers: dict[str, Callable[[_Place], tuple[Any, ...]]] = {
        "topics": lambda place: tuple(_topic(name, topic) for name, topic in place.named()),
        "groups": lambda place: tuple(
            offset for name, group in place.named() for offset in _offsets(name, group)
        ),
        "acls": lambda place: tuple(map(_acl, place.items())),
        "users": lambda place: tuple(_user(name, user) for name, user in place.named()),
        "quotas": lambda place: tuple(map(_quota, place.items())),
    }
    parts = {
        name: readers[name](place) for name, place in root.fields(readers).items() if place.value is not None
    }
    return Seeds(
        parts.get("topics", ()),
        parts.get("groups", ()),
        parts.get("acls", ()),
        parts.get("users", ()),
        parts.get("quotas", ()),
        root.at("acls").where() if parts.get("acls") else "",
    )


def read_records(value: Any) -> tuple[SeedRecord, ...]:
    """Return the records of a parsed list. Raises SeedError."""
    return tuple(_record(record, None) for record in _Place(value, (), {}, "").items())


@dataclass(frozen=True, slots=True)
class _Place:
    """A value, and where it stands."""

    value: Any
    path: Path
    lines: Mapping[Path, int]
    file: str

    def fail(self, text: str) -> NoReturn:
        """Raise SeedError about this place."""
        raise self.error(text)

    def error(self, text: str) -> SeedError:
        """Return an error about this place."""
        line = self.line()
        return SeedError(
            ": ".join(part for part in (self._file_and_line(line), str(self), text) if part), line
        )

    def where(self) -> str:
        """Return file, line and place, for later refusals of a broker; empty without a file."""
        return f"{self._file_and_line(self.line())}: {self}" if self.file else ""

    def _file_and_line(self, line: int | None) -> str:
        return self.file + (f":{line}" if line is not None and self.file else "")

    def line(self) -> int | None:
        """Return the line of the place, or of the nearest enclosing place with a line."""
        path, line = self.path, None
        while line is None and path:
            line = self.lines.get(path)
            path = path[:-1]
        return line if line is not None else self.lines.get(())

    def __str__(self) -> str:
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else part)
        return text

    def at(self, key: Any) -> _Place:
        """Return the place of the value at a key or an index of this one."""
        step = key if isinstance(self.value, list) else str(key)
        return _Place(self.value[key], (*self.path, step), self.lines, self.file)

    def mapping(self, what: str = "names with values") -> Mapping[Any, Any]:
        """Return the value, which must be a mapping."""
        if not isinstance(self.value, dict):
            self.fail(f"{what} expected, and there is {_shown(self.value)}")
        return self.value

    def fields(self, allowed: Iterable[str]) -> dict[str, _Place]:
        """Return the fields of a mapping, all of which must be known."""
        allowed = list(allowed)
        for name in self.mapping(f"fields ({', '.join(allowed)})"):
            if name not in allowed:
                self.at(name).fail(f"there is no such field; the fields here are {', '.join(allowed)}")
        return {name: self.at(name) for name in self.value}

    def named(self) -> Iterator[tuple[str, _Place]]:
        """Return the entries of a mapping by name."""
        for name in self.mapping():
            place = self.at(name)
            if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
                place.fail(f"a name expected, and there is {_shown(name)}; put it in quotes")
            yield str(name), place

    def items(self) -> list[_Place]:
        """Return the items of a list."""
        if not isinstance(self.value, list):
            self.fail(f"a list expected, and there is {_shown(self.value)}")
        return [self.at(number) for number in range(len(self.value))]

    def number(self, low: int, high: int) -> int:
        """Return a whole number within bounds."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not low <= self.value <= high:
            self.fail(f"a whole number from {low} to {high} expected, and there is {_shown(self.value)}")
        return self.value

    def text(self) -> str:
        """Return a text that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            self.fail(f"text expected, and there is {_shown(self.value)}; put it in quotes")
        return self.value

    def word(self, kind: type[E]) -> E:
        """Return one of the names of an enumeration, in upper or lower case."""
        name = self.text().upper()
        if name not in kind.__members__:
            self.fail(f"{self.value!r} is not one of {', '.join(kind.__members__)}")
        return kind[name]


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- topics and records -----------------------------------------------------------------------------------------


def _topic(name: str, place: _Place) -> SeedTopic:
    if place.value is None:
        return SeedTopic(name, where=place.where())
    if isinstance(place.value, int):
        return SeedTopic(name, place.number(1, 1_000_000), where=place.where())
    fields = place.fields(("partitions", "settings", "records"))
    partitions = fields["partitions"].number(1, 1_000_000) if "partitions" in fields else None
    settings = {}
    if "settings" in fields:
        settings = {key: _setting(setting) for key, setting in fields["settings"].named()}
    records: tuple[SeedRecord, ...] = ()
    if "records" in fields:
        records = tuple(_record(record, partitions) for record in fields["records"].items())
    return SeedTopic(name, partitions, settings, records, place.where())


def _setting(place: _Place) -> str:
    value = place.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str | int) for item in value):
        return ",".join(map(str, value))
    raise place.error(f"a setting's value expected, and there is {_shown(value)}")


def _record(place: _Place, partitions: int | None) -> SeedRecord:
    if not isinstance(place.value, dict):
        return SeedRecord(None, _bytes(place), where=place.where())
    fields = place.fields(("key", "value", "headers", "timestamp", "partition"))
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if "headers" in fields:
        headers = tuple(_headers(fields["headers"]))
    return SeedRecord(
        _bytes(fields["key"]) if "key" in fields else None,
        _bytes(fields["value"]) if "value" in fields else None,
        headers,
        _timestamp_ms(fields["timestamp"]) if "timestamp" in fields else None,
        fields["partition"].number(0, (partitions or 1_000_000) - 1) if "partition" in fields else None,
        place.where(),
    )


def _headers(place: _Place) -> Iterator[tuple[str, bytes | None]]:
    """Yield the headers of a mapping, or of a list of mappings for repeated names."""
    for mapping in place.items() if isinstance(place.value, list) else [place]:
        for name, value in mapping.named():
            yield name, _bytes(value)


def _bytes(place: _Place) -> bytes | None:
    """Text, `{json: ...}` or `{base64: ...}`, or nothing."""
    value = place.value
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, dict) and len(value) == 1:
        ((form, content),) = value.items()
        inner = place.at(form)
        if form == "text":
            return inner.text().encode() if content else b""
        if form == "json":
            try:
                return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
            except (TypeError, ValueError) as error:
                inner.fail(f"this cannot be written as JSON: {error}")
        if form == "base64":
            try:
                return b64decode(str(content), validate=True)
            except (Base64Error, ValueError):
                inner.fail(f"{_shown(content)} is not base64")
    raise place.error(
        f"text, {{json: ...}} or {{base64: ...}} expected, and there is {_shown(value)}; put text in quotes"
    )


def _timestamp_ms(place: _Place) -> int:
    value = place.value
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    if isinstance(value, date):
        return round(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp() * 1000)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            place.fail(
                f"{value!r} is neither milliseconds since 1970 nor a date and time (2024-05-01T12:00:00Z)"
            )
        return _timestamp_ms(_Place(moment, place.path, place.lines, place.file))
    return place.number(0, _TIMESTAMP_MAX - 1)


# --- groups, ACLs, users, quotas --------------------------------------------------------------------------------


def _offsets(group: str, place: _Place) -> Iterator[SeedOffset]:
    for topic, partitions in place.named():
        if not isinstance(partitions.value, dict):
            partitions.fail(
                f"offsets by partition expected ({{0: 5, 1: latest}}), and there is {_shown(partitions.value)}"
            )
        for index in partitions.value:
            offset_place = partitions.at(index)
            if isinstance(index, str) and index.isdecimal():  # JSON has no other keys
                index = int(index)
            if isinstance(index, bool) or not isinstance(index, int) or index < 0:
                offset_place.fail(f"the number of a partition expected, and there is {_shown(index)}")
            if isinstance(offset_place.value, dict):
                fields = offset_place.fields(("offset", "metadata"))
                if "offset" not in fields:
                    offset_place.fail("the offset is missing")
                metadata = fields["metadata"].text() if "metadata" in fields else ""
                yield SeedOffset(
                    group, topic, index, _offset(fields["offset"]), metadata, offset_place.where()
                )
            else:
                yield SeedOffset(group, topic, index, _offset(offset_place), where=offset_place.where())


def _offset(place: _Place) -> int:
    if isinstance(place.value, str):
        if place.value not in _OFFSETS:
            place.fail(f"an offset, earliest or latest expected, and there is {place.value!r}")
        return _OFFSETS[place.value]
    return place.number(0, _TIMESTAMP_MAX - 1)


def _acl(place: _Place) -> AclBinding:
    fields = place.fields(("principal", "operation", "host", "pattern", "permission", *_RESOURCES))
    named = [name for name in _RESOURCES if name in fields]
    if len(named) != 1:
        place.fail(f"an ACL names one resource ({', '.join(_RESOURCES)})")
    for name in ("principal", "operation"):
        if name not in fields:
            place.fail(f"the {name} is missing")
    principal = fields["principal"].text()
    if ":" not in principal:
        fields["principal"].fail(f"a principal has its type before it, as in User:{principal}")
    kind = _RESOURCES[named[0]]
    operation = fields["operation"].word(Operation)
    if operation is not Operation.ALL and operation not in OPERATIONS_ON[kind]:
        fields["operation"].fail(f"there is no {operation.name} on a {named[0]}")
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else fields[named[0]].text()
    return AclBinding(
        ResourcePattern(
            kind, fields["pattern"].word(PatternType) if "pattern" in fields else PatternType.LITERAL, name
        ),
        AccessControlEntry(
            principal,
            fields["host"].text() if "host" in fields else WILDCARD,
            operation,
            fields["permission"].word(Permission) if "permission" in fields else Permission.ALLOW,
        ),
    )


def _user(name: str, place: _Place) -> SeedUser:
    fields = place.fields(("password", "mechanisms", "iterations"))
    if "password" not in fields:
        place.fail("the password is missing")
    password = fields["password"]
    if not isinstance(password.value, str) or not password.value:
        password.fail("a password in quotes expected")  # nothing of it is shown
    mechanisms = tuple(MECHANISMS)
    if "mechanisms" in fields:
        for mechanism in fields["mechanisms"].items():
            if mechanism.text() not in MECHANISMS:
                mechanism.fail(f"{mechanism.value!r} is not one of {', '.join(MECHANISMS)}")
        mechanisms = tuple(fields["mechanisms"].value)
    low = max(mechanism.iterations_min for mechanism in MECHANISMS.values())
    high = min(mechanism.iterations_max for mechanism in MECHANISMS.values())
    iterations = fields["iterations"].number(low, high) if "iterations" in fields else low
    return SeedUser(name, password.value, mechanisms, iterations, place.where())


def _quota(place: _Place) -> SeedQuota:
    parts: dict[str, str] = {}
    quotas: dict[str, float] = {}
    for name, part in place.named():
        if name in _ENTITY_PARTS:
            text = part.text()
            parts[name] = "" if text == "default" else text
        else:
            value = part.value
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                part.fail(f"a number expected, and there is {_shown(value)}")
            quotas[name] = float(value)
    entity = QuotaEntity(parts.get("user"), parts.get("client_id"), parts.get("ip"))
    if not parts:
        place.fail(
            f"the quotas' user, client or address is missing ({', '.join(_ENTITY_PARTS)}; default stands for all others)"
        )
    try:
        valid_keys = entity.known_quotas
    except RequestError as error:
        place.fail(str(error))
    for name in quotas:
        if name not in valid_keys:
            place.at(name).fail(f"there is no such quota; the quotas here are {', '.join(valid_keys)}")
    if not quotas:
        place.fail(f"a quota is missing ({', '.join(valid_keys)})")
    return SeedQuota(entity, quotas, place.where())
