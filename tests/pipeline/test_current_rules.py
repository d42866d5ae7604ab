"""Rules of current rows: which files of events are read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_pipeline.jobs import current


def piece_of(name: str, topic_id: str, *, partition: int = 0, start: int = 10, end: int = 20) -> Any:
    def may_have(wanted: int, first: int, last: int) -> bool:
        assert first < last
        return wanted == partition and first < end and start < last

    return SimpleNamespace(path=name, bounds=SimpleNamespace(topic_id=topic_id), may_have=may_have)


@pytest.mark.parametrize(
    ("ranges", "names"),
    [
        ({0: (10, 20)}, ["mine", "any"]),
        ({0: (19, 30), 1: (0, 5)}, ["mine", "any"]),
        ({0: (20, 30)}, []),
        ({0: (0, 10)}, []),
        ({1: (10, 20)}, ["beside"]),
        ({0: (10, 11), 1: (12, 13)}, ["mine", "any", "beside"]),
        ({0: (15, 15)}, []),
        ({}, []),
    ],
)
def test_only_files_that_may_have_the_events_are_read(
    ranges: dict[int, tuple[int, int]], names: list[str]
) -> None:
    pieces = [
        piece_of("mine", "tid"), piece_of("any", ""), piece_of("before", "old"), piece_of("beside", "tid", partition=1),
    ]  # fmt: skip
    found = current._pieces(SimpleNamespace(pieces=lambda: pieces), "tid", ranges)  # type: ignore[arg-type]
    assert [one.path for one in found] == names
