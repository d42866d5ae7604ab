"""Znodes that are not as they should be, each with what is wrong with it; and what is written where something is there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.cluster.metadata.changes import PartitionsAdded, TopicCreated, TopicDeleted
from barnabas.cluster.metadata.image import NO_TOPIC_ID, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.zookeeper import acl_znodes, znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.registration import make_persistent
from barnabas.cluster.zookeeper.writes import Truth
from barnabas.security.acls import AccessControlEntry, PatternType, ResourcePattern
from barnabas.security.authorizer import ResourceType
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper

ID, OTHER_ID = b"i" * 16, b"o" * 16
PATTERN = ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, "t")
LED = PartitionInfo(1, (1, 2), (1, 2), 5, 7)
STATE = {"leader": 1, "leader_epoch": 2, "isr": [1], "controller_epoch": 3, "version": 1}
BLOCK = {"version": 1, "broker": 0, "block_start": "1000", "block_end": "1999"}
BROKER = {
    "version": 5, "listener_security_protocol_map": {"A": "PLAINTEXT"}, "endpoints": ["A://h:1"], "host": "h", "port": 1,
}  # fmt: skip
DECODERS: dict[str, Any] = {
    "state": lambda data: znodes.decode_state("t", 0, data),
    "topic": lambda data: znodes.decode_topic("t", data),
    "producer ids": znodes.decode_producer_ids,
    "broker": lambda data: znodes.decode_broker(1, data),
    "cluster id": znodes.decode_cluster_id,
}


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("state", STATE | {"isr": [1, "2"]}, '"isr" must be a list of broker ids'),
        ("state", STATE | {"isr": [True]}, '"isr" must be a list of broker ids'),
        ("state", STATE | {"isr": [-2]}, '"isr" must be a list of broker ids'),
        ("state", STATE | {"isr": [2**31]}, '"isr" must be a list of broker ids'),
        ("state", STATE | {"isr": None}, '"isr" is missing'),
        ("state", STATE | {"leader": "x"}, '"leader" must be an integer'),
        ("state", STATE | {"leader": True}, '"leader" must be an integer'),
        ("state", STATE | {"leader": "9" * 20}, '"leader" must be an integer'),
        ("state", STATE | {"leader": 2**31}, '"leader" must be an integer of 32 bits'),
        ("state", STATE | {"leader": -(2**31) - 1}, '"leader" must be an integer of 32 bits'),
        ("state", [], "a JSON object is expected, not list"),
        ("topic", {"version": 0, "partitions": {}}, '"version" must be from 1 to 3'),
        ("topic", {"version": 3, "partitions": []}, '"partitions" must be an object'),
        ("topic", {"version": 3, "partitions": {"x": [1]}}, "'x' is not"),
        ("topic", {"version": 3, "partitions": {"-1": [1]}}, "'-1' is not"),
        ("topic", {"version": 3, "partitions": {"99999999": [1]}}, "'99999999' is not"),
        ("topic", {"version": 3, "partitions": {}, "topic_id": "?"}, '"topic_id" must be an id of a topic'),
        ("producer ids", BLOCK | {"block_end": "999"}, '"block_end" must be from block_start on'),
        ("producer ids", BLOCK | {"block_start": "-1"}, '"block_end" must be from block_start on'),
        ("broker", BROKER | {"endpoints": ["A:h:1"]}, '"endpoints" must be like LISTENER'),
        ("broker", BROKER | {"endpoints": ["A://h"]}, '"endpoints" must be like LISTENER'),
        ("broker", BROKER | {"endpoints": ["A://h:x"]}, '"endpoints" must be like LISTENER'),
        ("broker", BROKER | {"endpoints": ["A://h:65536"]}, '"endpoints" must be like LISTENER'),
        ("broker", BROKER | {"endpoints": ["B://h:1"]}, '"endpoints" must be like LISTENER'),
        ("broker", BROKER | {"endpoints": [1]}, '"endpoints" must be a list of texts'),
        ("broker", BROKER | {"rack": 1}, '"rack" must be a text'),
        ("cluster id", {"version": "1", "id": ""}, '"id" must be the cluster\'s id'),
    ],
)
def test_a_znode_is_refused_for_what_is_wrong_with_it(kind: str, value: Any, why: str) -> None:
    with pytest.raises(ZnodeError) as caught:
        DECODERS[kind](json.dumps(value).encode())
    assert why in str(caught.value)


# --- what is there already ----------------------------------------------------------------------------------------


async def test_a_znode_is_made_once() -> None:
    session = SimulatedZooKeeper().session()
    assert await make_persistent(session, "/a/b", b"first")
    assert not await make_persistent(session, "/a/b", b"second")
    assert (await session.get("/a/b"))[0] == b"first"


def acl(principal: str) -> AccessControlEntry:
    allowed = {"principal": principal, "permissionType": "Allow", "operation": "Read", "host": "*"}
    (entry,) = acl_znodes.entries_of(PATTERN, json.dumps({"version": 1, "acls": [allowed]}).encode())[0]
    return entry


def test_acls_of_a_znode_are_added_and_removed() -> None:
    first, other = acl("User:a"), acl("User:b")
    data = acl_znodes.updated(PATTERN, None, {first: True})
    assert data is not None
    assert acl_znodes.updated(PATTERN, data, {first: True}) is data
    assert acl_znodes.updated(PATTERN, data, {other: False}) is data
    assert acl_znodes.updated(PATTERN, data, {first: False}) is None
    assert acl_znodes.updated(PATTERN, None, {first: False}) is None
    both = acl_znodes.updated(PATTERN, data, {other: True})
    assert both is not None
    assert acl_znodes.entries_of(PATTERN, both)[0] == [first, other]
    other_only = acl_znodes.updated(PATTERN, None, {other: True})
    assert acl_znodes.updated(PATTERN, both, {first: False, other: True}) == other_only


def topic(*partitions: PartitionInfo, id: bytes = ID) -> TopicInfo:
    return TopicInfo("t", id, partitions)


@pytest.mark.parametrize(
    ("image_topic", "true_topic", "changes"),
    [
        (None, None, []),
        (None, topic(LED), [TopicCreated(topic(LED))]),
        (topic(LED), None, [TopicDeleted("t")]),
        (topic(LED), topic(LED), []),
        (topic(LED, LED), topic(LED), []),
        (topic(LED), topic(LED, LED), [PartitionsAdded("t", (LED,))]),
        (topic(LED), topic(LED, id=OTHER_ID), [TopicDeleted("t"), TopicCreated(topic(LED, id=OTHER_ID))]),
        (topic(LED), topic(LED, id=NO_TOPIC_ID), []),
    ],
)
def test_an_image_is_made_to_agree_with_what_was_found(
    image_topic: TopicInfo | None, true_topic: TopicInfo | None, changes: list[Any]
) -> None:
    image = ClusterImage("c").apply([TopicCreated(image_topic)] if image_topic else [])
    truth = Truth({"t": true_topic})
    assert list(truth.changes(image)) == changes
    after = image.apply(changes)
    truth.forget_known(after)
    assert truth.topics == {}
    if true_topic is not None and image_topic is not None and changes:
        truth.topics = {"t": true_topic}
        truth.forget_known(image)
        assert truth.topics == {"t": true_topic}  # the image knows less, or another one
