"""A load of many topics without broker and Spark: a cluster, tasks and a watcher, all made up; tables are real."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from barnabas.client import ClientError
from barnabas_pipeline import schema
from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.jobs.choices import Choice
from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.jobs.loading import Commit, Load, LoadRound, Parts, Topics, Watcher
from barnabas_pipeline.jobs.sites import Topic
from barnabas_pipeline.lake.iceberg import Lake
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.task import LoadTask, TaskResult
from barnabas_pipeline.log.model import Bounds, LogOptions

from .tables import ScriptedCatalogs

CLUSTER = "cluster"
LOG = LogOptions("", bootstrap="127.0.0.1:1")


@dataclass
class FakeCluster:
    """Topics by name: an id, and the end of each partition."""

    held: dict[str, tuple[str, list[int]]] = field(default_factory=dict)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    errors: dict[tuple[str, int], ClientError] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    closed: bool = False

    def put(self, name: str, *ends: int, topic_id: str = "") -> None:
        self.held[name] = (topic_id or f"id-{name}", [*ends])

    def cluster_id(self) -> str:
        return CLUSTER

    def topics(self) -> dict[str, Topic]:
        self.requests.append("topics")
        return {
            name: Topic(name, topic_id, len(ends), name.startswith("__"))
            for name, (topic_id, ends) in self.held.items()
        }

    def bounds(self, topics: Iterable[Topic]) -> dict[Any, Any]:
        self.requests.append("bounds")
        result: dict[Any, Any] = {}
        for topic in topics:
            for number, end in enumerate(self.held[topic.name][1]):
                place = topic.name, number
                result[place] = self.errors.get(place) or Bounds(self.starts.get(place, 0), end, end, 1)
        return result

    def close(self) -> None:
        self.closed = True


@dataclass
class Tasks:
    """A stand-in for Spark: each task loads its range, unless something is to happen to its topic."""

    outcomes: dict[str, Exception] = field(default_factory=dict)
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    jobs: list[list[LoadTask]] = field(default_factory=list)

    def __call__(self, _spark: Any, tasks: list[LoadTask], _worker_offsets_max: int) -> list[Any]:
        self.jobs.append(tasks)
        results: list[Any] = []
        for task in tasks:
            self.before.pop(task.log.topic, lambda: None)()
            outcome = self.outcomes.get(task.log.topic)
            if isinstance(outcome, OSError):
                raise outcome
            if isinstance(outcome, CrashError):
                raise IncompleteError("Spark could not do it: a worker died")
            results.append(outcome or TaskResult(task.offset_range, loaded=len(task.offset_range)))
        return results

    @property
    def topics(self) -> list[list[str]]:
        return [[task.log.topic for task in job] for job in self.jobs]


class CrashError(Exception):
    """A task with a worker that dies each time."""


class Noted(Watcher):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self.commits: list[Commit] = []
        self.rounds: list[LoadRound] = []

    def joined(self, topic: str) -> None:
        self.told.append(("joined", topic))

    def failed(self, topic: str, error: Exception, *, is_over: bool) -> None:
        self.told.append(("left out" if is_over else "failed", topic, str(error)))

    def recovered(self, topic: str) -> None:
        self.told.append(("recovered", topic))

    def committed(self, commit: Commit) -> None:
        self.commits.append(commit)

    def ended(self, done: LoadRound) -> None:
        self.rounds.append(done)


@dataclass
class World:
    """A cluster, a lake, and tasks."""

    root: Path
    cluster: FakeCluster
    tasks: Tasks
    noted: Noted = field(default_factory=Noted)
    refused: dict[str, Exception] = field(default_factory=dict)
    more: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    catalogs: ScriptedCatalogs = field(default_factory=ScriptedCatalogs)
    tables_open_max: int = 1_000

    def place(self, topic: str) -> Any:
        return Lake(str(self.root)).place(topic, self.tables.get(topic, ""))

    def options(self, topic: str) -> LoadOptions:
        if topic in self.refused:
            raise self.refused[topic]
        return LoadOptions(
            replace(LOG, topic=topic), self.place(topic), schema.load("logins"), **self.more.get(topic, {})
        )

    def topics(self, *names: str, patterns: tuple[str, ...] = (), excluded: tuple[str, ...] = ()) -> Topics:
        choice = Choice(names, patterns, excluded)
        return Topics(LOG, choice, self.place, self.options, self.catalogs, self.parts)

    @property
    def parts(self) -> Any:
        return Parts(
            lambda *_, **__: self.cluster,
            self.tasks,
            lambda _, ranges, bytes_max: [range_ for range_ in ranges if len(range_)],
            retry_seconds=0.0,
            tables_open_max=self.tables_open_max,
        )

    def rounds(self, topics: Topics, *, is_bounded: bool = False, offsets_max: int = 0) -> Load:
        return Load(None, topics, is_bounded=is_bounded, offsets_max=offsets_max, watchers=[self.noted])

    def load(self, *names: str, **more: Any) -> Any:
        return Load(None, self.topics(*names, **more), watchers=[self.noted]).run()

    def ends(self, topic: str) -> dict[int, int]:
        return Table(self.place(topic)).state().ends
