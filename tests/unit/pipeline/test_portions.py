"""Fair portions of topics in a round, and bins of tasks: properties of both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas_pipeline.jobs.portions import bins, share
from barnabas_pipeline.log.model import OffsetRange
from barnabas_pipeline.log.planning import shorten

SIZES = st.lists(st.integers(0, 10_000), max_size=50)


def test_small_demands_are_met_and_the_rest_shared_evenly() -> None:
    assert share([1_000_000, 10, 0, 400], 1000) == [590, 10, 0, 400]
    assert share([900, 900, 10], 100) == [45, 45, 10]
    assert share([5, 5, 5], 1) == [1, 1, 1]
    assert share([], 10) == []


@given(SIZES, st.integers(0, 100_000))
def test_shares_are_fair_and_leave_nothing_over(wants: list[int], total: int) -> None:
    shares = share(wants, total)
    hungry = sum(want > 0 for want in wants)
    assert sum(shares) == min(sum(wants), max(total, hungry))
    assert all(0 <= mine <= want for mine, want in zip(shares, wants, strict=True))
    assert all(mine > 0 for mine, want in zip(shares, wants, strict=True) if want)
    unsatisfied = [mine for mine, want in zip(shares, wants, strict=True) if mine < want]
    if unsatisfied:
        assert max(shares) <= min(unsatisfied) + 1, "nobody has more than one who wants more, but for a rest"


@given(SIZES, st.integers(1, 20))
def test_bins_have_all_items_once_and_similar_sizes(sizes: list[int], count: int) -> None:
    filled = bins([*enumerate(sizes)], count, lambda item: item[1])
    assert sorted(item for bin_ in filled for item in bin_) == [*enumerate(sizes)]
    assert len(filled) == min(count, len(sizes))
    assert all(filled)
    fills = [sum(max(1, size) for _, size in bin_) for bin_ in filled]
    largest = max((max(1, size) for size in sizes), default=0)
    assert max(fills, default=0) - min(fills, default=0) <= largest


@given(SIZES, st.integers(1, 100_000))
def test_a_portion_of_many_partitions_has_something_of_each(sizes: list[int], total: int) -> None:
    ranges = [OffsetRange(n, 5, 5 + size) for n, size in enumerate(sizes)]
    portion = shorten(ranges, total)
    assert [(part.partition, part.start) for part in portion] == [(n, 5) for n in range(len(sizes))]
    assert all(min(size, 1) <= len(part) <= size for part, size in zip(portion, sizes, strict=True))
    hungry = sum(map(bool, sizes))
    assert sum(map(len, portion)) == max(min(total, sum(sizes)), hungry)


def test_a_portion_is_shared_by_how_much_there_is() -> None:
    def shares(sizes: list[int], total: int) -> list[int]:
        return [len(row) for row in shorten([OffsetRange(n, 0, size) for n, size in enumerate(sizes)], total)]

    assert shares([100, 300], 40) == [10, 30]
    assert shares([2_000_000_000, 4], 2_000_000) == [1_999_999, 1], "a large backlog starves nobody"
    assert shares([3, 3, 3], 2) == [1, 1, 1]
    assert shares([3, 0, 4], 7) == [3, 0, 4]
    assert shares([10, 11], 7) == [3, 4]
