"""Plans of writes to ZooKeeper for changes of the metadata, with znodes that a test specifies."""

from __future__ import annotations

from barnabas.cluster.metadata.image import Change, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper import writes, znodes
from barnabas.cluster.zookeeper.session import Operation, Stat
from barnabas.cluster.zookeeper.writes import Plan, Planner
from barnabas.cluster.zookeeper.znodes import ReplicaAssignment, TopicAssignment

ID, OTHER_ID = b"i" * 16, b"o" * 16
EMPTY = ClusterImage("c")
NONE = b'{"version":1,"config":{}}'
TOPIC_PATH, DELETE_PATH, CONFIG_PATH = (
    znodes.topic_path("t"),
    znodes.delete_topic_path("t"),
    "/config/topics/t",
)


def info(*replicas: int) -> PartitionInfo:
    return PartitionInfo(replicas[0], replicas, replicas)


def topic(*partitions: PartitionInfo, id: bytes = ID, name: str = "t") -> TopicInfo:
    return TopicInfo(name, id, partitions)


def kept(*replicas: tuple[int, ...], id: bytes | None = ID) -> bytes:
    parts = {index: ReplicaAssignment(ids) for index, ids in enumerate(replicas)}
    return znodes.encode_topic(TopicAssignment(parts, id))


def read(*replicas: tuple[int, ...], id: bytes = ID) -> TopicInfo:
    """Return a topic as read from its znode."""
    return TopicInfo("t", id, tuple(PartitionInfo(-1, ids, ()) for ids in replicas))


def found(**data: bytes) -> dict[str, tuple[bytes, Stat] | None]:
    """Return the znodes of topic `t`, with version 4; those without data are None, as they do not exist."""
    paths = {"topic": TOPIC_PATH, "delete": DELETE_PATH, "config": CONFIG_PATH, "ids": znodes.PRODUCER_IDS}
    return {path: (data[name], Stat(4, 1)) if name in data else None for name, path in paths.items()}


def planned(
    changes: list[Change], there: writes.Found, image: ClusterImage = EMPTY, *, has_topic_ids: bool = True
) -> Plan:
    planner = Planner(image, there, 7, has_topic_ids=has_topic_ids)
    for change in changes:
        planner.add(change)
    for _ in planner.steps():
        pass
    return planner.plan


def operations(plan: Plan) -> list[Operation]:
    return [operation for part in plan.parts for operation in part]


def config(**settings: str) -> bytes:
    return resources.encode_config(settings)
