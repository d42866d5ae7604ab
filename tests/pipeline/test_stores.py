"""The lake in an object store that errs, is slow, and loses answers after it has done what it was asked to."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.lake.iceberg import Lake, Place
from barnabas_pipeline.lake.table import ConflictError, Table
from barnabas_pipeline.lake.vacuum import find_orphans

from .stores import BUCKET, FailingS3
from .tables import load, scan, staged, versions
from .using import STEPS, die_at, use_lake


@pytest.fixture
def place(s3: FailingS3, tmp_path: Path) -> Place:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", **s3.properties}
    return Lake(f"s3://{BUCKET}/{tmp_path.name}", properties=tuple(properties.items())).place("logins")


def test_all_that_a_local_lake_does_is_done_in_a_store(s3: FailingS3, place: Place) -> None:
    use_lake(place)
    assert (
        sum("/_ledger/" in key for key in s3.objects() if key.startswith(place.location.split("/")[3])) == 3
    )


@pytest.mark.parametrize("what", ["error", "lost", "error after", "slow"])
@pytest.mark.parametrize("seed", range(2))
def test_a_store_that_fails_now_and_then_costs_nothing(
    s3: FailingS3, place: Place, what: str, seed: int
) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    load(place, 10)
    with s3.failing(lambda method, path: what if draw.random() < 0.3 else "") as failed:
        for _ in range(4):
            with suppress(IncompleteError, OSError):  # a job ends with exit code 2, and is run again
                load(place, 10)
    loaded = Table(place).state().ends[0]
    assert failed
    assert scan(place) == list(range(loaded))
    load(place, 5)
    assert scan(place) == list(range(loaded + 5))
    entries = Table(place).entries()
    assert [entry.partitions["0"].start for entry in entries[1:]] == [
        entry.partitions["0"].end for entry in entries[:-1]
    ]


@pytest.mark.parametrize("part", ["/_ledger/", "/data/", "/metadata/"])
@pytest.mark.parametrize("what", ["error", "lost", "error after"])
def test_store_that_refuses_objects_ends_a_load_that_can_resume(
    s3: FailingS3, place: Place, what: str, part: str
) -> None:
    load(place, 10)

    def rule(method: str, path: str) -> str:
        return what if method in ("PUT", "POST") and part in path else ""

    with s3.failing(rule) as failed, pytest.raises((IncompleteError, OSError)):
        load(place, 10)
    assert failed
    assert scan(place) == list(range(10))
    load(place, 10)
    assert scan(place) == list(range(20))
    assert versions(place) == ["1", "2"]


def test_one_of_two_writers_wins_despite_slow_listings(s3: FailingS3, place: Place) -> None:
    load(place, 10)
    table = Table(place)
    entry = staged(table, 10)
    with s3.failing(lambda method, path: "slow"):
        load(place, 7)
        with pytest.raises(ConflictError):
            table.commit(entry)
        assert {piece.path for piece in Table(place).pieces()}.isdisjoint(find_orphans(Table(place), -1))
    assert scan(place) == list(range(17))


@pytest.mark.parametrize(("point", "is_committed"), STEPS.items())
def test_a_writer_that_dies_leaves_objects_that_nobody_names(
    s3: FailingS3, place: Place, point: str, is_committed: bool
) -> None:
    die_at(place, point, is_committed=is_committed)
