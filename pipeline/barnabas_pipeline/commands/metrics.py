"""Metrics of long-running jobs, for Prometheus: `--metrics HOST:PORT`.

The rule: numbers are read from the job at each scrape, so nothing is counted twice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from barnabas_pipeline.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from barnabas_pipeline.commands.arguments import LoadArguments
    from barnabas_pipeline.jobs.loading import Load
    from barnabas_pipeline.jobs.mirror.rounds import Mirror

ROUND_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


def add_metrics(parser: argparse.ArgumentParser) -> None:
    """Add the option with the address of the metrics."""
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve metrics for Prometheus at http://HOST:PORT/metrics",
    )


def parse_address(text: str) -> tuple[str, int]:
    """Read `host:port`; an IPv6 host stands in brackets. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--metrics {text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def serve(address: str, stack: ExitStack, *collectors: LoadCollector | MirrorCollector) -> CollectorRegistry:
    """Serve metrics until the stack is closed; port 0 selects a free port. Raises UsageError."""
    host, port = parse_address(address)
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    for kind in (ProcessCollector, PlatformCollector):
        kind(registry=registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise UsageError(f"--metrics {address}: {error.strerror or error}") from None
    stack.callback(thread.join)
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    shown = f"[{host}]" if ":" in host else host
    print(f"metrics: http://{shown}:{server.server_port}/metrics", file=sys.stderr, flush=True)
    return registry


def seconds_of_rounds(registry: CollectorRegistry, job: str) -> Histogram:
    """Return a histogram of the seconds of a job's rounds."""
    return Histogram(
        f"barnabas_{job}_round_seconds",
        f"Seconds of rounds of the {job} that did something",
        buckets=ROUND_SECONDS,
        registry=registry,
    )


# --- load -----------------------------------------------------------------------------------------------------------


def serve_load(args: LoadArguments, stack: ExitStack, load: Load) -> None:
    """Serve the metrics of a load, if the options have an address."""
    if not args.metrics:
        return
    from barnabas_pipeline.jobs.loading import LoadRound, Watcher

    registry = serve(args.metrics, stack, LoadCollector(load))
    seconds = seconds_of_rounds(registry, "load")

    class Clock(Watcher):
        def ended(self, done: LoadRound) -> None:
            if done.commits:
                seconds.observe(done.seconds)

    load.watchers.append(Clock())


class LoadCollector:
    """Collector of the counts and the lag of a load."""

    def __init__(self, load: Load) -> None:
        self._load = load

    def describe(self) -> list[Metric]:
        """Return no metrics, so that registration does not collect them."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        topic = ("topic",)
        lag = GaugeMetricFamily(
            "barnabas_load_lag_records", "Offsets that are not loaded yet", labels=("topic", "partition")
        )
        commits = CounterMetricFamily("barnabas_load_commits", "Commits to the table", labels=topic)
        rows = CounterMetricFamily("barnabas_load_rows", "Rows committed", labels=topic)
        dead = CounterMetricFamily(
            "barnabas_load_dead_letters", "Dead letters committed", labels=("topic", "reason")
        )
        files = CounterMetricFamily("barnabas_load_files", "Data files committed", labels=topic)
        read = CounterMetricFamily(
            "barnabas_load_read_bytes", "Bytes of batches that were read", labels=topic
        )
        last = GaugeMetricFamily(
            "barnabas_load_last_commit_timestamp_seconds", "Time of the newest commit", labels=topic
        )
        failing = GaugeMetricFamily(
            "barnabas_load_failing",
            "1 for topics that have failed: left out, or tried again",
            labels=("topic", "left_out"),
        )
        streams = self._load.streams.copy()
        for name, stream in streams.items():
            for partition, count in stream.behind.copy().items():
                lag.add_metric((name, str(partition)), count)
            counts = stream.summary
            commits.add_metric((name,), counts.commits)
            rows.add_metric((name,), counts.loaded)
            files.add_metric((name,), counts.files)
            read.add_metric((name,), counts.bytes_read)
            for reason, count in counts.reasons.copy().items():
                dead.add_metric((name, reason), count)
            if stream.committed_at:
                last.add_metric((name,), stream.committed_at)
            if stream.error is not None:
                failing.add_metric((name, str(stream.is_over).lower()), 1)
        total = GaugeMetricFamily("barnabas_load_topics", "Topics of the load", value=len(streams))
        yield from (total, lag, commits, rows, dead, files, read, last, failing)


# --- mirror ---------------------------------------------------------------------------------------------------------


class MirrorCollector:
    """Collector of the counts and the lag of a mirror."""

    COUNTERS = ("rounds", "mirrored", "skipped_loops", "transactions", "created_topics", "groups_committed")
    GAUGES = ("topics", "partitions", "behind", "groups_waiting")

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def describe(self) -> list[Metric]:
        """Return no metrics, so that registration does not collect them."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        summary = self._mirror.summary
        for name in self.COUNTERS:
            yield CounterMetricFamily(
                f"barnabas_mirror_{name}", f"{_text(name)} so far", getattr(summary, name)
            )
        for name in self.GAUGES:
            text = f"{_text(name)} in the newest round"
            yield GaugeMetricFamily(f"barnabas_mirror_{name}", text, getattr(summary, name))
        yield GaugeMetricFamily(
            "barnabas_mirror_failures", "What has failed in the newest round", len(self._mirror.failures)
        )


def _text(name: str) -> str:
    return name.replace("_", " ").capitalize()
