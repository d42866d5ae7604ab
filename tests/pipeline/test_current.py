"""Tables of current rows: what a dict would have, whatever portions the events come in and wherever a run dies."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from barnabas_pipeline import faults
from barnabas_pipeline.lake.changes import Shape

from .changing import (
    BY_ID,
    BY_RECORD_KEY,
    CHANGES,
    PAIRS,
    Event,
    Topic,
    current,
    envelopes,
    pairs,
    rows_of,
    truth,
)
from .tables import local_place

POINTS = [name for name in faults.POINTS if name.startswith("current.")]


class DiedError(Exception):
    """A process was killed."""


def topic(tmp_path: Path, schema: Any, *partitions: list[Event]) -> Topic:
    return Topic(local_place(tmp_path), schema, list(partitions))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("schema", "shape", "made"),
    [(PAIRS, BY_RECORD_KEY, pairs), (CHANGES, BY_ID, envelopes)],
    ids=["plain", "debezium"],
)
@pytest.mark.parametrize("seed", range(6))
def test_rows_are_those_of_a_dict_wherever_a_run_dies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    schema: Any,
    shape: Shape,
    made: Any,
    count: int,
) -> None:
    """Keys are in all partitions at random, and times go back; each run may die at any step, and the next goes on."""
    rng = random.Random(f"{seed} {count} {schema.name}")
    source = topic(tmp_path, schema, *(made(rng, 60, 8, skew=True) for _ in range(count)))
    ends = dict.fromkeys(range(count), 0)
    died = []
    while any(ends[n] < len(source.partitions[n]) for n in ends):
        ends = {n: min(len(source.partitions[n]), ends[n] + rng.choice([0, 1, 9, 25])) for n in ends}
        source.load(ends)
        point = rng.choice([*POINTS, ""])

        def die(name: str, point: str = point) -> None:
            if name == point:
                raise DiedError(name)

        with monkeypatch.context() as patch:
            patch.setattr(faults, "point", die)
            try:
                current(source, shape).round()
            except DiedError:
                died.append(point)
        found = current(source, shape)
        found.round()
        assert rows_of(found) == truth(one[: ends[n]] for n, one in enumerate(source.partitions)), (
            f"seed {seed}"
        )
        assert not current(source, None).round(), "there is nothing more to apply"
    assert found.check().differences == 0
    assert found.table.applied.ends == ends
    assert found.table.applied.version <= found.events.state().version
    again = current(source, None, rebuild=True)
    again.round()
    assert rows_of(again) == rows_of(found)
    assert again.check().differences == 0
