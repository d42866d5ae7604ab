"""Wait of a broker, after an unclean shutdown, until others have taken over the partitions in which it was in sync.

The rule: a broker that may have lost the end of a log must neither lead it nor count as in sync while a live broker has
all of it. The controller ensures that when it notices the absence of a broker, but not if the broker returns too
soon. So the broker registers only when it is in no ISR with other live brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.assignments import read_assignments
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.registration import until_answered
from barnabas.cluster.zookeeper.session import NoNodeError, ZooKeeper

if TYPE_CHECKING:
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
WAIT_SECONDS = 60.0


async def wait_for_successors(
    zookeeper: ZooKeeper, broker_id: int, budget: LoopBudget, *, wait_seconds: float = WAIT_SECONDS
) -> bool:
    """Wait until this broker, which is not registered, is in no ISR with other live brokers.

    Returns whether that was achieved. The content of its log dirs does not matter: all of it may be lost. If no other
    broker of an ISR is registered, none can take over. Raises ZooKeeperError.
    """
    with trio.move_on_after(wait_seconds):
        partitions = await _assigned(zookeeper, broker_id, budget)
        while await _is_needed(zookeeper, broker_id, partitions):
            await trio.sleep(POLL_SECONDS)
        return True
    log.warning(
        "no broker has taken over from this one, which was not stopped cleanly, within %d s: what it had written, and a "
        "power cut has taken back, is lost if it leads again", wait_seconds,
    )  # fmt: skip
    return False


async def _assigned(zookeeper: ZooKeeper, broker_id: int, budget: LoopBudget) -> list[TopicPartition]:
    """The partitions that this broker has replicas of."""
    try:
        topics = await until_answered(zookeeper, lambda: zookeeper.children(znodes.TOPICS))
    except NoNodeError:
        return []
    assigned = []
    for topic, assignment in (await read_assignments(zookeeper, topics, budget)).items():
        partitions = assignment.partitions.items()
        assigned += [(topic, index) for index, partition in partitions if broker_id in partition.replicas]
        await budget.checkpoint()
    return assigned


async def _is_needed(zookeeper: ZooKeeper, broker_id: int, partitions: Sequence[TopicPartition]) -> bool:
    """Return whether this broker and another live one are in one ISR."""
    try:
        names = await until_answered(zookeeper, lambda: zookeeper.children(znodes.BROKER_IDS))
    except NoNodeError:
        return False
    others = {int(name) for name in names if name.isdecimal()} - {broker_id}
    if not others:
        return False
    paths = [znodes.state_path(*partition) for partition in partitions]
    for partition, node in zip(
        partitions, await until_answered(zookeeper, lambda: zookeeper.get_many(paths)), strict=True
    ):
        if node is None:
            continue
        try:
            state = znodes.decode_state(*partition, node[0])
        except ZnodeError as error:
            log.error("%s", error)
            continue
        if broker_id in state.isr and not others.isdisjoint(state.isr):
            return True
    return False
