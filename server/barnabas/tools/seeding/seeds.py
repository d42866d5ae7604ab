"""Initial contents of a broker, as values: topics with records, offsets of groups, ACLs, users, quotas. Pure.

The rule: all errors of a description are reported when it is read, before anything is done, with their line and place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.security.acls import AclBinding
from barnabas.serving.quotas.entities import QuotaEntity

EARLIEST, LATEST = -2, -1
"""Offsets of a group that are looked up in the log, with the numbers of ListOffsets."""


class SeedError(ValueError):
    """A description that cannot be followed; `line` is that of the file (from 1), None where there is no file."""

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True, slots=True)
class SeedRecord:
    """One record. Without a `partition` its key decides, without a `timestamp_ms` the broker's clock."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None
    where: str = field(default="", compare=False, repr=False)
    """File, line and place of the description, for what the broker refuses; empty where there is no file. So below."""


@dataclass(frozen=True, slots=True)
class SeedTopic:
    """A topic with its settings and records; `partitions` of None are as many as the broker's default."""

    name: str
    partitions: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    records: tuple[SeedRecord, ...] = ()
    where: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SeedOffset:
    """Offset that a group has committed for a partition: a number, EARLIEST or LATEST."""

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str = ""
    where: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SeedUser:
    """A user that logs in with SCRAM."""

    name: str
    password: str = field(repr=False)
    mechanisms: tuple[str, ...] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    iterations: int = 4096
    where: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SeedQuota:
    """Quotas of users, clients or addresses."""

    entity: QuotaEntity
    quotas: Mapping[str, float]
    where: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Seeds:
    """Content of a broker at its start."""

    topics: tuple[SeedTopic, ...] = ()
    offsets: tuple[SeedOffset, ...] = ()
    acls: tuple[AclBinding, ...] = ()
    users: tuple[SeedUser, ...] = ()
    quotas: tuple[SeedQuota, ...] = ()
    acls_where: str = field(default="", compare=False, repr=False)

    def __bool__(self) -> bool:
        return any((self.topics, self.offsets, self.acls, self.users, self.quotas))

    def __add__(self, other: Seeds) -> Seeds:
        """Join two descriptions. Raises SeedError for a topic that is in both."""
        twice = {topic.name for topic in self.topics} & {topic.name for topic in other.topics}
        if twice:
            raise SeedError(f"topic {min(twice)} is described twice")
        return Seeds(
            self.topics + other.topics,
            self.offsets + other.offsets,
            self.acls + other.acls,
            self.users + other.users,
            self.quotas + other.quotas,
            self.acls_where or other.acls_where,
        )


def topic_of_option(text: str) -> SeedTopic:
    """Parse `NAME[:PARTITIONS[:KEY=VALUE,...]]`, the value of `--topic`; a comma in a value is doubled.

    Raises SeedError.
    """
    name, _, rest = text.partition(":")
    partitions, _, pairs = rest.partition(":")
    if not name:
        raise SeedError(f"{text!r}: the name of a topic is missing (NAME[:PARTITIONS[:KEY=VALUE,...]])")
    count = None
    if partitions:
        if not partitions.isdecimal() or not int(partitions):
            raise SeedError(f"{text!r}: {partitions!r} is no number of partitions")
        count = int(partitions)
    settings = {}
    for pair in pairs.replace(",,", "\0").split(",") if pairs else ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise SeedError(f"{text!r}: {pair!r} is not KEY=VALUE; a comma in a value is written twice")
        settings[key.strip()] = value.replace("\0", ",").strip()
    return SeedTopic(name, count, settings)
