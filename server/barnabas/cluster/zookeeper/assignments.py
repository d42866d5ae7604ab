"""The assignments of many topics, from their znodes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.registration import until_answered
from barnabas.cluster.zookeeper.session import ZooKeeper
from barnabas.cluster.zookeeper.znodes import TopicAssignment
from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)


async def read_assignments(
    zookeeper: ZooKeeper, topics: Sequence[str], budget: LoopBudget
) -> dict[str, TopicAssignment]:
    """Read the assignments of these topics, by name; other tasks may run between two of them.

    A topic without a znode is omitted, and so is one with an unreadable znode, which is logged. Raises ZooKeeperError.
    """
    paths = [znodes.topic_path(topic) for topic in topics]
    nodes = await until_answered(zookeeper, lambda: zookeeper.get_many(paths))
    assignments = {}
    for topic, node in zip(topics, nodes, strict=True):
        if node is None:
            continue
        try:
            assignments[topic] = znodes.decode_topic(topic, node[0])
        except ZnodeError as error:
            log.error("%s", error)
        await budget.checkpoint()
    return assignments
