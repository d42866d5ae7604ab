"""Observations on connections: requests with their responses, openings, ends, and anomalies. Pure.

The rule: times are seconds since 1970, by the observer's clock; an undecodable message has bytes and a reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from barnabas.tools.faults import naming
from barnabas.tools.inspection.errors import FoundError, error_codes
from barnabas.tools.inspection.frames import Request, Response
from barnabas.wire.primitives import ZERO_UUID

HEX_BYTES_MAX = 256
"""Bytes shown of an undecodable message."""
TOPIC_IDS_MAX = 100_000


@dataclass(slots=True, eq=False)
class Connection:
    """One connection of a client to a broker."""

    id: int
    client: str
    """The client's address."""
    broker: str
    """The broker's address."""
    opened_at: float = 0.0
    client_id: str | None = None
    software: str = ""
    """Name and version of the client, from ApiVersions v3 and newer (KIP-511)."""
    mechanism: str | None = None
    """SASL mechanism of the login, once the broker has accepted it."""
    user: str | None = None
    tls: str = ""
    """Sides to which TLS is spoken, as text for people; empty for none."""

    @property
    def name(self) -> str:
        """The client id; the client's address where no client id is known yet."""
        return self.client_id if self.client_id is not None else self.client


class TopicNames:
    """Names of topics by id, learned from answers."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the topic's name; the id's text while no message has named it."""
        return self._names.get(topic_id)

    def learn(self, message: Any) -> None:
        """Remember the ids and names that an answer gives."""
        topics = getattr(message, "topics", None)
        if not isinstance(topics, list):
            return
        for topic in topics:
            topic_id = getattr(topic, "topic_id", ZERO_UUID)
            name = getattr(topic, "name", None)
            if topic_id != ZERO_UUID and isinstance(name, str) and name:
                if len(self._names) >= TOPIC_IDS_MAX:
                    return
                self._names[topic_id] = name


@dataclass(slots=True, eq=False)
class Exchange:
    """A request, with its response once it is received."""

    connection: Connection
    number: int
    """Position of the request on its connection, from 1."""
    request: Request
    sent_at: float
    """When the last byte of the request was there."""
    names: TopicNames
    request_bytes: bytes | None = None
    """The beginning of the frame, where the request is not decoded."""
    response: Response | None = None
    response_bytes: bytes | None = None
    answered_at: float | None = None
    token: dict[str, Any] | None = None
    """Contents of a SASL token, for requests that carry one."""
    answer_token: dict[str, Any] | None = None
    is_bare_token: bool = False
    """True if the token came without a request around it, as after SaslHandshake v0."""
    unanswered: str = ""
    """The reason, if the request will get no response; empty otherwise."""
    _errors: list[FoundError] | None = field(default=None, repr=False)
    _topics: dict[str, set[int]] | None = field(default=None, repr=False)

    @property
    def latency_ms(self) -> float | None:
        """From the last byte of the request to the last byte of the answer; None without an answer."""
        return None if self.answered_at is None else max(0.0, (self.answered_at - self.sent_at) * 1000)

    @property
    def errors(self) -> list[FoundError]:
        """The error codes in the answer."""
        if self._errors is None:
            message = self.response.message if self.response is not None else None
            self._errors = error_codes(message, self.name_of)
        return self._errors

    def refuse(self, errors: list[FoundError]) -> None:
        """Set the errors of a response that was not decoded."""
        self._errors = errors

    @property
    def topics(self) -> dict[str, set[int]]:
        """The topics that the request names, with the partitions."""
        if self._topics is None:
            self._topics = topics_of(self.request.message, self.name_of)
        return self._topics

    @property
    def groups(self) -> list[str]:
        """The groups that the request names."""
        message = self.request.message
        return list(naming.groups(message)) if message is not None else []

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of a topic with an id, or the id as text."""
        from barnabas.wire.ids import uuid_text

        return self.names.name_of(topic_id) or uuid_text(topic_id)


def topics_of(message: Any, name_of: naming.NameOf) -> dict[str, set[int]]:
    """Return the topics that a message names, with their partitions."""
    topics: dict[str, set[int]] = {}
    if message is not None:
        for topic, partition in naming.topic_partitions(message, name_of):
            partitions = topics.setdefault(topic, set())
            if partition is not None:
                partitions.add(partition)
    return topics


class Observer(Protocol):
    """An observer of events on connections."""

    def opened(self, connection: Connection, at: float) -> None:
        """Take note of a new connection."""

    def exchanged(self, exchange: Exchange) -> None:
        """Take note of a request that is answered, or that will not be."""

    def noted(self, connection: Connection, at: float, text: str, data: bytes = b"") -> None:
        """Note an anomaly; `data` are the bytes in question."""

    def closed(self, connection: Connection, at: float, reason: str) -> None:
        """Take note of the end of a connection."""
