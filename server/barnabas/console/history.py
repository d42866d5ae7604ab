"""The last 15 minutes of a cluster in numbers, as one visitor may see them.

The rule: the number of samples is bounded, and so is the time for taking them: one percent. A history sampled since the
start is shared by visitors without logins, and, if the console has its own login, by visitors that may describe the
cluster. Others have their own numbers, from their first visit until their session ends.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from barnabas.client import ClientError
from barnabas.commands.lagging import lags_of
from barnabas.console.base import ConsoleError
from barnabas.console.exposed import families_of
from barnabas.console.live import METRICS, check_view
from barnabas.console.measuring import RATE, log_dirs_of
from barnabas.console.outcomes import error_text
from barnabas.errors import leaves

if TYPE_CHECKING:
    from barnabas.client.admin import ListedGroup
    from barnabas.commands.lagging import GroupLag
    from barnabas.console.backend import Backend
    from barnabas.console.live import Live

log = logging.getLogger(__name__)

EVERY_SECONDS = 10.0
RETRY_SECONDS = 2.0
"""Time after a first look that has failed."""
HISTORY_SECONDS = 900.0
ABSENCE_SECONDS = 60.0
"""Time without a visitor after which the next one has a sample taken at once."""
REST_FACTOR = 100
"""Time between two samples, as a multiple of the time that one takes."""
FIRST_SECONDS_MAX = 5.0
"""Time that the first look waits for the first sample."""
GROUPS_MAX = 200
"""Groups that are measured: those with members first."""
SHOWN_GROUPS_MAX = 8
"""Groups of a sample, those with the most lag."""
LAGS_MAX = 360
"""Lags that are remembered of a group."""
LAG_SECONDS_MIN = 1.0
REMEMBERED_MAX = 2_000
"""Groups with remembered lags; the oldest is dropped."""
DESCRIBED_MAX = 20
"""Open transactions for which the age is requested."""
PLOTTED = (
    re.compile(r"messagesin", re.I),
    re.compile(r"_bytesin", re.I),
    re.compile(r"_bytesout", re.I),
    re.compile(r"requestmetrics_requests(_total)?$", re.I),
    re.compile(r"connection_?count", re.I),
)
"""Metrics that the page plots without being asked, the first of each."""
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States of transactions that are open."""
_STALLS = "barnabas_event_loop_stalls"


@dataclass(frozen=True, slots=True)
class Sample:
    """A cluster at a moment (ms since 1970); values are None, or missing, where they are not known."""

    at_ms: int
    values: dict[str, float | None]
    groups: dict[str, int] = field(default_factory=dict)
    """Lags of groups."""
    notes: dict[str, str] = field(default_factory=dict)
    """Why values are not known."""

    def as_json(self, hidden: Collection[str] = ()) -> dict[str, Any]:
        """Return it as JSON, without groups that are hidden."""
        groups = {name: lag for name, lag in self.groups.items() if name not in hidden}
        return {"at": self.at_ms, "values": self.values, "groups": groups}


class Lags:
    """Lags of groups over time, and of topics now."""

    def __init__(self) -> None:
        self.by_topic: dict[str, int] = {}
        """Lag in each topic of the group that is furthest behind there, as the history saw it last."""
        self._by_group: dict[str, deque[tuple[int, int]]] = {}

    def note(self, group: str, lag: int) -> list[tuple[int, int]]:
        """Remember the lag of a group; returns its remembered lags with their times (ms since 1970)."""
        seen = self._by_group.pop(group, None)
        if seen is None:
            seen = deque(maxlen=LAGS_MAX)
        self._by_group[group] = seen
        if len(self._by_group) > REMEMBERED_MAX:
            del self._by_group[next(iter(self._by_group))]
        now_ms = time.time_ns() // 1_000_000
        if not seen or now_ms - seen[-1][0] >= LAG_SECONDS_MIN * 1000:
            seen.append((now_ms, lag))
        return list(seen)


class History:
    """Samples of a cluster, taken in the background from the first request on, once it is attached to a nursery."""

    def __init__(self, measure: Callable[[], Awaitable[Sample]], nursery: trio.Nursery | None = None) -> None:
        """`measure` may raise ClientError, ConsoleError."""
        self._measure = measure
        self._nursery = nursery
        self.lags = Lags()
        self._samples: deque[Sample] = deque(maxlen=int(HISTORY_SECONDS / EVERY_SECONDS))
        self._has_begun = False
        self._has_looked = trio.Event()
        self._is_due = trio.Event()
        """Set by a visitor that comes after a while without any."""
        self._visited_s = -math.inf
        self._sampled_s = -math.inf
        self.error = ""
        """Why the last look failed."""

    def attach(self, nursery: trio.Nursery) -> None:
        """Take samples in a nursery, once they are needed."""
        self._nursery = nursery

    def begin(self) -> None:
        """Start sampling, unless it has started."""
        if not self._has_begun and self._nursery is not None:
            self._has_begun = True
            self._nursery.start_soon(self._run)

    async def samples(self) -> list[Sample]:
        """Return the samples of the last 15 minutes; the first call waits a little for the first sample."""
        self.begin()
        now_s = trio.current_time()
        if now_s - self._visited_s > ABSENCE_SECONDS and now_s - self._sampled_s > EVERY_SECONDS:
            self._is_due.set()
        self._visited_s = now_s
        if self._has_begun:
            with trio.move_on_after(FIRST_SECONDS_MAX):
                await self._has_looked.wait()
        since_ms = self._samples[-1].at_ms - HISTORY_SECONDS * 1_000 if self._samples else 0
        return [sample for sample in self._samples if sample.at_ms > since_ms]

    async def _run(self) -> None:
        while True:
            began_s = trio.current_time()
            try:
                self._samples.append(await self._measure())
                self.error = ""
            except ClientError as error:
                self.error = error_text(error)
            except ConsoleError as error:  # the broker is down, or starting
                self.error = str(error)
            except Exception as error:  # a defect, or several errors at once: the next look may be better
                causes = [leaf for leaf in leaves(error) if not isinstance(leaf, ClientError | ConsoleError)]
                if causes:
                    log.exception("measuring the cluster failed")
                self.error = str((causes or leaves(error))[0])
            self._has_looked.set()
            self._sampled_s = trio.current_time()
            taken_s = trio.current_time() - began_s
            # the first sample imports modules, and a starting broker is not available yet
            rest_s = REST_FACTOR * taken_s if len(self._samples) > 1 else 0.0
            every_s = EVERY_SECONDS if self._samples else RETRY_SECONDS
            self._is_due = trio.Event()
            with trio.move_on_after(max(every_s, rest_s) - min(taken_s, every_s)):
                await self._is_due.wait()


