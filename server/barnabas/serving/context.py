"""The context of a request: its sender, its version, its connection."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import RequestError
from barnabas.security.acls import host_of, type_name
from barnabas.security.authorizer import (
    CLUSTER_NAME,
    NO_OPERATIONS,
    REFUSALS,
    AllowEverything,
    Operation,
    Requester,
    ResourceType,
    authorized_operations,
)
from barnabas.serving.memory import Reservation
from barnabas.wire import registry
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.security.authorizer import Authorizer
    from barnabas.security.sasl.server import SaslServer
    from barnabas.serving.last_request import LastRequest
    from barnabas.serving.log_limit import LogLimit
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.memory import Memory
    from barnabas.serving.request_quotas import BrokerQuotas, Mutations, RequestQuotas

audit = logging.getLogger("barnabas.authorizer")
"""Logger in place of Kafka's `kafka.authorizer.logger`: denials at warning, permissions at debug."""

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a connection that has not authenticated, as Kafka names it."""


NAME_SHOWN: Final = 300
REASON_SHOWN: Final = 1000
"""Characters of a name, and of a rule, that are logged."""


def shown_client(client_id: str | None) -> str:
    """Return a client id for log lines: quoted, and truncated if it is long."""
    if client_id is None or len(client_id) <= NAME_SHOWN:
        return repr(client_id)
    return f"{client_id[:NAME_SHOWN]!r}... ({len(client_id)} characters)"


class ConnectionInfo:
    """One accepted connection: its peer, and the address to which the peer connected.

    `client_software_name` and `client_software_version` are those of ApiVersions v3+ (KIP-511), empty before.
    """

    __slots__ = (
        "client_host",
        "client_software_name",
        "client_software_version",
        "connection_id",
        "is_among_others",
        "last_request",
        "listener",
        "local_address",
        "login",
        "muted_ms",
        "peer_address",
        "principal",
        "request",
        "security_protocol",
        "token_authenticated",
    )

    def __init__(
        self,
        connection_id: int,
        listener: str,
        security_protocol: str,
        local_address: tuple[str, int],
        peer_address: tuple[str, int],
        principal: str = ANONYMOUS,
        client_software_name: str = "",
        client_software_version: str = "",
        login: SaslServer | None = None,
        token_authenticated: bool = False,
        muted_ms: int = 0,
        request: RequestContext | None = None,
    ) -> None:
        self.connection_id = connection_id
        self.listener = listener
        self.security_protocol = security_protocol
        self.local_address = local_address
        self.peer_address = peer_address
        self.client_host = "/" + peer_address[0]
        """The peer's address as Kafka shows it in group descriptions: `/127.0.0.1`."""
        self.principal = principal
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version
        self.login = login
        """State of the connection's login, which decides on allowed requests; None on a listener without SASL."""
        self.token_authenticated = token_authenticated
        """True if the client has logged in with a delegation token (KIP-48)."""
        self.muted_ms = muted_ms
        """For how long nothing is read from it after the response, since its client is over a quota (KIP-219)."""
        self.request = request
        """The latest request, which may have been answered already."""
        self.last_request: LastRequest | None = None
        """The last heartbeat, which the next one repeats."""
        self.is_among_others = False
        """True if other connections had requests, too, when the latest large one of this connection had come."""

    @property
    def reserved(self) -> int:
        """Bytes that the request in progress has reserved for its response."""
        reservation = self.request.reservation if self.request is not None else None
        return reservation.size if reservation is not None else 0

    @property
    def requester(self) -> Requester:
        """The client of this connection, as the authorizer sees it."""
        address = self.peer_address[0]
        return Requester(self.principal, host_of(address) if ":" in address else address)

    @property
    def user(self) -> str:
        """The name in the principal: quotas of users are for it."""
        return self.principal.partition(":")[2]

    def __str__(self) -> str:
        return f"{_join(self.peer_address)}->{_join(self.local_address)}#{self.connection_id}"


class ContextParts:
    """Services that all requests of a broker share; without `quotas` no client is throttled."""

    __slots__ = ("asks_authorizer", "authorizer", "log_limit", "memory", "quotas")

    def __init__(
        self,
        memory: Memory,
        log_limit: LogLimit,
        authorizer: Authorizer,
        quotas: BrokerQuotas | None = None,
    ) -> None:
        self.memory = memory
        self.log_limit = log_limit
        self.authorizer = authorizer
        self.quotas = quotas
        self.asks_authorizer = not isinstance(authorizer, AllowEverything)
        """True if the authorizer may refuse anything."""


