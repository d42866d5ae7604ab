"""What a handler is told about the request in hand and the connection it came on."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.requests.memory import Reservation
from barnabas.security.authorizer import Requester
from barnabas.wire import registry

if TYPE_CHECKING:
    from barnabas.requests.log_limit import LogLimit
    from barnabas.requests.memory import Memory
    from barnabas.security.authorizer import Authorizer, Operation, ResourceType

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection that has not authenticated, as Kafka names it."""


@dataclass(slots=True)
class ConnectionInfo:
    """One accepted connection: who is at the other end, and which address they dialled.

    `client_software_name` and `client_software_version` come with ApiVersions v3+ (KIP-511) and are empty before.
    """

    connection_id: int
    listener: str
    security_protocol: str
    local_address: tuple[str, int]
    peer_address: tuple[str, int]
    principal: str = ANONYMOUS
    client_software_name: str = ""
    client_software_version: str = ""
    request: RequestContext | None = None
    """The latest request, which may have been answered already."""

    @property
    def reserved(self) -> int:
        """How much memory the request in hand has reserved for its response."""
        reservation = self.request.reservation if self.request is not None else None
        return reservation.size if reservation is not None else 0

    @property
    def requester(self) -> Requester:
        """Who is at the other end, for an authorizer."""
        return Requester(self.principal, self.client_host)

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it in group descriptions: `/127.0.0.1`."""
        return "/" + self.peer_address[0]

    def __str__(self) -> str:
        return f"{_join(self.peer_address)}->{_join(self.local_address)}#{self.connection_id}"


@dataclass(frozen=True, slots=True)
class Shared:
    """What all requests of a broker share."""

    memory: Memory
    log_limit: LogLimit
    authorizer: Authorizer


@dataclass(slots=True)
class RequestContext:
    """One request: its header, its connection, and what it shares with others."""

    shared: Shared
    connection: ConnectionInfo
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    now_ms: int
    close_after_response: bool = field(default=False)
    """Set by a handler whose answer must be the connection's last."""
    reservation: Reservation | None = field(default=None)

    def __str__(self) -> str:
        return (
            f"{_api_name(self.api_key)} v{self.api_version} (correlation id {self.correlation_id}) "
            f"from client {self.client_id!r} on {self.connection}"
        )

    def log(self, logger: logging.Logger, level: int, kind: str, text: str, *args: object) -> None:
        """Write a line about this request, which is named at its end; few of one kind for each host and minute.

        `kind` is a few words in the plural, as in `refused produce requests`.
        """
        host = self.connection.peer_address[0]
        self.shared.log_limit.log(logger, level, kind, host, f"{text}: %s", *args, self)

    async def reserve(self, size: int) -> None:
        """Reserve memory of `size` bytes until the response has been sent; waits while there is not enough.

        To be called before the memory is taken. Only the first reservation of a request waits: reserve what is needed
        at least in one piece, and ask `try_reserve` for more.
        """
        if self.reservation is None:
            self.reservation = Reservation(self.shared.memory)
        await self.reservation.add(size)

    def try_reserve(self, size: int) -> bool:
        """Reserve `size` more bytes if they are free now; otherwise the answer must do without them."""
        if self.reservation is None:
            self.reservation = Reservation(self.shared.memory)
        return self.reservation.try_add(size)

    def unreserve(self, size: int) -> None:
        """Give back `size` bytes of what was reserved, for memory that is no longer held."""
        if self.reservation is not None:
            self.reservation.reduce(size)

    def authorizes(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Say whether whoever asks may do `operation` on a resource."""
        return self.shared.authorizer.allows(self.connection.requester, operation, resource_type, name)


def _api_name(key: int) -> str:
    return registry.name_of(key) if registry.is_known(key) else f"API key {key}"


def _join(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
