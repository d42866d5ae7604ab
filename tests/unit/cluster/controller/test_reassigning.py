"""Reassignments and topics: each refusal with its reason, and what brokers are told."""

from __future__ import annotations

import pytest

from barnabas.cluster.controller import reassignment, topics
from barnabas.cluster.controller.single_node import EmbeddedController
from barnabas.cluster.controller.state import Assignment, Deletion, PartitionState
from barnabas.cluster.controller.steps import WriteAssignment
from barnabas.cluster.metadata.ports import ElectionType
from barnabas.errors import RequestError
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from tests.support.controller_steps import ID, Shell, T, cluster

# --- reassignments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((1, 2, 4), 0),
        ((3, 2, 1), 0),
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1, 1, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2, 5), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        ((1, 2, 3, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
@pytest.mark.parametrize("keeps_factor", [True, False])
def test_a_reassignment_is_refused_with_its_reason(
    target: tuple[int, ...] | None, code: int, keeps_factor: bool
) -> None:
    core = cluster()
    if code == ErrorCode.INVALID_REPLICATION_FACTOR and not keeps_factor:
        code = 0
    results = Shell(core).run(reassignment.alter(core, {T: target}, keeps_factor=keeps_factor))
    assert (results[T].code if results[T] else 0) == code
    assert core.state.assignments["t"][0].is_reassigned is (not code and target not in ((3, 2, 1), (1, 2)))


# --- topics -------------------------------------------------------------------------------------------------------


def test_a_topic_gets_partitions_but_not_while_it_is_deleted() -> None:
    core = cluster()
    shell = Shell(core)
    more = {0: Assignment((1, 2, 3)), 1: Assignment((2, 3))}
    shell.run(topics.partitions_changed(core, "u", more))
    shell.run(topics.partitions_changed(core, "t", {0: Assignment((3,))}))
    assert shell.steps == []
    assert core.state.assignments["t"][0] == Assignment((1, 2, 3))
    core.state.deletions["t"] = Deletion()
    shell.run(topics.partitions_changed(core, "t", more))
    assert shell.steps == [WriteAssignment("t", ID, {0: Assignment((1, 2, 3))})]
    assert list(core.state.assignments["t"]) == [0]
    core.state.deletions.clear()
    shell.run(topics.partitions_changed(core, "t", more))
    assert core.state.states["t", 1] == PartitionState(2, (2, 3), 0, 7, 1)


# --- a broker that is a cluster by itself -------------------------------------------------------------------------


class Alone:
    """Replicas of which some are offline, and log dirs of which some are lost."""

    def __init__(self, code: int, *, is_lost: bool) -> None:
        self.code = code
        self.is_lost = is_lost
        self.begun: list[tuple[str, int]] = []

    def leader(self, topic: str, index: int) -> object:
        if self.code:
            raise RequestError(ErrorCode(self.code), "why")
        return self

    async def begin_again(self, topic: str, index: int) -> bool:
        self.begun.append((topic, index))
        return self.is_lost


@pytest.mark.parametrize(
    ("code", "is_lost", "election", "result"),
    [
        (0, True, ElectionType.PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
        (0, True, ElectionType.UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            True,
            ElectionType.UNCLEAN,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            ErrorCode.KAFKA_STORAGE_ERROR,
            True,
            ElectionType.PREFERRED,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ),
        (ErrorCode.KAFKA_STORAGE_ERROR, True, ElectionType.UNCLEAN, 0),
        (
            ErrorCode.KAFKA_STORAGE_ERROR,
            False,
            ElectionType.UNCLEAN,
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ),
    ],
)
async def test_alone_only_what_is_lost_is_elected(
    code: int, is_lost: bool, election: ElectionType, result: int
) -> None:
    alone = Alone(code, is_lost=is_lost)
    controller = EmbeddedController(None, alone, alone, LoopBudget())  # type: ignore[arg-type]
    error = (await controller.elect_leaders(election, [("t", 3)], 0))["t", 3]
    assert (error.code if error is not None else 0) == result
    is_unclean = election is ElectionType.UNCLEAN and code == ErrorCode.KAFKA_STORAGE_ERROR
    assert alone.begun == ([("t", 3)] if is_unclean else [])


async def test_alone_no_other_broker_is_served() -> None:
    alone = Alone(0, is_lost=False)
    controller = EmbeddedController(None, alone, alone, LoopBudget())  # type: ignore[arg-type]
    assert controller.is_active
    assert await controller.reassignments(None) == {}
    for ask in (
        controller.alter_partitions(1, 1, []),
        controller.allocate_producer_ids(1, 1),
        controller.controlled_shutdown(1, 1),
    ):
        with pytest.raises(RequestError) as caught:
            await ask
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
