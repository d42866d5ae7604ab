"""Clusters as a mirror's driver asks them, without any: bounds, what groups have committed, which partitions are empty."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.client import ClientError
from barnabas.client.admin import EARLIEST, CommittedOffset, OffsetAt
from barnabas.client.errors import ResponseError
from barnabas.wire.generated.errors import ErrorCode
from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.jobs.mirror import resuming
from barnabas_pipeline.jobs.mirror.model import Part, Place
from barnabas_pipeline.jobs.mirror.rounds import Mirror
from barnabas_pipeline.jobs.sites import Cluster, Site, Topic
from barnabas_pipeline.log.model import Bounds, LogOptions

PLACE = Place("c", "tid", 1, "copy", "cid")


class Offsets:
    """Stands for an administrator: offsets of partitions by which are asked for."""

    EARLIEST, LATEST, STABLE = 2, 9, 7

    def __init__(self, failing: dict[str, Any] | None = None) -> None:
        self.failing = failing or {}
        self.asked: list[tuple[str, list[Any]]] = []

    def offsets(self, times: dict[Any, int], *, is_committed: bool = False) -> dict[Any, Any]:
        (time,) = set(times.values())
        kind = "starts" if time == EARLIEST else "stable" if is_committed else "ends"
        self.asked.append((kind, list(times)))
        value = {"starts": self.EARLIEST, "stable": self.STABLE, "ends": self.LATEST}[kind]
        return {place: self.failing.get((kind, place), OffsetAt(value, -1, -1)) for place in times}


def site_of(admin: Any, isolation: str = "read_uncommitted") -> Site:
    site = Site.__new__(Site)
    site.cluster = replace(Cluster("", "h:1"), isolation=isolation)
    site.ask = lambda work: work(admin)  # type: ignore[method-assign]
    return site


@pytest.mark.parametrize(("isolation", "end"), [("read_uncommitted", 9), ("read_committed", 7)])
def test_bounds_are_of_partitions_that_have_a_leader(isolation: str, end: int) -> None:
    admin = Offsets()
    topics = [
        Topic("a", "x", 3, False, (4, 5, 6), frozenset({1})),
        Topic("b", "y", 1, False, (), frozenset()),
        Topic("c", "z", 1, False, (1,), frozenset({0})),
    ]
    bounds = site_of(admin, isolation).bounds(topics)
    assert {place: bound for place, bound in bounds.items() if isinstance(bound, Bounds)} == {
        ("a", 0): Bounds(2, end, 9, 4),
        ("a", 2): Bounds(2, end, 9, 6),
        ("b", 0): Bounds(2, end, 9, -1),
    }
    assert {place: str(bound) for place, bound in bounds.items() if not isinstance(bound, Bounds)} == {
        ("a", 1): "a-1 has no leader",
        ("c", 0): "c-0 has no leader",
    }
    kinds = ["starts", *(["stable"] if end == 7 else []), "ends"]
    assert admin.asked == [(kind, [("a", 0), ("a", 2), ("b", 0)]) for kind in kinds]
    assert site_of(admin).bounds([]) == {}
    assert site_of(admin).bounds(topics[2:]).keys() == {("c", 0)}
    assert len(admin.asked) == len(kinds)


@pytest.mark.parametrize("kind", ["starts", "stable", "ends"])
def test_partition_with_a_failed_request_has_no_bounds(kind: str) -> None:
    error = ClientError("no")
    admin = Offsets({(kind, ("a", 1)): error})
    bounds = site_of(admin, "read_committed").bounds([Topic("a", "x", 2, False)])
    assert bounds == {("a", 0): Bounds(2, 7, 9, -1), ("a", 1): error}


def test_an_end_is_never_before_its_start() -> None:
    admin = Offsets({("starts", ("a", 0)): OffsetAt(8, -1, -1)})
    assert site_of(admin, "read_committed").bounds([Topic("a", "x", 1, False)]) == {
        ("a", 0): Bounds(8, 8, 9, -1)
    }


CODES = [code for code in ErrorCode if code != ErrorCode.NONE]


def test_missing_group_has_no_offsets_and_other_errors_raise() -> None:
    offset = CommittedOffset(5)
    for code in CODES:
        site = site_of(
            SimpleNamespace(committed=lambda names, code=code: {names[0]: ResponseError(code, "asking")})
        )
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            assert site.committed("g") == {}
        else:
            with pytest.raises(IncompleteError, match=code.name):
                site.committed("g")
    with pytest.raises(IncompleteError, match="lost"):
        site_of(SimpleNamespace(committed=lambda names: {names[0]: ClientError("lost")})).committed("g")
    committed = {("a", 0): offset, ("a", 1): ResponseError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")}
    site = site_of(SimpleNamespace(committed=lambda names: {"g": committed, "other": {}}))
    assert site.committed("g") == {("a", 0): offset}


@pytest.mark.parametrize("case", [None, "position", "another"])
def test_position_is_the_committed_one_of_the_partition(case: str | None, monkeypatch: Any) -> None:
    part = Part(
        PLACE, LogOptions("topic"), LogOptions("copy"), bound=Bounds(0, 9, 9, 0), target_cluster_id="t"
    )
    asked: list[Any] = []

    async def committed(client: Any, group: Any, places: Any, *, stable: bool) -> Any:
        asked.append((group.group_id, places, stable))
        if isinstance(client, Exception):
            raise client
        position = PLACE.position(5) if case == "position" else ""
        place = (PLACE.target, PLACE.partition + (case == "another"))
        return {} if case is None else {place: CommittedOffset(5, metadata=position)}

    async def retrying(work: Any) -> Any:
        return await work()

    monkeypatch.setattr(resuming, "committed", committed)
    mirrored = trio.run(resuming.committed_position, SimpleNamespace(retrying=retrying), part)
    assert (mirrored is None) is (case != "position")
    assert mirrored is None or mirrored.offset == 5
    assert asked == [(part.group, [("copy", 1)], False)]


def test_a_group_that_is_not_there_keeps_no_position(monkeypatch: Any) -> None:
    part = Part(
        PLACE, LogOptions("topic"), LogOptions("copy"), bound=Bounds(0, 9, 9, 0), target_cluster_id="t"
    )
    for code in CODES:

        async def retrying(work: Any, code: Any = code) -> Any:
            raise ResponseError(code, "asking")

        client: Any = SimpleNamespace(retrying=retrying)
        if code == ErrorCode.GROUP_ID_NOT_FOUND:
            assert trio.run(resuming.committed_position, client, part) is None
        else:
            with pytest.raises(ResponseError):
                trio.run(resuming.committed_position, client, part)


@pytest.mark.parametrize(
    ("committed", "high", "empty"),
    [
        ((), (0, 0), {0, 1}),
        ((), (0, 3), {0}),
        ((0,), (0, 0), {0, 1}),
        ((1,), (3, 0), {1}),
        ((0, 1), (0, 0), set()),
    ],
)
def test_partitions_without_position_and_records_are_empty(
    committed: tuple[int, ...], high: tuple[int, int], empty: set[int]
) -> None:
    asked: list[Any] = []

    def bounds(topics: list[Topic]) -> Any:
        asked.append([topic.name for topic in topics])
        return {(topic.name, n): Bounds(0, end, end, 0) for topic in topics for n, end in enumerate(high)}

    mirror = Mirror.__new__(Mirror)
    mirror._target = SimpleNamespace(bounds=bounds)  # type: ignore[assignment]
    there = Topic("copy", "y", 2, False)
    stream = SimpleNamespace(there=there, target="copy", topic=Topic("topic", "x", 2, False))
    nowhere = SimpleNamespace(there=None, target="none", topic=Topic("none", "x", 2, False))
    places = mirror._empty_partitions([stream, nowhere], {("copy", place): None for place in committed})  # type: ignore[list-item]
    assert places == {("copy", place) for place in empty}
    assert asked == [["copy"] if len(committed) < 2 else []]
