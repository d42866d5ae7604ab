"""The sampled rate against a model that keeps every sample apart and adds all of them up each time."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.serving.quotas.rate import Rate
from tests.support.effort import examples


class Sample:
    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.start_ms = self.last_ms = now_ms


class SlowRate:
    """Kafka's SampledStat and Rate, as they are described: nothing is remembered but the samples."""

    def __init__(self, samples: int, window_ms: int, now_ms: int) -> None:
        self.samples, self.window = samples, window_ms
        self.ring = [Sample(now_ms)]
        self.current = 0

    def record(self, value: float, now_ms: int) -> None:
        if now_ms - self.ring[self.current].start_ms >= self.window:
            self.current = (self.current + 1) % (self.samples + 1)
            if self.current == len(self.ring):
                self.ring.append(Sample(now_ms))
            else:
                self.ring[self.current].reset(now_ms)
        self.ring[self.current].value += value
        self.ring[self.current].last_ms = now_ms

    def window_ms(self, now_ms: int) -> int:
        for sample in self.ring:
            if now_ms - sample.last_ms >= self.samples * self.window:
                sample.reset(now_ms)
        elapsed = now_ms - min(sample.start_ms for sample in self.ring)
        whole = elapsed // self.window
        return max(elapsed + max(self.samples - 1 - whole, 0) * self.window, 1)

    def per_second(self, now_ms: int) -> float:
        window = self.window_ms(now_ms)
        return sum(sample.value for sample in self.ring) * 1000 / window


@pytest.mark.parametrize("seed", range(examples(60)))
def test_the_rate_is_that_of_the_samples(seed: int) -> None:
    random = Random(seed)
    samples, window_ms = random.choice([(1, 1000), (2, 500), (11, 1000), (3, 100)])
    now_ms = random.randrange(10**6)
    fast, slow = Rate(samples, window_ms, now_ms), SlowRate(samples, window_ms, now_ms)
    pause = random.choice([1, window_ms // 10, window_ms, samples * window_ms])
    for _ in range(400):
        now_ms += random.choice([0, 0, 1, random.randrange(pause + 1), random.randrange(2 * pause + 1)])
        if random.random() < 0.7:
            value = float(random.randrange(10_000))
            fast.record(value, now_ms)
            slow.record(value, now_ms)
            if random.random() < 0.1:
                fast.record(-value, now_ms)
                slow.record(-value, now_ms)
        if random.random() < 0.7:
            assert fast.window_ms(now_ms) == slow.window_ms(now_ms), f"seed {seed}"
            rate = slow.per_second(now_ms)
            assert fast.per_second(now_ms) == pytest.approx(rate), f"seed {seed}"
            if rate > 1:
                limit = rate * random.uniform(0.1, 0.9)
                wait_ms = (rate - limit) / limit * slow.window_ms(now_ms)
                assert fast.throttle_ms(limit, now_ms) == pytest.approx(wait_ms, abs=1), f"seed {seed}"
