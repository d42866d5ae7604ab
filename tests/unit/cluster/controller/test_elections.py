"""Only replicas in sync and online are elected, in the order of the assignment: all small cases."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from barnabas.cluster.controller import elections
from barnabas.cluster.controller.state import Assignment, PartitionState

REPLICAS = (3, 1, 2)


def subsets(items):
    return chain.from_iterable(combinations(items, size) for size in range(len(items) + 1))


def cases():
    for isr in subsets(REPLICAS):
        for alive in subsets(REPLICAS):
            for leader in (-1, *REPLICAS):
                yield PartitionState(leader, isr, leader_epoch=4, version=8), frozenset(alive)


@pytest.mark.parametrize("unclean", [False, True])
def test_after_a_loss_the_first_in_sync_leads(unclean):
    for now, alive in cases():
        new = elections.after_loss(REPLICAS, now, alive.__contains__, unclean=unclean, marks_recovery=True)
        able = [id_ for id_ in REPLICAS if id_ in alive and id_ in now.isr]
        anybody = [id_ for id_ in REPLICAS if id_ in alive]
        if able:
            assert new is not None
            assert (new.leader, set(new.isr), new.recovering) == (able[0], set(able), False)
        elif unclean and anybody:
            assert new is not None
            assert (new.leader, new.isr, new.recovering) == (anybody[0], (anybody[0],), True)
        else:
            assert new is None
        assert new is None or (new.leader_epoch, new.version) == (5, 8)


def test_whoever_was_away_is_out_of_sync_unless_all_were():
    for now, alive in cases():
        for stayed in map(frozenset, subsets(sorted(alive))):
            new = elections.after_absence(REPLICAS, now, alive.__contains__, stayed.__contains__)
            able = (stayed if stayed & set(now.isr) else alive) & set(now.isr)
            if not able:
                assert new is now
                continue
            assert (set(new.isr), new.leader_epoch, new.version) == (able, 5, 8)
            first = next(id_ for id_ in REPLICAS if id_ in able)
            assert new.leader == (now.leader if now.leader in able else first)


def test_only_the_first_replica_is_preferred():
    for now, alive in cases():
        new = elections.preferred(REPLICAS, now, alive.__contains__)
        if 3 in now.isr and 3 in alive:
            assert new is not None
            assert (new.leader, new.isr) == (3, now.isr)
        else:
            assert new is None


def test_at_the_end_of_a_reassignment_only_the_target_is_in_sync():
    for now, alive in cases():
        for target in subsets(REPLICAS):
            new = elections.restricted(target, now, alive.__contains__)
            isr = tuple(id_ for id_ in now.isr if id_ in target)
            if not isr:
                assert new is None
                continue
            assert new is not None
            assert new.isr == isr
            able = [id_ for id_ in target if id_ in isr and id_ in alive]
            assert new.leader == (now.leader if now.leader in able else able[0] if able else -1)


def test_at_a_controlled_shutdown_another_one_in_sync_leads():
    for now, alive in cases():
        for leaving in subsets(REPLICAS):
            new = elections.controlled_shutdown(REPLICAS, now, alive.__contains__, leaving)
            able = [id_ for id_ in REPLICAS if id_ in alive and id_ in now.isr and id_ not in leaving]
            assert (new is None) is (not able)
            if new is not None:
                assert new.leader == able[0]
                assert not set(new.isr) & set(leaving)


def test_who_is_lost_leaves_the_isr_unless_nobody_would_be_left():
    for now, alive in cases():
        new = elections.without_replicas(now, alive.__contains__)
        in_sync = tuple(id_ for id_ in now.isr if id_ in alive)
        assert new.isr == (in_sync or now.isr)
        assert new.leader == (now.leader if now.leader in alive else -1)
        assert new.leader_epoch == now.leader_epoch + (new is not now)


@pytest.mark.parametrize("target", [(4, 5, 6), (3, 4), (1,), (2, 3, 1)])
def test_a_reassignment_says_what_comes_and_what_goes(target):
    begun = Assignment((1, 2, 3)).reassigned_to(target)
    assert begun.replicas[: len(target)] == target
    assert set(begun.origin) == {1, 2, 3}
    assert begun.target == target
    again = begun.reassigned_to((1, 7))
    assert (set(again.origin), again.target) == ({1, 2, 3}, (1, 7))
    back = begun.reassigned_to(begun.origin)
    assert not back.is_reassigned
