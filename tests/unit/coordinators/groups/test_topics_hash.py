"""The hash of topics, against numbers that Kafka's own library has given."""

from __future__ import annotations

import struct

import pytest

from barnabas.cluster.metadata.changes import PartitionsAdded, TopicCreated
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.groups.topics import hash_size, signed_xxh3, topics_hash


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 3244421341483603138),
        (3, -4375086123124740706),
        (8, -5148196600006350464),
        (16, -7088041056029983202),
        (100, 7907055600811180334),
        (200, 8963557101830269290),
        (300, -2137649636039927254),
        (1100, 7549713866413696030),
        (5000, 7691739032141375328),
    ],
)
def test_every_length_has_the_hash_of_the_reference(size: int, expected: int) -> None:
    assert signed_xxh3(bytes(n * 7 % 256 for n in range(size))) == expected


def test_a_stream_of_kafkas_library_is_hashed_as_its_bytes() -> None:
    text = "topic".encode("utf-16-le") + struct.pack("<i", 5)
    assert (
        signed_xxh3(b"\0" + struct.pack("<q", 1 << 40) + text + struct.pack("<i", 3)) == -2610483912606215792
    )


def test_only_a_topic_whose_hash_is_not_known_is_gone_through() -> None:
    partition = PartitionInfo(1, (1,), (1,))
    image = ClusterImage("c").apply([TopicCreated(TopicInfo("sized", b"s" * 16, (partition,) * 3))])
    topic = image.topics["sized"]
    assert hash_size(topic, image) == 3
    topics_hash({"sized"}, image)
    assert hash_size(topic, image) == 0
    grown = image.apply([PartitionsAdded("sized", (partition,))])
    assert hash_size(grown.topics["sized"], grown) == 4
