"""Subscriptions and assignments of members are read as Kafka reads them: as far as they must be, whatever follows."""

from types import SimpleNamespace

import pytest

from barnabas.coordinators.groups.consumer_protocol import read_assignment, read_subscription, read_topics
from barnabas.coordinators.groups.expiry import expiring
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.data.consumer_protocol_assignment import CODEC as ASSIGNMENT
from barnabas.wire.generated.data.consumer_protocol_assignment import ConsumerProtocolAssignment
from barnabas.wire.generated.data.consumer_protocol_subscription import CODEC as SUBSCRIPTION
from barnabas.wire.generated.data.consumer_protocol_subscription import ConsumerProtocolSubscription
from barnabas.wire.generated.join_group import JoinGroupRequest

from .test_classic import Harness
from .test_shard import committed, performed

TOPICS = ["t", "u"]
SAID = ConsumerProtocolSubscription(
    topics=TOPICS,
    user_data=b"user data",
    owned_partitions=[ConsumerProtocolSubscription.TopicPartition("t", [0, 1])],
    generation_id=3,
    rack_id="rack",
)
KNOWN_VERSIONS = range(SUBSCRIPTION.max_version + 1)
FIRST_PART = len(SUBSCRIPTION.encode_bytes(SAID, 0))
"""Size of what version 0 has, in bytes; each later version begins with the same."""


def stated(version, body):
    return version.to_bytes(2, "big", signed=True) + body


@pytest.mark.parametrize("body_version", KNOWN_VERSIONS)
@pytest.mark.parametrize(
    "version", [-(1 << 15), -1, *KNOWN_VERSIONS, SUBSCRIPTION.max_version + 1, (1 << 15) - 1]
)
def test_topics_are_known_wherever_what_version_0_has_is_whole(version, body_version):
    body = SUBSCRIPTION.encode_bytes(SAID, body_version) + b"more"
    for size in range(len(body) + 1):
        metadata = stated(version, body[:size])
        if size >= FIRST_PART:
            assert read_topics(metadata) == TOPICS
        else:
            with pytest.raises(DecodeError):
                read_topics(metadata)


@pytest.mark.parametrize("version", KNOWN_VERSIONS)
def test_all_that_a_version_has_is_needed_where_all_is_read(version):
    body = SUBSCRIPTION.encode_bytes(SAID, version)
    for more in (b"", b"more"):
        assert read_subscription(stated(version, body + more)).topics == TOPICS
    with pytest.raises(DecodeError):
        read_subscription(stated(version, body[:-1]))


def test_a_version_to_come_is_read_as_the_newest_one():
    assert read_subscription(stated(9, SUBSCRIPTION.encode_bytes(SAID, 3) + b"more")) == SAID


@pytest.mark.parametrize("version", [*range(ASSIGNMENT.max_version + 1), 9])
@pytest.mark.parametrize("more", [b"", b"more"])
def test_an_assignment_may_be_followed_by_anything(version, more):
    assignment_of_t = ConsumerProtocolAssignment([ConsumerProtocolAssignment.TopicPartition("t", [4])])
    image = SimpleNamespace(topics={"t": SimpleNamespace(id=b"id")})
    data = stated(
        version, ASSIGNMENT.encode_bytes(assignment_of_t, min(version, ASSIGNMENT.max_version)) + more
    )
    assert read_assignment(data, image) == {(b"id", 4)}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_offsets_of_topics_out_of_a_cut_subscription_expire(version):
    h = Harness()
    metadata = stated(version, SUBSCRIPTION.encode_bytes(SAID, 0))
    h.join("a", protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)])
    h.sync("a", 1, a=b"")
    committed(h.shard, "g", ("t", 0), ("gone", 0))
    performed(h.shard, expiring(h.shard, 1 << 50))
    assert set(h.shard.offsets["g"]) == {("t", 0)}
