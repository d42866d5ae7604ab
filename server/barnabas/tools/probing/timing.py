"""Durations of connections and small requests: quantiles of as many as fit into a moment."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from barnabas.tools.probing.exchanges import Target
from barnabas.tools.probing.harmless import BY_KEY, Names
from barnabas.wire import registry

Versions = dict[int, tuple[int, int]]
METADATA, API_VERSIONS = 3, 18
CONNECTIONS, REQUESTS = 20, 100


@dataclass(frozen=True, slots=True)
class Timing:
    """Quantiles of `count` attempts: the median and the 99th percentile in milliseconds."""

    what: str
    count: int
    p50_ms: float
    p99_ms: float


async def measure_all(target: Target, versions: Versions, names: Names) -> list[Timing]:
    """Time connection set-up (TCP, TLS, login), ApiVersions and Metadata. Raises ClientError, ExchangeError."""

    async def connect() -> None:
        async with target.connect():
            pass

    timings = [await _measured("connection", CONNECTIONS, connect)]
    async with target.connect() as wire:
        for key in (API_VERSIONS, METADATA):
            version = min(versions[key][1], registry.info(key).max_stable_version)
            request = BY_KEY[key].request(names, version)

            async def ask(request: object = request, version: int = version) -> None:
                wire.journal.clear()
                await wire.ask(request, version)

            timings.append(await _measured(f"{registry.name_of(key)} v{version}", REQUESTS, ask))
    return timings


async def _measured(what: str, count: int, act: Callable[[], Awaitable[None]]) -> Timing:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        await act()
        taken.append((time.perf_counter() - began) * 1000)
    taken.sort()
    return Timing(what, count, taken[count // 2], taken[min(count - 1, count * 99 // 100)])
