"""High watermarks of partitions that other brokers lead: each leader is asked once, again while leaders move."""

import pytest

from barnabas.cluster.metadata.changes import PartitionChanged
from barnabas.cluster.metadata.image import PartitionInfo
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.coordinators.share.attempts import PAUSES
from barnabas.coordinators.share.cluster_high_watermarks import ClusterHighWatermarks
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsResponse
from tests.support.peers import ME, THREE, TWO, ScriptedPeers, cluster, topic

ENDS = {("t", 1): 10, ("t", 2): 20, ("t", 3): 30, ("u", 0): 40}


class Here:
    """Stands for the partitions that this broker leads."""

    async def of(self, topic_partitions):
        return dict.fromkeys(topic_partitions, 5)


def answer_with(code=0):
    def answer(_, request):
        topics = []
        for asked in request.topics:
            partitions = [
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=partition.partition_index,
                    error_code=code,
                    offset=-1 if code else ENDS[asked.name, partition.partition_index],
                )
                for partition in asked.partitions
            ]
            topics.append(
                ListOffsetsResponse.ListOffsetsTopicResponse(name=asked.name, partitions=partitions)
            )
        return ListOffsetsResponse(topics=topics)

    return answer


def asking(metadata, answer):
    peers = ScriptedPeers(answer)
    return ClusterHighWatermarks(metadata, ME, local=Here(), peers=peers, timeout_ms=1000), peers  # type: ignore[arg-type]


def told(results):
    return {place: end.code if isinstance(end, RequestError) else end for place, end in results.items()}


async def test_each_leader_is_asked_once_for_all_of_its_partitions(autojump_clock) -> None:
    metadata = cluster(topic("t", ME, TWO, THREE, TWO), topic("u", TWO))
    ends, peers = asking(metadata, answer_with())
    results = await ends.of([("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0)])
    assert told(results) == {("t", 0): 5, **ENDS}
    asked = dict(peers.asked)
    assert len(peers.asked) == 2
    assert [(topic.name, len(topic.partitions)) for topic in asked[TWO].topics] == [("t", 2), ("u", 1)]
    assert {request.replica_id for request in asked.values()} == {-1}


MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE)


@pytest.mark.parametrize("code", [*MOVED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None], ids=str)
async def test_a_leader_that_moves_is_looked_up_again(code, autojump_clock) -> None:
    metadata = cluster(topic("t", ME, TWO))

    def answer(broker_id, request):
        if broker_id == THREE:
            return answer_with()(broker_id, request)
        metadata.image = metadata.image.apply(
            [PartitionChanged("t", 1, PartitionInfo(THREE, (THREE,), (THREE,), 1))]
        )
        if code is None:
            raise PeerUnavailableError("it is gone")
        return answer_with(code)(broker_id, request)

    ends, peers = asking(metadata, answer)
    assert told(await ends.of([("t", 0), ("t", 1)])) == {("t", 0): 5, ("t", 1): 10}
    assert [broker_id for broker_id, _ in peers.asked] == [TWO, THREE]


async def test_what_stays_unknown_is_said_of_its_partition_alone(autojump_clock) -> None:
    metadata = cluster(topic("t", ME, TWO, -1))
    ends, peers = asking(metadata, answer_with(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert told(await ends.of([("t", 0), ("t", 1), ("t", 2), ("t", 9), ("none", 0)])) == {
        ("t", 0): 5,
        ("t", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("t", 2): ErrorCode.LEADER_NOT_AVAILABLE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert len(peers.asked) == len(PAUSES)


async def test_what_may_not_be_asked_is_not_asked_again(autojump_clock) -> None:
    ends, peers = asking(cluster(topic("t", ME, TWO)), answer_with(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert told(await ends.of([("t", 1)])) == {("t", 1): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert len(peers.asked) == 1


async def test_partition_left_out_of_a_response_is_a_server_error(autojump_clock) -> None:
    ends, _ = asking(cluster(topic("t", ME, TWO)), lambda *_: ListOffsetsResponse(topics=[]))
    assert told(await ends.of([("t", 1)])) == {("t", 1): ErrorCode.UNKNOWN_SERVER_ERROR}
