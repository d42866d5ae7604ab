"""Limits of bytes per second for work in the background."""

import threading

import pytest

from barnabas.log.rate_limit import BUSY_SECONDS_MAX, NAP_SECONDS_MAX, PAUSE_SECONDS, RateLimit


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self):
        self.now = 100.0
        self.naps = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += seconds


def limit(clock, rate):
    return RateLimit(rate, clock)


def never():
    return False


def test_who_is_too_quick_sleeps():
    clock = Clock()
    throttle = limit(clock, 1000.0)
    for _ in range(50):
        throttle.use(100, never)
    assert clock.now - 100.0 == pytest.approx(5.0)
    assert max(clock.naps) <= NAP_SECONDS_MAX


def test_time_that_was_not_used_is_not_saved_up():
    clock = Clock()
    throttle = limit(clock, 1000.0)
    clock.now += 60
    throttle.use(500, never)
    assert clock.now - 160.0 == pytest.approx(0.5)


def test_it_can_be_changed():
    clock = Clock()
    throttle = limit(clock, 1000.0)
    throttle.bytes_per_second = 1e9
    throttle.use(1_000_000, never)
    assert clock.now - 100.0 == pytest.approx(0.001)


@pytest.mark.parametrize("rate", [1.7976931348623157e308, 0.0, -1.0, None])
def test_without_a_limit_nobody_sleeps(rate):
    clock = Clock()
    throttle = limit(clock, rate)
    throttle.use(1 << 40, never)
    assert clock.naps == []


@pytest.mark.parametrize("rate", [1.7976931348623157e308, 0.0, None])
def test_who_works_for_long_pauses(rate):
    clock = Clock()
    throttle = limit(clock, None)
    for _ in range(100):
        throttle.use(1_000, never)
        clock.now += BUSY_SECONDS_MAX / 5
    assert len(clock.naps) == 19
    assert set(clock.naps) == {PAUSE_SECONDS}


def test_each_thread_pauses_by_its_own_time():
    clock = Clock()
    throttle = limit(clock, None)
    throttle.use(1_000, never)
    clock.now += BUSY_SECONDS_MAX
    other = threading.Thread(target=throttle.use, args=(1_000, never))
    other.start()
    other.join()
    assert clock.naps == [], "the other one has just begun"
    throttle.use(1_000, never)
    assert clock.naps == [PAUSE_SECONDS]


def test_who_is_cancelled_does_not_sleep_to_the_end():
    clock = Clock()
    limit(clock, 1.0).use(1000, lambda: len(clock.naps) == 3)
    assert len(clock.naps) == 3

    def stop():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        limit(clock, 1.0).use(1000, stop)