async def measure_metrics(live: Live) -> Sample:
    """Return the sums of the metrics that are plotted by default. Raises ConsoleError."""
    families = await live.metrics()
    names = [row["name"] for row in families_of(families, ())]
    plotted = {next(filter(pattern.search, names), "") for pattern in PLOTTED} - {""}
    sums = {row["name"]: row["sum"] for row in families_of(families, plotted)} if plotted else {}
    return Sample(time.time_ns() // 1_000_000, sums)


async def measure(backend: Backend) -> Sample:
    """Return a sample of the cluster; omits values that the visitor may not see, with the reason."""
    sample = Sample(time.time_ns() // 1_000_000, {})
    async with trio.open_nursery() as nursery:
        for name, work in (
            ("throughput", _throughput),
            ("lag", _lag),
            ("transactions", _transactions),
            ("replicas", _replicas),
            ("disk", _disk),
            ("stalls", _stalls),
        ):
            nursery.start_soon(_noted, name, partial(work, backend, sample), sample)
    return sample


async def _noted(name: str, work: Callable[[], Awaitable[None]], sample: Sample) -> None:
    try:
        await work()
    except ClientError as error:
        sample.notes[name] = error_text(error)
    except ConsoleError as error:
        sample.notes[name] = str(error)


async def _throughput(backend: Backend, sample: Sample) -> None:
    sample.values["records_per_s"] = sum((await backend.measured.get(RATE)).values())
    sample.values["bytes"] = backend.measured.bytes


async def _lag(backend: Backend, sample: Sample) -> None:
    listed, _ = await backend.admin.list_groups()
    groups = dict(sorted(listed.items(), key=_is_idle)[:GROUPS_MAX])
    measured = await lags_of(backend.admin, groups)
    lags = {name: lag.total for name, lag in measured.items() if lag.total is not None}
    seen = (await backend.history()).lags
    seen.by_topic = _by_topic(measured.values())
    for name, lag in lags.items():
        seen.note(name, lag)
    sample.values["lag"] = sum(lags.values())
    sample.groups.update(sorted(lags.items(), key=lambda item: -item[1])[:SHOWN_GROUPS_MAX])


def _by_topic(groups: Iterable[GroupLag]) -> dict[str, int]:
    """Return the lag in each topic of the group that is furthest behind there."""
    largest: dict[str, int] = {}
    for group in groups:
        lags: dict[str, int] = {}
        for partition in group.partitions:
            if partition.lag is not None:
                lags[partition.topic] = lags.get(partition.topic, 0) + partition.lag
        for topic, lag in lags.items():
            largest[topic] = max(largest.get(topic, 0), lag)
    return largest


def _is_idle(item: tuple[str, ListedGroup]) -> bool:
    return item[1].state in ("Empty", "Dead")


async def _transactions(backend: Backend, sample: Sample) -> None:
    listed, _ = await backend.admin.list_transactions(states=OPEN)
    sample.values["open_transactions"] = len(listed)
    ids = [transaction.transactional_id for transaction in listed[:DESCRIBED_MAX]]
    infos = (await backend.admin.describe_transactions(ids)).values()
    starts = [info.started_at_ms for info in infos if not isinstance(info, ClientError)]
    ages = [sample.at_ms - start for start in starts if start >= 0]
    sample.values["oldest_transaction_ms"] = max(ages, default=None)


async def _replicas(backend: Backend, sample: Sample) -> None:
    rows = await backend.topics.rows()
    sample.values["under_replicated"] = sum(row.under_replicated for row in rows)
    sample.values["offline"] = sum(row.offline for row in rows)


async def _disk(backend: Backend, sample: Sample) -> None:
    info = await backend.admin.describe_cluster()
    dirs = [
        log_dir
        for broker in info.brokers
        for log_dir in await log_dirs_of(backend.admin, broker.broker_id)
        if log_dir.total_bytes >= 0 and log_dir.usable_bytes >= 0
    ]
    if dirs:
        total = sum(log_dir.total_bytes for log_dir in dirs)
        sample.values["disk_total"] = total
        sample.values["disk_used"] = total - sum(log_dir.usable_bytes for log_dir in dirs)


async def _stalls(backend: Backend, sample: Sample) -> None:
    """Count the event loop's turns longer than 20 ms, for a broker in the same process that keeps metrics."""
    live = backend.live
    if live is None or METRICS not in live.views:
        return
    await check_view(backend, METRICS)
    families = {family.name: family for family in await live.metrics()}
    stalls = families.get(_STALLS)
    sample.values["stalls"] = sum(value for _, _, value in stalls.samples()) if stalls else 0
