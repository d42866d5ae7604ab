"""A cluster of three brokers as one of them sees it, and scripted answers of the others."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.cluster.metadata.changes import BrokerRegistered, TopicCreated
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.peers import VersionedRequest
from tests.support.clusters import StandingImage

ME, TWO, THREE = 1, 2, 3


def topic(name: str, *leaders: int) -> TopicCreated:
    partitions = tuple(PartitionInfo(leader, (leader,), (leader,)) for leader in leaders)
    return TopicCreated(TopicInfo(name, name.encode().rjust(16), partitions))


def cluster(*topics: TopicCreated) -> StandingImage:
    brokers = [BrokerRegistered(BrokerInfo(n, None, {}, epoch=n * 10)) for n in (ME, TWO, THREE)]
    return StandingImage(ClusterImage("c").apply([*brokers, *topics]))


class ScriptedPeers:
    """Stands for `Peers`: returns the response `answer(broker_id, request)`, once `may_answer` is set."""

    def __init__(self, answer, version: int = 5) -> None:
        self.answer = answer
        self.version = version
        self.asked: list[tuple[int, Any]] = []
        self.may_answer = trio.Event()
        self.may_answer.set()

    async def ask(self, broker_id, request, **options):
        if isinstance(request, VersionedRequest):
            request = request.make(self.version)
        self.asked.append((broker_id, request))
        await self.may_answer.wait()
        return self.answer(broker_id, request)

    async def ask_controller(self, request, **options):
        return await self.ask(0, request)
