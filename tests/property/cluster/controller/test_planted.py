"""Rules of the controller that are broken on purpose are found by random histories, with few seeds."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from unittest import mock

import pytest

from barnabas.cluster.controller import brokers, deletion, elections, in_sync, partitions, reassignment
from tests.property.cluster.controller.test_histories import History

SEEDS = 500


def _first_online(replicas, now, online, *, unclean, marks_recovery):
    leader = next(filter(online, replicas), None)
    return None if leader is None else now.next_epoch(leader, (leader,))


def _same_epoch(now, leader, isr, *, recovering=None):
    return elections.PartitionState(leader, tuple(isr), now.leader_epoch, 0, now.version, now.recovering)


def _no_steps(*_args, **_named):
    return {}
    yield


_restrict = reassignment._restrict


def _whoever_is_in_sync(core, partition, replicas, *, all_in_sync=False):
    return _restrict(core, partition, replicas)


PLANTED = {
    "anybody is elected": [(elections, "after_loss", _first_online)],
    "an election is no new epoch": [(elections.PartitionState, "next_epoch", _same_epoch)],
    "who is lost stays in sync": [(partitions, "shrink_isr", _no_steps)],
    "a reassignment ends before its target is in sync": [  # looked at twice: before it ends, and by the write that ends it
        (reassignment, "is_complete", lambda *_: True),
        (reassignment, "_restrict", _whoever_is_in_sync),
    ],
    "who is not registered joins the ISR": [(in_sync, "_check_eligible", lambda *_: None)],
    "a broker that comes back is not asked to delete": [(deletion, "brokers_changed", lambda *_: None)],
    "a broker that comes is sent nothing": [(brokers, "announce", _no_steps)],
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_broken_rule_is_found(planted):
    with ExitStack() as patches:
        for holder, name, broken in PLANTED[planted]:
            patches.enter_context(mock.patch.object(holder, name, broken))
        for seed in range(SEEDS):
            with suppress(Exception):
                History(seed).run()
                continue
            return
    pytest.fail(f"{planted}: not found with {SEEDS} seeds")