class RequestContext:
    """One request: its header, its connection, and the objects that it shares with other requests."""

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "close_after_response",
        "connection",
        "correlation_id",
        "delivery",
        "last_response",
        "now_ms",
        "quotas",
        "reservation",
        "shared",
    )

    def __init__(
        self,
        shared: ContextParts,
        connection: ConnectionInfo,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        now_ms: int,
    ) -> None:
        self.shared = shared
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.now_ms = now_ms
        self.close_after_response = False
        """Set by a handler to make its answer the connection's last."""
        self.reservation: Reservation | None = None
        self.quotas: RequestQuotas | None = None
        """Quotas that the request is charged to; None where no quota is set."""
        self.last_response: Any = None
        """Response to the same request before, where a connection repeats it: a handler may give it again."""
        self.delivery: object = None
        """Object that an interceptor leaves for the sender of the answer."""

    def __str__(self) -> str:
        return (
            f"{_api_name(self.api_key)} v{self.api_version} (correlation id {self.correlation_id}) "
            f"from client {shown_client(self.client_id)} on {self.connection}"
        )

    def log(self, logger: logging.Logger, level: int, kind: str, text: str, *args: object) -> None:
        """Write a line about this request, which is named at its end; few of one kind for each host and minute.

        `kind` is a few words in the plural, as in `refused produce requests`.
        """
        host = self.connection.peer_address[0]
        self.shared.log_limit.log(logger, level, kind, host, f"{text}: %s", *args, self)

    async def reserve(self, size: int) -> None:
        """Reserve memory of `size` bytes until the response has been sent; waits while there is not enough.

        Call it before the allocation. Only the first reservation of a request waits: so reserve the minimum in one
        piece.
        """
        if self.reservation is None:
            self.reservation = Reservation(self.shared.memory)
        await self.reservation.add(size)

    def reserve_nowait(self, size: int) -> bool:
        """Reserve memory as `reserve` does, if that takes no waiting; return whether it was reserved."""
        if self.reservation is None:
            self.reservation = Reservation(self.shared.memory)
        return self.reservation.add_nowait(size)

    def unreserve(self, size: int) -> None:
        """Release `size` reserved bytes that are no longer held."""
        if self.reservation is not None:
            self.reservation.reduce(size)

    def mutations(self, *, refuses: bool) -> Mutations | None:
        """Return the quota for new and deleted partitions, None if none applies (KIP-599).

        `refuses` is true if the version of the request has an error for it; otherwise the client is throttled
        afterwards.
        """
        return self.quotas.mutations(refuses=refuses) if self.quotas is not None else None

    @property
    def asks_authorizer(self) -> bool:
        """True if the authorizer may refuse anything."""
        return self.shared.asks_authorizer

    def authorizes(
        self, operation: Operation, resource_type: ResourceType, name: str, *, is_asked_for: bool = True
    ) -> bool:
        """Return whether the requester may do `operation` on a resource.

        `is_asked_for`: whether the client sees a denial; an entry that is only omitted from a list is not logged.
        """
        shared = self.shared
        if not shared.asks_authorizer:
            return True
        requester = self.connection.requester
        is_allowed = shared.authorizer.allows(requester, operation, resource_type, name)
        if is_asked_for and (not is_allowed or audit.isEnabledFor(logging.DEBUG)):
            self._audit(requester, operation, resource_type, name, is_allowed=is_allowed)
        return is_allowed

    def _audit(
        self,
        requester: Requester,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_allowed: bool,
    ) -> None:
        """Log a decision in the words of Kafka's audit log; few refusals of a principal and host in a minute."""
        text = (
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s "
            "based on rule %s"
        )
        outcome = "Allowed" if is_allowed else "Denied"
        reason = self.shared.authorizer.reason(requester, operation, resource_type, name)
        args = (
            _one_line(requester.principal), outcome, operation.name, requester.host, type_name(resource_type),
            _one_line(name[:NAME_SHOWN]), _api_name(self.api_key), _one_line(reason[:REASON_SHOWN]),
        )  # fmt: skip
        if is_allowed:
            audit.debug(text, *args)
        else:
            source = f"{args[0]} at {requester.host}"
            self.shared.log_limit.log(
                audit, logging.WARNING, "refusals of the authorizer", source, text, *args
            )

    def authorizes_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether there is a resource of this type on which the requester may do `operation`."""
        shared = self.shared
        return not shared.asks_authorizer or shared.authorizer.allows_on_any(
            self.connection.requester, operation, resource_type
        )

    def require(self, operation: Operation, resource_type: ResourceType, name: str | None) -> None:
        """Raise the resource type's error, as GROUP_AUTHORIZATION_FAILED, unless the operation is allowed.

        Raises INVALID_REQUEST where a name is null, as some may be on the wire: there is no such resource.
        """
        if name is None:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"the name of a resource of type {type_name(resource_type)} is null",
            )
        if not self.authorizes(operation, resource_type, name):
            raise RequestError(
                REFUSALS[resource_type], f"{operation.name} on {resource_type.name} {name!r} is denied"
            )

    async def require_each(
        self, operation: Operation, resource_type: ResourceType, names: Iterable[str], budget: LoopBudget
    ) -> None:
        """Raise as `require` does unless the operation is allowed on every resource in `names`."""
        if self.asks_authorizer:
            for name in names:
                self.require(operation, resource_type, name)
                await budget.checkpoint()

    def authorized_operations(self, resource_type: ResourceType, name: str) -> int:
        """Return the bits of all operations that the requester may do on a resource (KIP-430)."""
        return authorized_operations(self.shared.authorizer, self.connection.requester, resource_type, name)

    def cluster_operations(self) -> int:
        """Return the bits of the operations on the cluster; none without DESCRIBE on it, as Kafka answers."""
        if not self.authorizes(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            return NO_OPERATIONS
        return self.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)


def _one_line(text: str) -> str:
    return text if text.isprintable() else repr(text)


def _api_name(key: int) -> str:
    return registry.name_of(key) if registry.is_known(key) else f"API key {key}"


def _join(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
