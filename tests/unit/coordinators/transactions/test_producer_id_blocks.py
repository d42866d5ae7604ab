"""A broker takes from its controller only blocks of producer ids that end by the largest id there is."""

import pytest

from .test_cluster_ports import ids_from

LARGEST = 2**63 - 1


@pytest.mark.parametrize(("first", "taken"), [(LARGEST - 10, True), (LARGEST - 9, False), (LARGEST, False)])
async def test_no_block_passes_the_largest_id(autojump_clock, first, taken):
    async with ids_from((first, 10, 0), (100, 10, 0)) as (ids, _):
        assert await ids.next() == (first if taken else 100)


async def test_a_block_that_overlaps_the_one_before_is_not_taken(autojump_clock):
    async with ids_from((100, 10, 0), (109, 10, 0), (110, 10, 0)) as (ids, _):
        assert [await ids.next() for _ in range(20)] == list(range(100, 120))


@pytest.mark.parametrize("count", [0, -1])
async def test_a_block_of_nothing_is_not_taken(autojump_clock, count):
    async with ids_from((100, count, 0), (200, 1, 0)) as (ids, _):
        assert await ids.next() == 200
