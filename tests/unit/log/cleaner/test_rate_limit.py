"""The cleaner's limit of bytes per second."""

import pytest

from barnabas.log.cleaner.rate_limit import NAP_SECONDS_MAX, RateLimit


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self):
        self.now = 100.0
        self.naps = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += seconds


def limit(clock, rate, check=lambda: None):
    return RateLimit(rate, check, clock=clock, sleep=clock.sleep)


def test_who_is_too_quick_sleeps():
    clock = Clock()
    throttle = limit(clock, 1000.0)
    for _ in range(50):
        throttle(100)
    assert clock.now - 100.0 == pytest.approx(5.0)
    assert max(clock.naps) <= NAP_SECONDS_MAX


def test_time_that_was_not_used_is_not_saved_up():
    clock = Clock()
    throttle = limit(clock, 1000.0)
    clock.now += 60
    throttle(500)
    assert clock.now - 160.0 == pytest.approx(0.5)


def test_it_can_be_changed():
    clock = Clock()
    throttle = limit(clock, 1000.0)
    throttle.bytes_per_second = 1e9
    throttle(1_000_000)
    assert clock.now - 100.0 == pytest.approx(0.001)


@pytest.mark.parametrize("rate", [1.7976931348623157e308, 0.0, -1.0])
def test_without_a_limit_nobody_sleeps(rate):
    clock = Clock()
    throttle = limit(clock, rate)
    throttle(1 << 40)
    assert clock.naps == []


def test_who_is_cancelled_does_not_sleep_to_the_end():
    clock = Clock()

    def check():
        if len(clock.naps) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        limit(clock, 1.0, check)(1000)
    assert len(clock.naps) == 3
