"""Client instances (KIP-714): the times at which a client may request its subscription and push metrics. Pure.

The rule: an instance is created by the first request that names it, and their number is bounded: above the limit the least
recently used instance is evicted; an instance is removed after its connection closes or a time without requests. A removed
instance is created again by its next request, so only the time of its last push is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from barnabas.errors import RequestError
from barnabas.metrics.telemetry.subscriptions import Attributes, Selection, Subscriptions
from barnabas.records.compression import Codec
from barnabas.wire.generated.errors import ErrorCode

INSTANCES_MAX = 16_384  # Kafka's cache holds as many
EXPIRATION_MS_MIN = 60_000
EXPIRATION_INTERVALS = 3
"""Number of push intervals that an instance may be silent, if that is longer than the above."""

ACCEPTED_COMPRESSIONS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""Preferred first, in Kafka's order; clients take the first that they know. None at all is accepted too."""

ZERO_ID = bytes(16)
_RESERVED_IDS = frozenset((ZERO_ID, bytes(15) + b"\x01"))
_ASK_AGAIN = frozenset((ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))


@dataclass(slots=True)
class ClientInstance:
    """A client instance under one version of the subscriptions; times are 0 for events that have not happened yet."""

    id: bytes
    attributes: Attributes
    connection_id: int
    selection: Selection
    subscription_id: int
    subscriptions_version: int
    expires_ms: int = 0
    last_get_ms: int = 0
    last_push_ms: int = 0
    terminating: bool = False
    last_error: int = ErrorCode.NONE

    @property
    def lifetime_ms(self) -> int:
        """Milliseconds for which an instance, with its pushed metrics, is kept after a request."""
        return max(EXPIRATION_MS_MIN, EXPIRATION_INTERVALS * self.selection.push_interval_ms)

    def may_get(self, now_ms: int) -> bool:
        """Return whether it may ask for its subscription: once per push interval."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) < self.selection.push_interval_ms:
            return False
        self.last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Return whether a client may push: once per interval, and at any time after it asked for its subscription."""
        early = now_ms - self.last_push_ms < self.selection.push_interval_ms
        if early and self.last_get_ms <= self.last_push_ms:
            return False
        self.last_push_ms = now_ms
        return True


@dataclass(slots=True)
class Counts:
    """Numbers of refused requests since the broker started, and of evicted instances."""

    throttled: int = 0
    unknown_subscriptions: int = 0
    evicted: int = 0


