"""Values that all parts of the active controller share: the state, the caller, and the outcome of a request. Pure.

The rule: a handler changes nothing. It reads the state and returns an Outcome; the shell appends the records as one
batch, replays them, and answers when they are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from barnabas.cluster.kraft.image import EMPTY, QuorumImage
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, REFUSALS, Operation, ResourceType


class Caller(NamedTuple):
    """Sender of a request: a client, or a node. `principal` is as in `User:alice`, `host` its address."""

    version: int
    """Version of the API."""
    principal: str = "User:ANONYMOUS"
    host: str = "127.0.0.1"
    client_id: str | None = None
    is_token_authenticated: bool = False
    may: Callable[[Operation, ResourceType, str], bool] = lambda *_: True
    """Return whether the caller has a permission, by the ACLs of the image and `super.users`; logs denials."""
    charge: Callable[[str, int], None] = lambda *_: None
    """Charge partitions of a topic that are added or removed to the quota of mutations (KIP-599).

    Raises THROTTLING_QUOTA_EXCEEDED.
    """
    is_forwarded: bool = False
    """True if a broker sent the request in an Envelope, after checks that only the broker can make."""
    security_protocol: str = "PLAINTEXT"
    """Protocol of the connection of a request that is not forwarded."""

    def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise the error of a refusal unless the caller has a permission."""
        if not self.may(operation, resource_type, name):
            raise RequestError(
                REFUSALS[resource_type],
                f"{self.principal} may not {operation.name} on {resource_type.name} {name}",
            )

    def require_on_cluster(self, operation: Operation) -> None:
        """Raise CLUSTER_AUTHORIZATION_FAILED unless the caller has a permission on the cluster."""
        self.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)


class Outcome(NamedTuple):
    """Response of the controller, and the records that must be committed before it is sent.

    The records are messages of `wire/generated/metadata_records`, applied in their order. `version_of` in `machine`
    chooses the version of each by the metadata.version.
    """

    response: Any
    records: tuple[Any, ...] = ()
    kraft_version: int | None = None
    """Level to which the voters' kraft.version is raised before the records; None if it stays."""
    is_atomic: bool = True
    """True if the records must be one batch, all or nothing; otherwise a prefix of them may be committed alone."""


class Entropy(Protocol):
    """Random bytes and numbers, like those of `environment`."""

    def token_bytes(self, size: int, /) -> bytes:
        """Return `size` random bytes."""

    def below(self, limit: int, /) -> int:
        """Return a random number from 0 to `limit` - 1."""


@dataclass(slots=True)
class ControllerState:
    """State of the active controller, as a handler sees it."""

    config: BrokerConfig
    """Settings of this node: defaults of topics, placement, policies."""
    entropy: Entropy
    node_id: int
    cluster_id: str = ""
    image: QuorumImage = EMPTY
    """The image after all appended records, committed or not."""
    next_offset: int = 0
    """Offset that the first record of an outcome will have: a broker's epoch is the offset of its registration."""
    committed_offset: int = -1
    """Last offset that is committed."""
    epoch: int = 0
    """Epoch of this leader."""
    now_ms: int = 0
    """Wall clock, for timestamps in records."""
    monotonic_ms: int = 0
    """Monotonic clock, for sessions and timeouts."""
    kraft_version: int = 0
    """The finalized kraft.version, which is a control record's and not the image's."""
    parts: dict[str, Any] = field(default_factory=dict)
    """Soft state of parts by name (`sessions` of brokers), made anew when the node becomes leader."""


_T = TypeVar("_T")
Steps = Generator[None, None, _T]
"""Work on many partitions, in steps: other tasks run between them, but nothing else changes the state until it is done."""
Handler = Callable[[ControllerState, Any, Caller], Outcome | Steps[Outcome]]
"""Handles a request. Raises RequestError if the request as a whole is refused."""
Handlers = Mapping[int, Handler]
"""By API key."""
Records = tuple[Any, ...]
Tick = Callable[[ControllerState], Records | Steps[Records]]
"""Periodic work, called several times a second: returns the records that are due, such as those that fence a broker after
its session.

Each record is valid without the others.
"""


def at_once(work: _T | Steps[_T]) -> _T:
    """Return the result of work, all steps without a pause."""
    if not isinstance(work, Generator):
        return work
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: _T = done.value
            return result
