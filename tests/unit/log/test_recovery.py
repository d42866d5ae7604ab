"""Recovery sorts the files that a crash leaves."""

import pytest

from barnabas.log.recovery.plan import (
    Rename,
    first_to_check,
    plan_leftovers,
    plan_swap,
    stray_snapshots,
    take_inventory,
)


def name(base: int, rest: str) -> str:
    return f"{base:020d}{rest}"


def test_deleted_and_unfinished_files_are_rubbish():
    rubbish = [
        name(0, ".log.deleted"), name(7, ".snapshot.deleted"), name(5, ".log.cleaned"), name(3, ".log.cleaned"), "x.tmp",
        name(3, ".log.swap"), name(9, ".index.swap"),
    ]  # fmt: skip
    kept = [name(2, ".log.swap"), name(0, ".log"), "leader-epoch-checkpoint", "partition.metadata"]
    plan = plan_leftovers(rubbish + kept)
    assert sorted(plan.remove) == sorted(rubbish)
    assert (plan.swapped_logs, plan.swap_files) == ([2], [name(2, ".log.swap")])


def test_an_interrupted_swap_is_finished():
    files = [
        name(0, ".log"), name(0, ".index"),
        name(10, ".log"), name(10, ".index"), name(10, ".snapshot"),
        name(20, ".log"),
        name(0, ".log.swap"), name(0, ".index.swap"), name(0, ".timeindex.swap"),
    ]  # fmt: skip
    plan = plan_leftovers(files)
    remove, renames = plan_swap(files, plan, [(0, 15)])
    assert remove == sorted(files[:5])
    assert renames == [
        Rename(name(0, f".{kind}.swap"), name(0, f".{kind}")) for kind in ("index", "log", "timeindex")
    ]


def test_index_files_whose_log_was_swapped_in_already_follow_it():
    files = [name(0, ".log"), name(0, ".index.swap"), name(5, ".log")]
    plan = plan_leftovers(files)
    remove, renames = plan_swap(files, plan, [])
    assert remove == []
    assert renames == [Rename(name(0, ".index.swap"), name(0, ".index"))]


def test_nothing_to_swap():
    assert plan_swap([name(0, ".log")], plan_leftovers([name(0, ".log")]), []) == ([], [])


def test_the_inventory_is_in_order_and_names_orphans():
    files = [
        name(20, ".log"), name(20, ".index"), name(20, ".timeindex"), name(20, ".txnindex"),
        name(3, ".log"), name(5, ".index"), name(20, ".snapshot"), name(4, ".snapshot"), "other",
    ]  # fmt: skip
    inventory = take_inventory(files)
    assert [segment.base_offset for segment in inventory.segments] == [3, 20]
    assert [segment.has_indexes for segment in inventory.segments] == [False, True]
    assert [segment.has_txn_index for segment in inventory.segments] == [False, True]
    assert (inventory.snapshots, inventory.orphans) == ([4, 20], [name(5, ".index")])


@pytest.mark.parametrize(("recovery_point", "first"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (1_000, 2)])
def test_checks_begin_with_the_segment_of_the_recovery_point(recovery_point, first):
    assert first_to_check([0, 10, 20], recovery_point, is_clean=False) == first
    assert first_to_check([0, 10, 20], recovery_point, is_clean=True) == 3
    assert first_to_check([], recovery_point, is_clean=False) == 0


@pytest.mark.parametrize(
    ("snapshots", "strays"),
    [
        ([0, 10, 20], []),
        ([20, 25], []),
        ([5, 10, 25], [5]),
        ([5, 22, 25], [5, 22]),
        ([5, 15], [5, 15]),
        ([], []),
    ],
)
def test_only_snapshots_that_something_begins_with_are_kept(snapshots, strays):
    assert stray_snapshots(snapshots, [0, 10, 20]) == strays