class ClientInstances:
    """All client instances of a broker. `new_id` returns an id of 16 random bytes."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        *,
        bytes_max: int,
        new_id: Callable[[], bytes],
        instances_max: int = INSTANCES_MAX,
    ) -> None:
        self.subscriptions = subscriptions
        self.bytes_max = bytes_max
        self.counts = Counts()
        self._new_id = new_id
        self._instances_max = instances_max
        self._instances: dict[bytes, ClientInstance] = {}  # least recently used first
        self._by_connection: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._instances)

    @property
    def by_id(self) -> Mapping[bytes, ClientInstance]:
        """All instances, the least recently used first."""
        return self._instances

    def id_for(self, asked: bytes) -> bytes:
        """Return the id of a client: the requested one, or a new one for a zero id."""
        if asked != ZERO_ID:
            return asked
        new_id = self._new_id()
        while new_id in self._instances:
            new_id = self._new_id()
        return new_id

    def get(
        self, instance_id: bytes, attributes: Attributes, connection_id: int, now_ms: int
    ) -> ClientInstance:
        """Return the instance that asks for its subscription; its id is from `id_for`.

        Raises RequestError(THROTTLING_QUOTA_EXCEEDED) before the push interval is over, unless the subscription has
        changed or the last push was refused for a reason that asking again can mend.
        """
        instance = self._instance(instance_id, attributes, connection_id, now_ms)
        if not instance.may_get(now_ms) and instance.last_error not in _ASK_AGAIN:
            raise self._throttled(instance)
        instance.last_error = ErrorCode.NONE
        return instance

    def push(
        self,
        instance_id: bytes,
        attributes: Attributes,
        connection_id: int,
        now_ms: int,
        *,
        subscription_id: int,
        terminating: bool,
        compression: int,
        size: int,
    ) -> ClientInstance:
        """Return the instance that may push `size` bytes now; `settled` must be called with the outcome of the push.

        Raises RequestError: INVALID_REQUEST for a zero id or after the last push,
        THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE.
        """
        if instance_id in _RESERVED_IDS:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the id of the client instance is missing")
        instance = self._instance(instance_id, attributes, connection_id, now_ms)
        try:
            self._check_push(instance, now_ms, subscription_id, terminating, compression, size)
        except RequestError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = terminating
        return instance

    def settled(self, instance: ClientInstance, error_code: int) -> None:
        """Note the outcome of an accepted push: `ErrorCode.NONE` or the error of the response."""
        instance.last_error = error_code

    def _check_push(
        self,
        instance: ClientInstance,
        now_ms: int,
        subscription_id: int,
        terminating: bool,
        compression: int,
        size: int,
    ) -> None:
        if instance.terminating:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the client has already pushed for the last time")
        if not instance.may_push(now_ms) and not terminating:
            raise self._throttled(instance)
        if subscription_id != instance.subscription_id:
            self.counts.unknown_subscriptions += 1
            raise RequestError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"the client's subscription is not {subscription_id}"
            )
        if not 0 <= compression < len(Codec):
            raise RequestError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression {compression}"
            )
        if size > self.bytes_max:
            raise RequestError(
                ErrorCode.TELEMETRY_TOO_LARGE, f"{size} bytes of telemetry, more than {self.bytes_max}"
            )

    def _throttled(self, instance: ClientInstance) -> RequestError:
        self.counts.throttled += 1
        return RequestError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"the push interval of {instance.selection.push_interval_ms} ms is not over",
        )

    def _instance(
        self, instance_id: bytes, attributes: Attributes, connection_id: int, now_ms: int
    ) -> ClientInstance:
        """Return the instance with this id under the subscriptions of now, used just now."""
        instance = self._instances.pop(instance_id, None)
        if instance is not None and instance.expires_ms <= now_ms:
            self._forget_connection(instance)
            instance = None
        if instance is None or instance.subscriptions_version < self.subscriptions.version:
            if instance is not None:
                attributes = instance.attributes
                self._forget_connection(instance)
            instance = self._made(instance_id, attributes, connection_id)
        instance.expires_ms = now_ms + instance.lifetime_ms
        self._instances[instance_id] = instance
        self._make_room()
        return instance

    def _made(self, instance_id: bytes, attributes: Attributes, connection_id: int) -> ClientInstance:
        selection = self.subscriptions.selection_for(attributes)
        self._by_connection[connection_id] = instance_id
        return ClientInstance(
            instance_id,
            attributes,
            connection_id,
            selection,
            selection.subscription_id(instance_id),
            self.subscriptions.version,
        )

    def _make_room(self) -> None:
        while len(self._instances) > self._instances_max:
            oldest = next(iter(self._instances.values()))
            self._forget(oldest)
            self.counts.evicted += 1

    def expire(self, now_ms: int) -> None:
        """Remove the instances that have been silent for too long."""
        for instance in [instance for instance in self._instances.values() if instance.expires_ms <= now_ms]:
            self._forget(instance)

    def connection_closed(self, connection_id: int) -> None:
        """Remove the instance that was created on this connection."""
        instance_id = self._by_connection.pop(connection_id, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    def _forget(self, instance: ClientInstance) -> None:
        del self._instances[instance.id]
        self._forget_connection(instance)

    def _forget_connection(self, instance: ClientInstance) -> None:
        if self._by_connection.get(instance.connection_id) == instance.id:
            del self._by_connection[instance.connection_id]
