"""Small parts of the tap: descriptions of interfaces, what a capture has overwritten, answers in a few words."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.tools.tap.rendering import _produced
from barnabas.wire.generated.produce import ProduceResponse


def produced(*parts: tuple[int, int]) -> Any:
    made = [
        ProduceResponse.PartitionProduceResponse(n, code, offset) for n, (code, offset) in enumerate(parts)
    ]
    return ProduceResponse(responses=[ProduceResponse.TopicProduceResponse("t", partition_responses=made)])


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((), []),
        (((0, 7),), ["offset 7"]),
        (((0, 7), (0, 9)), ["2 partitions"]),
        (((6, -1), (0, 9)), ["offset 9"]),
        (((6, -1),), []),
    ],
)
def test_an_append_is_told_by_its_offset_or_its_partitions(parts: tuple[Any, ...], words: list[str]) -> None:
    assert _produced(produced(*parts)) == words
