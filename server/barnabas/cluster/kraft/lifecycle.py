"""The life of a broker in a KRaft quorum: registration, heartbeats, fencing and controlled shutdown (KIP-631). Pure.

The broker registers with the active controller and gets a broker epoch: the offset of its registration record. It is then
fenced: in no ISR, leader of no partition, hidden from clients. Heartbeats report how far the broker has applied the
metadata log. Once the broker has seen its own registration and its logs are open, it asks to be unfenced, and serves. A
controller that misses heartbeats for the session timeout fences the broker; the next heartbeat unfences it again, with the
same epoch. To stop, the broker requests a controlled shutdown, and the controller answers when no partition depends on it;
afterwards the broker sends no heartbeat, which would unfence it.

The rule: one request is in flight. `request` returns it, `take_registration` or `take_heartbeat` processes the answer and
returns the wait (ms) before the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from barnabas.client.errors import describe
from barnabas.cluster.kraft.values import Endpoint, LevelRange
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.wire.generated.errors import ErrorCode

CATCHING_UP_MS: Final = 10
"""Wait between heartbeats until the broker has caught up, as in Kafka."""
SHUTTING_DOWN_MS: Final = 50
REGISTRATION_RETRY_MS: Final = 500
UNREGISTERED: Final = (
    "this broker was unregistered, or another process has registered with its node.id; it serves no partition until it is "
    "started again"
)
_HOPELESS: Final[dict[int, str]] = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the controllers are those of another cluster",
    ErrorCode.INVALID_REGISTRATION: "its listeners or log dirs are refused",
    ErrorCode.UNSUPPORTED_VERSION: "a feature is finalized at a level that this broker does not support",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "its principal has no CLUSTER_ACTION on the cluster (super.users)",
}


class RegistrationRefusedError(Exception):
    """The controller will never register this broker in its present form."""


class State(Enum):
    """Stages of a broker's life."""

    REGISTERING = "registering"
    FENCED = "fenced"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting down"
    SHUT_DOWN = "shut down"


class Identity(NamedTuple):
    """Content of a registration; log dirs by id."""

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    log_dirs: tuple[bytes, ...]
    features: tuple[tuple[str, LevelRange], ...]
    previous_broker_epoch: int = -1


class Lifecycle:
    """State machine of a broker's membership; the head of the module explains it."""

    def __init__(self, identity: Identity, *, interval_ms: int) -> None:
        self._identity = identity
        self._interval_ms = interval_ms
        self.state = State.REGISTERING
        self.broker_epoch = -1
        """Offset of the registration record, -1 before the first answer."""
        self.problem = ""
        """The last error in an answer, empty after a success."""
        self._is_caught_up = False
        self._is_ready = False
        self._wants_shutdown = False
        self._offline_dirs: set[bytes] = set()
        self._asked_dirs: frozenset[bytes] = frozenset()
        self.told_dirs: frozenset[bytes] = frozenset()
        """Offline log dirs of which a controller has confirmed the report."""
        self._cordoned_dirs: tuple[bytes, ...] = ()

    # --- reports of the broker ------------------------------------------------------------------------------

    @property
    def has_untold_dirs(self) -> bool:
        """True while a controller has not confirmed every offline log dir."""
        return not self._offline_dirs <= self.told_dirs

    def ready(self) -> None:
        """Note that logs are open and requests can be served: later heartbeats request to be unfenced."""
        self._is_ready = True

    def lose_dirs(self, directory_ids: Sequence[bytes]) -> None:
        """Note log dirs that went offline; each later heartbeat names all of them."""
        self._offline_dirs.update(directory_ids)

    def cordon_dirs(self, directory_ids: Sequence[bytes]) -> None:
        """Set the log dirs that get no new replicas (KIP-1066); replaces the last set."""
        self._cordoned_dirs = tuple(sorted(directory_ids))

    def shut_down(self) -> None:
        """Ask the controller, from the next heartbeat on, to move leaders away."""
        if self.state is State.REGISTERING:
            self.state = State.SHUT_DOWN
        elif self.state is not State.SHUT_DOWN:
            self.state, self._wants_shutdown = State.SHUTTING_DOWN, True

    # --- requests and answers -------------------------------------------------------------------------------

    def request(
        self, offset: int, *, has_cordoned_dirs: bool = False
    ) -> BrokerRegistrationRequest | BrokerHeartbeatRequest | None:
        """Return the next request; None when the broker has shut down.

        `offset` is that of the last record in the published image. `has_cordoned_dirs` is true from metadata.version 30
        on.
        """
        self._asked_dirs = frozenset(self._offline_dirs)
        if self.state is State.SHUT_DOWN:
            return None
        if self.state is State.REGISTERING:
            return self._registration()
        return BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=offset,
            want_fence=not (self._is_ready and self._is_caught_up),
            want_shut_down=self._wants_shutdown,
            offline_log_dirs=sorted(self._offline_dirs),
            cordoned_log_dirs=list(self._cordoned_dirs) if has_cordoned_dirs and self._is_caught_up else None,
        )

    def _registration(self) -> BrokerRegistrationRequest:
        identity = self._identity
        online = [directory for directory in identity.log_dirs if directory not in self._offline_dirs]
        return BrokerRegistrationRequest(
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=[BrokerRegistrationRequest.Listener(*endpoint) for endpoint in identity.endpoints],
            features=[BrokerRegistrationRequest.Feature(name, *levels) for name, levels in identity.features],
            rack=identity.rack,
            log_dirs=sorted(online),
            previous_broker_epoch=identity.previous_broker_epoch,
        )

    def take_registration(self, response: BrokerRegistrationResponse) -> int:
        """Process the answer to a registration; returns the wait (ms) before the next request.

        Raises RegistrationRefusedError.
        """
        code = response.error_code
        if code == ErrorCode.NONE:
            self.problem = ""
            self.told_dirs = self._asked_dirs  # offline log dirs were not among the registered ones
            self.broker_epoch = response.broker_epoch
            if self.state is State.REGISTERING:
                self.state = State.FENCED
            return 0
        self.problem = describe(code)
        if code in _HOPELESS:
            raise RegistrationRefusedError(f"{self.problem}: {_HOPELESS[code]}")
        return REGISTRATION_RETRY_MS

    def take_heartbeat(self, response: BrokerHeartbeatResponse) -> int:
        """Process the answer to a heartbeat; returns the wait (ms) before the next."""
        if response.error_code:
            self.problem = describe(response.error_code)
            if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
                self.problem += f": {UNREGISTERED}"
                if self.state is State.SHUTTING_DOWN:
                    self.state = State.SHUT_DOWN  # no partition depends on an unregistered broker
                    return 0
            return self._interval_ms
        self.problem = ""
        self.told_dirs = self._asked_dirs
        caught_up_now = response.is_caught_up and not self._is_caught_up
        self._is_caught_up = self._is_caught_up or response.is_caught_up
        if self.state is State.SHUTTING_DOWN:
            if response.should_shut_down:
                self.state = State.SHUT_DOWN
                return 0
            return SHUTTING_DOWN_MS
        self.state = State.FENCED if response.is_fenced else State.RUNNING
        if caught_up_now and self._is_ready:
            return 0
        return self._interval_ms if self._is_caught_up else CATCHING_UP_MS

    def failed(self, problem: str) -> int:
        """Note a request without an answer; returns the wait (ms) before the next."""
        self.problem = problem
        return self._interval_ms if self.state in (State.FENCED, State.RUNNING) else REGISTRATION_RETRY_MS
