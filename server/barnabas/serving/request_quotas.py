"""The quotas of the sender of a request: the use of the request, and the throttle time.

The rule: a client over a quota is answered immediately, with its throttle time, and its connection is not read for that
time (KIP-219); of several throttle times the longest counts. Only a Fetch gets an empty response instead, and only
changes of the cluster are refused (KIP-599). Requests between brokers count against no quota.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.errors import RequestError
from barnabas.serving.quotas.clients import ClientQuotas, Meter
from barnabas.serving.quotas.entities import QuotaEntity, Quotas
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.serving.loop_budget import LoopBudget, TaskTime
    from barnabas.serving.quotas.rate import Rate
    from barnabas.serving.quotas.token_bucket import TokenBucket

PRODUCE, FETCH = 0, 1
RESPONSE_BYTES = 40
"""Approximate size of a Fetch response without its partitions, and of each partition without its records."""


class BrokerQuotas:
    """Throttles the clients of a broker. `is_set` says whether any client has a quota."""

    def __init__(
        self,
        clients: ClientQuotas,
        budget: LoopBudget,
        now_s: Callable[[], float],
        exempt: Collection[int] = (),
    ) -> None:
        """`now_s` is a monotonic clock; `exempt` are the keys of the APIs between brokers."""
        self._clients = clients
        self._budget = budget
        self._now_s = now_s
        self._exempt = frozenset(exempt)
        self.is_set = False

    @property
    def clients(self) -> ClientQuotas:
        """Quotas of clients, with their counts."""
        return self._clients

    @property
    def now_ms(self) -> int:
        """The time by which is counted, in ms."""
        return int(self._now_s() * 1000)

    def follow(self, quotas: Mapping[QuotaEntity, Quotas], changed: Iterable[QuotaEntity]) -> None:
        """Apply these quotas; `changed` names the entities with other quotas than before."""
        self._clients.follow(quotas, changed)
        self.is_set = self._clients.is_set

    def begin(self, user: str, client_id: str | None, api_key: int) -> RequestQuotas:
        """Begin to count a request of this client."""
        time = self._budget.begin_counting() if self._clients.request.is_set else None
        is_exempt = api_key in self._exempt
        return RequestQuotas(
            self._clients, self._now_s, (user, client_id or ""), api_key, time, is_exempt=is_exempt
        )


class RequestQuotas:
    """The quotas of one request. Lifecycle: created before its handler runs; `throttle_ms` after the handler; `end`."""

    __slots__ = (
        "_api_key",
        "_client",
        "_clients",
        "_is_exempt",
        "_is_fetch_charged",
        "_mutations",
        "_now_s",
        "_throttle_ms",
        "_time",
    )

    def __init__(
        self,
        clients: ClientQuotas,
        now_s: Callable[[], float],
        client: tuple[str, str],
        api_key: int,
        time: TaskTime | None,
        *,
        is_exempt: bool,
    ) -> None:
        self._clients = clients
        self._now_s = now_s
        self._client = client
        self._api_key = api_key
        self._is_exempt = is_exempt
        self._time = time
        self._is_fetch_charged = False
        self._throttle_ms = 0
        self._mutations: Mutations | None = None

    def _now_ms(self) -> int:
        return int(self._now_s() * 1000)

    # --- Fetch, ShareFetch ----------------------------------------------------------------------------------

    @property
    def fetch_bytes_max(self) -> int | None:
        """Most bytes that a client can fetch at once without being throttled, if it has fetched nothing lately."""
        meter = self._clients.fetch.of(*self._client, self._now_ms())
        return None if meter is None else int(min(meter.limit * self._clients.span_s, 2**31 - 1))

    def exempt_from_fetch(self) -> None:
        """Count nothing of a Fetch from a follower."""
        self._is_fetch_charged = True
        self._stop_time()

    def empties_fetch(self, response_bytes: int) -> bool:
        """Charge a Fetch for a response of about this many bytes; return whether it must get an empty response.

        Then it is not charged for the bytes. A response that alone exceeds the quota, since its first batch is larger,
        is sent if nothing was fetched before: otherwise it would never be.
        """
        self._is_fetch_charged = True
        now_ms = self._now_ms()
        request_ms = self._charge_time(now_ms)
        meter = self._clients.fetch.of(*self._client, now_ms)
        if meter is None:
            self._throttled(None, 0, request_ms)
            return request_ms > 0
        before = meter.counted.per_second(now_ms)
        meter.counted.record(response_bytes, now_ms)
        fetch_ms = meter.counted.throttle_ms(meter.limit, now_ms)
        self._throttled(meter, fetch_ms, request_ms)
        if not self._throttle_ms or (not request_ms and before <= 0):
            return False
        meter.counted.record(-response_bytes, now_ms)
        return True

    def charge_fetch(self, response_bytes: int) -> None:
        """Charge a ShareFetch for its bytes of records. They are locked by now, and sent regardless of the quota.

        Kafka sends an empty response instead, and the records stay locked until their locks expire (KIP-932).
        """
        self._is_fetch_charged = True
        now_ms = self._now_ms()
        request_ms = self._charge_time(now_ms)
        meter = self._clients.fetch.of(*self._client, now_ms)
        fetch_ms = 0
        if meter is not None:
            meter.counted.record(response_bytes, now_ms)
            fetch_ms = meter.counted.throttle_ms(meter.limit, now_ms)
        self._throttled(meter, fetch_ms, request_ms)

    # --- changes of the cluster -----------------------------------------------------------------------------

    def mutations(self, *, refuses: bool) -> Mutations | None:
        """Return the quota for changes of the cluster, None if none applies.

        `refuses` is true if the version of the request has the error for it.
        """
        now_ms = self._now_ms()
        meter = self._clients.mutation.of(*self._client, now_ms)
        if meter is not None:
            self._mutations = Mutations(meter, now_ms, refuses=refuses)
        return self._mutations

    # --- all ------------------------------------------------------------------------------------------------

    def throttle_ms(self, request: Any, request_bytes: int) -> int:
        """Charge a request that has been handled; return for how long its client is throttled, 0 if it is not."""
        if self._is_exempt:
            self._stop_time()
        if self._is_exempt or self._is_fetch_charged:
            return self._throttle_ms
        now_ms = self._now_ms()
        if self._api_key == PRODUCE:
            meter = self._clients.produce.of(*self._client, now_ms)
            produce_ms = 0
            if meter is not None:
                meter.counted.record(request_bytes, now_ms)
                produce_ms = meter.counted.throttle_ms(meter.limit, now_ms)
            if request.acks == 0:  # only its bytes count, as in Kafka
                self._stop_time()
            self._throttled(meter, produce_ms, self._charge_time(now_ms))
        elif self._mutations is not None:
            self._throttled(
                self._mutations.meter, self._mutations.throttle_ms(now_ms), self._charge_time(now_ms)
            )
        else:
            self._throttled(None, 0, self._charge_time(now_ms))
        return self._throttle_ms

    def _throttled(self, meter: Meter[Rate] | Meter[TokenBucket] | None, ms: int, request_ms: int) -> None:
        """Remember the longer of two throttle times, and count it at its quota."""
        self._throttle_ms = max(ms, request_ms)
        if ms > request_ms and meter is not None:
            meter.throttled(ms)
        elif request_ms:
            of_request = self._clients.request.of(*self._client, self._now_ms())
            if of_request is not None:
                of_request.throttled(request_ms)

    def _charge_time(self, now_ms: int) -> int:
        """Charge the time that this request has used of the event loop so far; returns the throttle time in ms."""
        if self._time is None:
            return 0
        meter = self._clients.request.of(*self._client, now_ms)
        percent = 100 * self._time.take()
        if meter is None:
            return 0
        meter.counted.record(percent, now_ms)
        return min(meter.counted.throttle_ms(meter.limit, now_ms), self._clients.window_ms)

    def _stop_time(self) -> None:
        if self._time is not None:
            self._time.stop()
            self._time = None

    def end(self) -> None:
        """Count the time that the response used of the event loop, without throttling for it."""
        if self._time is not None:
            now_ms = self._now_ms()
            meter = self._clients.request.of(*self._client, now_ms)
            if meter is not None:
                meter.counted.record(100 * self._time.take(), now_ms)
            self._stop_time()


class Mutations:
    """Charges partitions that a request creates or deletes to a client."""

    __slots__ = ("_charged", "_has_refused", "_now_ms", "_refuses", "meter")

    def __init__(self, meter: Meter[TokenBucket], now_ms: int, *, refuses: bool) -> None:
        self.meter = meter
        self._now_ms = now_ms
        self._refuses = refuses
        self._has_refused = False
        self._charged: set[str] = set()

    def charge(self, topic: str, partitions: int) -> None:
        """Charge the partitions of a topic, once however often it is decided on.

        Raises THROTTLING_QUOTA_EXCEEDED while the client is over its quota, if it knows that error.
        """
        if topic in self._charged:
            return
        meter, now_ms = self.meter, self._now_ms
        if self._refuses and meter.counted.throttle_ms(meter.limit, now_ms):
            self._has_refused = True
            raise RequestError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"more than {meter.limit:g} partitions are created and deleted in a second",
            )
        meter.counted.take(partitions, meter.limit, now_ms)
        self._charged.add(topic)

    def throttle_ms(self, now_ms: int) -> int:
        """Return the throttle time in ms: 0 for a client that knows the error and was refused nothing."""
        if self._refuses and not self._has_refused:
            return 0
        return self.meter.counted.throttle_ms(self.meter.limit, now_ms)
