"""A request is charged to quotas, and its client throttled for some time: the longest of its quotas counts."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.errors import RequestError
from barnabas.serving.quotas.clients import ClientQuotas
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.serving.request_quotas import BrokerQuotas, RequestQuotas
from barnabas.wire.generated.errors import ErrorCode
from tests.support.refusals import code_of

PRODUCE, FETCH, METADATA, BETWEEN_BROKERS, SHARE_FETCH = 0, 1, 3, 7, 78
EVERYBODY = QuotaEntity("")


class Time:
    """The time that a task has taken of the event loop: `taken` is what it has not been asked for yet."""

    def __init__(self) -> None:
        self.taken = 0.0
        self.is_running = True

    def take(self) -> float:
        assert self.is_running
        taken, self.taken = self.taken, 0.0
        return taken

    def stop(self) -> None:
        self.is_running = False


class World:
    """Quotas of 11 windows of 2 s (the last ten count at once), and of 11 windows of 1 s for changes of the cluster."""

    def __init__(self, **limits: float) -> None:
        self.now_s = 1_000.0
        self.times: list[Time] = []
        self.clients = ClientQuotas(
            samples=11, window_ms=2_000, mutation_samples=11, mutation_window_ms=1_000
        )
        self.quotas = BrokerQuotas(self.clients, self, lambda: self.now_s, (BETWEEN_BROKERS,))  # type: ignore[arg-type]
        if limits:
            self.quotas.follow({EVERYBODY: limits}, [EVERYBODY])

    def begin_counting(self) -> Time:
        self.times.append(Time())
        return self.times[-1]

    def begin(self, api_key: int = METADATA, *, user: str = "u", seconds: float = 0.0) -> RequestQuotas:
        """A request that has taken so much time already."""
        request = self.quotas.begin(user, "c", api_key)
        if self.times:
            self.times[-1].taken = seconds
        return request

    def throttled(self, name: str, user: str = "u") -> tuple[int, int]:
        """Number of times, and ms in all, that the users of a quota were throttled."""
        meter: Any = getattr(self.clients, name).of(user, "c", int(self.now_s * 1000))
        return meter.throttled_count, meter.throttled_ms

    def rate(self, name: str) -> float:
        now_ms = int(self.now_s * 1000)
        meter: Any = getattr(self.clients, name).of("u", "c", now_ms)
        return float(meter.counted.per_second(now_ms))


def asked(acks: int = 1) -> Any:
    return SimpleNamespace(acks=acks)


def over_ms(limit: float, per_second: float) -> int:
    """Throttle time of a client with this rate over the ten windows that count."""
    return round((per_second - limit) / limit * 20_000)


def test_only_where_time_has_a_limit_it_is_counted():
    world = World(producer_byte_rate=10)
    world.begin()
    assert world.times == []
    world = World(request_percentage=10)
    world.begin()
    assert len(world.times) == 1


# --- produce ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "ms"), [(2_000, 0), (4_000, over_ms(100, 200))])
def test_produce_is_charged_for_its_bytes_and_others_are_not(size, ms):
    world = World(producer_byte_rate=100)
    assert world.begin(PRODUCE).throttle_ms(asked(), size) == ms
    assert world.throttled("produce") == ((1, ms) if ms else (0, 0))
    world = World(producer_byte_rate=100)
    for api_key in (FETCH, METADATA, BETWEEN_BROKERS):
        assert world.begin(api_key).throttle_ms(asked(), size) == 0
    assert world.rate("produce") == 0


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_time_counts_of_a_produce_request_that_is_answered(acks):
    world = World(producer_byte_rate=1e9, request_percentage=1)
    request = world.begin(PRODUCE, seconds=0.5)
    assert (request.throttle_ms(asked(acks), 10) > 0) is (acks != 0)
    assert world.times[0].is_running is (acks != 0)
    request.end()
    assert not world.times[0].is_running


@pytest.mark.parametrize(
    ("limit", "percentage", "by", "not_by"),
    [(100, 1, "produce", "request"), (199, 1, "request", "produce"), (200, 1, "request", "produce")],
)
def test_longer_throttle_time_counts_where_it_arises(limit, percentage, by, not_by):
    """Time throttles for one window at most."""
    world = World(producer_byte_rate=limit, request_percentage=percentage)
    ms = world.begin(PRODUCE, seconds=5).throttle_ms(asked(), 4_000)
    assert ms == max(over_ms(limit, 200), 2_000)
    assert world.throttled(by) == (1, ms)
    assert world.throttled(not_by) == (0, 0)


# --- time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "ms"), [(0.2, 0), (0.21, 1_000), (0.3, 2_000)])
def test_request_time_is_charged_in_percent_up_to_a_window(seconds, ms):
    world = World(request_percentage=1)
    assert world.begin(seconds=seconds).throttle_ms(asked(), 10) == ms
    assert world.rate("request") == pytest.approx(100 * seconds / 20)


def test_response_time_throttles_the_next_request():
    world = World(request_percentage=1)
    request = world.begin(seconds=0.1)
    assert request.throttle_ms(asked(), 10) == 0
    world.times[0].taken = 0.2
    request.end()
    request.end()
    assert world.rate("request") == pytest.approx(1.5)
    assert world.begin().throttle_ms(asked(), 10) == 2_000


def test_what_brokers_say_to_each_other_is_charged_to_nobody():
    world = World(request_percentage=1, producer_byte_rate=1)
    request = world.begin(BETWEEN_BROKERS, seconds=5)
    assert request.throttle_ms(asked(), 10_000) == 0
    request.end()
    assert (world.rate("request"), world.times[0].is_running) == (0, False)


def test_client_without_a_limit_is_not_throttled_among_limited():
    world = World()
    alice = QuotaEntity("alice")
    limits = {"request_percentage": 1.0, "producer_byte_rate": 1.0, "consumer_byte_rate": 1.0}
    world.quotas.follow({alice: limits}, [alice])
    request = world.begin(PRODUCE, user="bob", seconds=5)
    assert request.throttle_ms(asked(), 10_000) == 0
    request.end()
    fetch = world.begin(FETCH, user="bob", seconds=5)
    assert fetch.fetch_bytes_max is None
    assert not fetch.empties_fetch(10_000)
    assert world.begin(FETCH, user="bob").mutations(refuses=True) is None
    assert world.begin(PRODUCE, user="alice").throttle_ms(asked(), 10_000) > 0


# --- fetch ------------------------------------------------------------------------------------------------------


def test_a_client_may_fetch_at_once_what_ten_windows_allow():
    assert World(consumer_byte_rate=100).begin(FETCH).fetch_bytes_max == 2_000
    assert World(consumer_byte_rate=1e12).begin(FETCH).fetch_bytes_max == 2**31 - 1


@pytest.mark.parametrize(("size", "ms"), [(2_000, 0), (4_000, over_ms(100, 200))])
def test_fetch_is_charged_once_and_the_first_is_sent_whole(size, ms):
    world = World(consumer_byte_rate=100, producer_byte_rate=1)
    request = world.begin(FETCH)
    assert not request.empties_fetch(size)
    assert request.throttle_ms(asked(), 10_000) == ms
    assert world.rate("fetch") == size / 20
    assert world.throttled("fetch") == ((1, ms) if ms else (0, 0))


def test_a_fetch_over_the_quota_is_emptied_and_not_charged():
    world = World(consumer_byte_rate=100)
    assert not world.begin(FETCH).empties_fetch(1_000)
    request = world.begin(FETCH)
    assert request.empties_fetch(3_000)
    assert request.throttle_ms(asked(), 10) == over_ms(100, 200)
    assert world.rate("fetch") == 1_000 / 20
    assert not world.begin(FETCH).empties_fetch(1_000), "just the limit"


@pytest.mark.parametrize("has_limit", [True, False])
def test_a_fetch_of_a_client_that_takes_too_much_time_is_emptied(has_limit):
    world = World(request_percentage=1, **({"consumer_byte_rate": 1e6} if has_limit else {}))
    request = world.begin(FETCH, seconds=5)
    assert request.empties_fetch(1_000)
    assert request.throttle_ms(asked(), 10) == 2_000
    assert world.throttled("request") == (1, 2_000)
    if has_limit:
        assert world.rate("fetch") == 0
    world.now_s += 100
    assert not world.begin(FETCH, seconds=0.1).empties_fetch(1_000)


@pytest.mark.parametrize(("size", "ms"), [(2_000, 0), (4_000, over_ms(100, 200))])
def test_acquired_records_are_charged_and_throttle_their_client(size, ms):
    world = World(consumer_byte_rate=100)
    request = world.begin(SHARE_FETCH)
    request.charge_fetch(size)
    assert request.throttle_ms(asked(), 10_000) == ms
    assert world.rate("fetch") == size / 20
    assert world.throttled("fetch") == ((1, ms) if ms else (0, 0))


def test_share_fetch_without_byte_quota_is_charged_its_time():
    world = World(request_percentage=1)
    request = world.begin(SHARE_FETCH, seconds=5)
    request.charge_fetch(4_000)
    assert request.throttle_ms(asked(), 10) == 2_000


def test_a_fetch_of_a_broker_that_follows_is_charged_nothing():
    world = World(request_percentage=1, consumer_byte_rate=1)
    request = world.begin(FETCH, seconds=5)
    request.exempt_from_fetch()
    assert request.throttle_ms(asked(), 10_000) == 0
    request.end()
    assert (world.rate("request"), world.rate("fetch"), world.times[0].is_running) == (0, 0, False)


# --- changes of the cluster -------------------------------------------------------------------------------------


def charged(mutations: Any, *topics: tuple[str, int]) -> int:
    """Number of topics that are charged before one is refused."""
    number = 0
    with suppress(RequestError):
        for topic, partitions in topics:
            mutations.charge(topic, partitions)
            number += 1
    if number < len(topics):
        assert code_of(mutations.charge, *topics[number]) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return number


@pytest.mark.parametrize("refuses", [True, False])
def test_change_over_quota_is_refused_if_the_error_is_known(refuses):
    world = World(controller_mutation_rate=2)
    request = world.begin()
    mutations = request.mutations(refuses=refuses)
    assert charged(mutations, ("a", 22), ("b", 10), ("c", 1)) == (2 if refuses else 3)
    ms = 5_000 if refuses else 5_500
    assert request.throttle_ms(asked(), 10) == ms, "what is overdrawn comes back at the rate of the limit"
    assert world.throttled("mutation") == (1, ms)


def test_client_that_was_refused_nothing_is_not_throttled():
    world = World(controller_mutation_rate=2)
    request = world.begin()
    assert charged(request.mutations(refuses=True), ("a", 30)) == 1
    assert request.throttle_ms(asked(), 10) == 0
    after = world.begin()
    assert charged(after.mutations(refuses=True), ("b", 1)) == 0
    assert after.throttle_ms(asked(), 10) == 4_000
    world.now_s += 4
    assert charged(world.begin().mutations(refuses=True), ("b", 1)) == 1


def test_a_topic_is_charged_once_however_often_it_is_decided_on():
    world = World(controller_mutation_rate=2)
    request = world.begin()
    mutations = request.mutations(refuses=True)
    assert charged(mutations, ("a", 22), ("a", 22), ("b", 1), ("a", 22), ("c", 1)) == 4
    assert request.throttle_ms(asked(), 10) == 500


def test_a_request_that_changes_nothing_is_charged_no_changes():
    world = World(controller_mutation_rate=2)
    world.begin().mutations(refuses=False).charge("a", 100)  # type: ignore[union-attr]
    assert world.begin().throttle_ms(asked(), 10) == 0
