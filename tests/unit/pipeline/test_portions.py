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
def test_shares_are_fair_and_leave_nothing_over(wanted: list[int], total: int) -> None:
    shares = share(wanted, total)
    hungry = sum(want > 0 for want in wanted)
    assert sum(shares) == min(sum(wanted), max(total, hungry))
    assert all(0 <= mine <= want for mine, want in zip(shares, wanted, strict=True))
    assert all(mine > 0 for mine, want in zip(shares, wanted, strict=True) if want)
    unsatisfied = [mine for mine, want in zip(shares, wanted, strict=True) if mine < want]
    if unsatisfied:
        assert max(shares) <= min(unsatisfied) + 1, "nobody has more than one who wants more, but for a rest"


@given(SIZES, st.integers(1, 20))
def test_bins_have_all_items_once_and_similar_sizes(sizes: list[int], count: int) -> None:
    found = bins([*enumerate(sizes)], count, lambda one: one[1])
    assert sorted(item for one in found for item in one) == [*enumerate(sizes)]
    assert len(found) == min(count, len(sizes))
    assert all(found)
    fills = [sum(max(1, size) for _, size in one) for one in found]
    largest = max((max(1, size) for size in sizes), default=0)
    assert max(fills, default=0) - min(fills, default=0) <= largest


@given(SIZES, st.integers(1, 100_000))
def test_a_portion_of_many_partitions_has_something_of_each(sizes: list[int], total: int) -> None:
    ranges = [OffsetRange(n, 5, 5 + size) for n, size in enumerate(sizes)]
    made = shorten(ranges, total)
    assert [(one.partition, one.start) for one in made] == [(n, 5) for n in range(len(sizes))]
    assert all(min(size, 1) <= len(one) <= size for one, size in zip(made, sizes, strict=True))
    hungry = sum(map(bool, sizes))
    assert sum(map(len, made)) == max(min(total, sum(sizes)), hungry)


def test_a_portion_is_shared_by_how_much_there_is() -> None:
    def shares(sizes: list[int], total: int) -> list[int]:
        return [len(one) for one in shorten([OffsetRange(n, 0, size) for n, size in enumerate(sizes)], total)]

    assert shares([100, 300], 40) == [10, 30]
    assert shares([2_000_000_000, 4], 2_000_000) == [1_999_999, 1], "a large backlog starves nobody"
    assert shares([3, 3, 3], 2) == [1, 1, 1]
    assert shares([3, 0, 4], 7) == [3, 0, 4]
    assert shares([10, 11], 7) == [3, 4]
