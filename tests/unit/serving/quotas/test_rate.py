"""The sampled rate and the token bucket, with a clock that stands until it is moved."""

import pytest

from barnabas.serving.quotas.rate import THROTTLE_MS_MAX, Rate
from barnabas.serving.quotas.token_bucket import TokenBucket


def test_a_young_rate_is_over_all_windows_but_one():
    rate = Rate(11, 1000, 0)
    rate.record(1000, 0)
    assert rate.per_second(0) == 100.0
    assert rate.per_second(500) == pytest.approx(1000 / 10.5)


def test_a_full_rate_is_over_the_time_since_its_oldest_sample():
    rate = Rate(11, 1000, 0)
    for second in range(11):
        rate.record(500, second * 1000)
    assert rate.window_ms(10_400) == 10_400
    assert rate.per_second(10_400) == pytest.approx(11 * 500 / 10.4)


def test_samples_expire_after_the_span_of_all_of_them():
    rate = Rate(3, 1000, 0)
    rate.record(600, 0)
    assert rate.per_second(2999) > 0
    assert rate.per_second(3000) == 0
    assert rate.is_forgettable(3000)


def test_the_throttle_time_brings_the_rate_to_the_limit():
    rate = Rate(11, 1000, 0)
    rate.record(30_000, 0)
    wait_ms = rate.throttle_ms(1000, 0)
    assert wait_ms == 20_000
    assert rate.throttle_ms(3000, 0) == 0


def test_what_did_not_happen_is_taken_back():
    rate = Rate(11, 1000, 0)
    rate.record(30_000, 0)
    rate.record(-30_000, 0)
    assert rate.per_second(0) == 0
    assert rate.throttle_ms(1000, 0) == 0


def test_the_throttle_time_fits_its_field():
    rate = Rate(11, 1000, 0)
    rate.record(1e15, 0)
    assert rate.throttle_ms(0.001, 0) == THROTTLE_MS_MAX


def test_a_new_bucket_has_a_burst_of_tokens():
    bucket = TokenBucket(11, 0)
    assert bucket.tokens(2.0, 0) == 22
    bucket.take(20, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 0
    bucket.take(10, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 4000
    assert bucket.throttle_ms(2.0, 3000) == 1000
    assert bucket.throttle_ms(2.0, 4000) == 0
    assert not bucket.is_forgettable(4000)
    assert bucket.is_forgettable(15_000)


def test_a_bucket_keeps_what_it_owes_when_the_limit_changes():
    bucket = TokenBucket(10, 0)
    bucket.take(30, 2.0, 0)
    assert bucket.throttle_ms(2.0, 0) == 5000
    assert bucket.throttle_ms(10.0, 0) == 1000
    assert bucket.tokens(10.0, 11_000) == 100
    assert bucket.tokens(1.0, 11_000) == 10
