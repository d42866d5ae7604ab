"""Decisions about topics and tokens, each refusal with its code, and what changes do to an image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.cluster import controller
from barnabas.cluster.access_changes import DelegationTokenChanged
from barnabas.cluster.changes import (
    BrokerRegistered,
    ConfigChanged,
    EpochBegun,
    LogDirsRegistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.creation import NewTopic, create_topics
from barnabas.cluster.delegation_tokens import DelegationTokens
from barnabas.cluster.encoding import changes_of, decode_line, encode, encode_line
from barnabas.cluster.image import (
    NO_TOPIC_ID,
    TOPIC,
    BrokerInfo,
    ClusterImage,
    Delta,
    PartitionInfo,
    TopicInfo,
)
from barnabas.cluster.ports import ProposedState
from barnabas.cluster.protocol_version import ProtocolVersion
from barnabas.cluster.replay import replay
from barnabas.cluster.zookeeper.missed_elections import later_leaders
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError, StorageError
from barnabas.security.tokens import Token
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataResponse

ID, OTHER_ID = b"i" * 16, b"o" * 16
LED = PartitionInfo(1, (1, 2), (1, 2), 5, 7)
CONFIG = BrokerConfig({})


def image(*topics: TopicInfo, brokers: int = 3) -> ClusterImage:
    there = [BrokerRegistered(BrokerInfo(one, None, {})) for one in range(1, brokers + 1)]
    return ClusterImage("c").apply([*there, *map(TopicCreated, topics)])


def topic(*partitions: PartitionInfo, name: str = "t", id: bytes = ID) -> TopicInfo:
    return TopicInfo(name, id, partitions or (LED,))


def code_of(decide: Any, *arguments: Any, **options: Any) -> int:
    try:
        decide(*arguments, **options)
    except RequestError as error:
        return error.code
    return 0


# --- topics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "is_legal"),
    [("t", True), ("a.b_c-D9", True), ("...", True), ("x" * 249, True), ("x" * 250, False), ("", False),
     (".", False), ("..", False), ("a b", False), ("a/b", False), ("ä", False), ("a\n", False)],
)  # fmt: skip
def test_names_that_topics_can_have(name: str, is_legal: bool) -> None:
    assert code_of(controller.check_topic_name, name) == (
        0 if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    )


@pytest.mark.parametrize(
    ("settings", "is_fine"),
    [
        ({"retention.ms": "1"}, True),
        ({"retention.m": "1"}, False),
        ({"retention.ms": "x"}, False),
        ({"remote.storage.enable": "true"}, False),
        ({"remote.storage.enable": "false"}, True),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}, True),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, False),
    ],
)
def test_settings_that_topics_can_have(settings: dict[str, str], is_fine: bool) -> None:
    assert code_of(controller.check_settings, settings, CONFIG) == (
        0 if is_fine else ErrorCode.INVALID_CONFIG
    )


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({}, 0),
        ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "a_b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "a b"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": 10_000}, 0),
        ({"partitions": 10_001}, ErrorCode.POLICY_VIOLATION),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 3}, 0),
        ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"settings": {"no": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"assignments": {0: (1, 2), 1: (3, 1)}}, 0),
        ({"assignments": {0: (1, 2), 2: (3, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {1: (1, 2), 2: (3, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: (1, 2), 1: (3,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: (1, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: (1, 4)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: ()}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": {0: (1, 2, 3, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_is_made_or_refused_with_its_reason(asked: dict[str, Any], code: int) -> None:
    given = {"name": "new", "topic_id": OTHER_ID, "partitions": 2, "replication_factor": 2} | asked
    now = image(topic(), topic(name="a.b", id=b"x" * 16))
    assert code_of(controller.create_topic, now, CONFIG, **given) == code
    if not code:
        (created, *_) = controller.create_topic(now, CONFIG, **given)
        made = now.apply([created]).topics["new"]
        wanted = given.get("assignments") or dict.fromkeys(range(given["partitions"]))
        assert len(made.partitions) == len(wanted)
        for index, info in enumerate(made.partitions):
            assert info.replicas == (wanted[index] or info.replicas)
            assert (info.leader, info.isr, info.leader_epoch) == (info.replicas[0], info.replicas, 0)


def test_a_new_topic_has_its_settings_in_order() -> None:
    settings = {"retention.ms": "1", "cleanup.policy": "compact"}
    changes = controller.create_topic(image(), CONFIG, "t", ID, 1, 1, settings=settings)
    assert [type(one) for one in changes] == [TopicCreated, ConfigChanged]
    assert dict(image().apply(changes).settings_of(TOPIC, "t")) == settings


@pytest.mark.parametrize(
    ("name", "topic_id", "code"),
    [
        ("t", ID, 0),
        ("t", OTHER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_only_the_topic_that_is_meant_is_deleted(name: str, topic_id: bytes, code: int) -> None:
    assert code_of(controller.delete_topic, image(topic()), name, topic_id) == code


@pytest.mark.parametrize(
    ("total", "assignments", "code"),
    [
        (3, None, 0),
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (6, None, 0),
        (7, None, ErrorCode.INVALID_PARTITIONS),
        (3, [(2, 3)], 0),
        (3, [(2, 3), (3, 1)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, [(2, 3)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [(2, 9)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, [(2, 3), (1,)], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_topic_grows_or_is_refused_with_its_reason(total: int, assignments: Any, code: int) -> None:
    now = image(topic(LED, LED))
    assert code_of(controller.add_partitions, now, "u", total) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(controller.add_partitions, now, "t", total, assignments, count_max=4) == code
    if not code:
        partitions = now.apply(controller.add_partitions(now, "t", total, assignments)).topics["t"].partitions
        assert (partitions[:2], len(partitions)) == ((LED, LED), total)
        assert all(len(info.replicas) == 2 for info in partitions)
        if assignments:
            assert partitions[2:] == (PartitionInfo(2, (2, 3), (2, 3)),)
    for moving in (LED._replace(adding=(2,)), LED._replace(removing=(2,))):
        busy = image(topic(LED, moving))
        assert code_of(controller.add_partitions, busy, "t", 3) == ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_new_partitions_go_on_from_where_the_first_one_is() -> None:
    now = image(topic(LED._replace(replicas=(2, 3))))
    (added,) = controller.add_partitions(now, "t", 4)
    assert [info.replicas[0] for info in added.partitions] == [3, 1, 2]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "index", "replicas", "code"),
    [
        ("t", 0, (1, 2), 0),
        ("t", 1, (2, 1), 0),
        ("t", 2, (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", 0, (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 4), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, (1, 2, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_reassignment_is_checked(name: str, index: int, replicas: Any, code: int) -> None:
    now = image(topic(LED, LED))
    assert code_of(controller.check_reassignment, now, name, index, replicas, keeps_factor=True) == code
    if code == ErrorCode.INVALID_REPLICATION_FACTOR:
        assert code_of(controller.check_reassignment, now, name, index, replicas, keeps_factor=False) == 0


def new(name: str, partitions: int = 1, **fields: Any) -> NewTopic:
    return NewTopic(name, name.encode().ljust(16), partitions, 1, **fields)


def test_topics_of_one_request_are_refused_one_by_one() -> None:
    asked = [
        new("a"),
        new("a"),
        new("b.c"),
        new("b_c"),
        new("d", 0),
        new("e", assignments={0: (1,), 1: (2,)}),
        new("f"),
    ]
    charged: list[tuple[str, int]] = []

    def charge(name: str, count: int) -> None:
        if name == "f":
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many")
        charged.append((name, count))

    refused: dict[str, RequestError] = {}
    changes = [
        one for one in create_topics(image(), CONFIG, asked, refused, charge=charge) if one is not None
    ]
    assert {name: error.code for name, error in refused.items()} == {
        "a": ErrorCode.TOPIC_ALREADY_EXISTS, "b_c": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "d": ErrorCode.INVALID_PARTITIONS, "f": ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }  # fmt: skip
    assert list(image().apply(changes).topics) == ["a", "b.c", "e"]
    assert charged == [("a", 1), ("b.c", 1), ("e", 2)]
    apart: dict[str, RequestError] = {}
    list(create_topics(image(), CONFIG, asked[2:4], apart, with_each_other=False))
    assert apart == {}


# --- images -------------------------------------------------------------------------------------------------------


def test_partitions_are_found_by_their_index_alone() -> None:
    now = image(topic(LED, LED._replace(leader=2)))
    found = [now.partition("t", index) for index in (-1, 0, 1, 2)]
    assert [one.leader if one else None for one in found] == [None, 1, 2, None]
    assert now.partition("u", 0) is None
    assert (now.topic_id("t"), now.topic_id("u"), now.topic_name(ID), now.topic_name(OTHER_ID)) == (
        ID,
        None,
        "t",
        None,
    )
    assert image(topic(id=NO_TOPIC_ID)).topic_id("t") is None
    back = now.apply([BrokerRegistered(BrokerInfo(2, None, {}, 44))])
    assert (back.broker_epoch(2), back.broker_epoch(1), back.broker_epoch(9)) == (44, -1, -1)
    assert (topic(name="__consumer_offsets").internal, topic().internal) == (True, False)


def test_an_epoch_begins_for_all_partitions() -> None:
    now = image(topic(LED, LED._replace(leader_epoch=2, partition_epoch=1)), topic(name="u", id=OTHER_ID))
    begun = now.apply([EpochBegun(9)])
    assert [(one.leader_epoch, one.partition_epoch) for one in begun.topics["t"].partitions] == [
        (9, 8),
        (9, 2),
    ]
    assert [(one.leader_epoch, one.partition_epoch) for one in begun.topics["u"].partitions] == [(9, 8)]
    assert begun.latest_epoch == 9
    assert begun.apply([PartitionChanged("t", 0, LED)]).latest_epoch == 9
    assert begun.apply([PartitionChanged("t", 0, LED._replace(leader_epoch=12))]).latest_epoch == 12


def test_a_sole_leader_begins_a_new_epoch() -> None:
    assert LED.with_sole_leader(2) == PartitionInfo(2, (1, 2), (2,), 6, 8)
    assert LED.with_sole_replica(2) == PartitionInfo(2, (2,), (2,), 6, 8)


@pytest.mark.parametrize(
    ("before", "after", "is_replaced"),
    [(ID, ID, False), (ID, OTHER_ID, True), (ID, None, True), (None, ID, False), (None, None, False),
     (ID, NO_TOPIC_ID, False), (NO_TOPIC_ID, ID, False)],
)  # fmt: skip
def test_a_topic_is_another_one_with_another_id(
    before: bytes | None, after: bytes | None, is_replaced: bool
) -> None:
    old, now = (image(topic(id=one)) if one is not None else image() for one in (before, after))
    assert Delta(old, now, (), ()).replaced("t") is is_replaced


def test_a_proposal_has_its_fields_in_their_places() -> None:
    asked = ProposedState("t", ID, 3, 5, 7, ((1, 11),), True)
    assert (asked.topic, asked.topic_id, asked.index, asked.leader_epoch, asked.partition_epoch) == (
        "t",
        ID,
        3,
        5,
        7,
    )
    assert (asked.isr, asked.recovering) == (((1, 11),), True)


@pytest.mark.parametrize("text", ["3", "", "x.y", "3.9-IV", "3.9-IVx"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no version of Kafka"):
        ProtocolVersion.parse(text)


# --- changes that are kept ----------------------------------------------------------------------------------------

KEPT = [
    EpochBegun(4),
    TopicCreated(
        topic(LED, LED._replace(leader=2, replicas=(2, 3), isr=(3,), leader_epoch=8, partition_epoch=9))
    ),
    ConfigChanged(TOPIC, "t", (("a", "1"), ("b", "2"))),
    ProducerIdsAllocated(77),
    LogDirsRegistered(3, frozenset({ID, OTHER_ID})),
]


@pytest.mark.parametrize(
    "change", [*KEPT, PartitionsAdded("t", (LED,)), PartitionChanged("t", 3, LED), TopicDeleted("t")]
)
@pytest.mark.parametrize("has_more", [False, True])
def test_a_change_is_read_back_as_it_was_written(change: Any, has_more: bool) -> None:
    line = decode_line(encode_line(12, change, has_more=has_more))
    assert (line.number, line.has_more, line.change) == (12, has_more, change)
    old = decode_line(encode(change).encode() + b"\n")
    assert (old.number, old.change) == (-1, change)


def test_a_snapshot_leads_to_the_same_image() -> None:
    whole = ClusterImage("c").apply(KEPT)
    assert changes_of(whole) == KEPT
    assert changes_of(ClusterImage("c")) == []


@pytest.mark.parametrize(
    "line",
    [
        encode(KEPT[0]).encode(),  # without its end
        b'{"change":"Nothing"}\n',
        b'{"change":"EpochBegun"}\n',
        b'{"change":7}\n',
        encode_line(1, KEPT[0])[:-2] + b" \n",
        encode_line(1, KEPT[0]).replace(b'"n":1', b'"n":2'),
        b"\n",
    ],
)
def test_a_line_that_is_not_whole_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"a line|unknown change"):
        decode_line(line)


def test_what_is_true_only_while_a_broker_runs_is_not_kept() -> None:
    with pytest.raises(TypeError, match="BrokerRegistered is not kept"):
        encode(BrokerRegistered(BrokerInfo(1, None, {})))


def test_changes_after_one_that_is_lost_are_made_to_fit() -> None:
    first, again = topic(LED), topic(LED, LED, id=OTHER_ID)
    read = replay([
        PartitionsAdded("t", (LED,)), PartitionChanged("t", 0, LED), TopicDeleted("t"), TopicCreated(first),
        PartitionChanged("t", 1, LED), PartitionsAdded("t", (LED,)), PartitionChanged("t", 1, LED),
        PartitionChanged("t", -1, LED), TopicCreated(again), PartitionChanged("t", 1, LED), EpochBegun(3),
    ])  # fmt: skip
    assert read.left_out == [
        "the growth of topic t", "a change of t-0", "the end of topic t", "a change of t-1", "a change of t--1",
        "the end of topic t",
    ]  # fmt: skip
    assert read.deleted == {ID}
    assert read.changes == [
        TopicCreated(first), PartitionsAdded("t", (LED,)), PartitionChanged("t", 1, LED), TopicDeleted("t"),
        TopicCreated(again), PartitionChanged("t", 1, LED), EpochBegun(3),
    ]  # fmt: skip
    back = replay([TopicCreated(first), TopicDeleted("t"), TopicCreated(first)])
    assert (back.deleted, back.left_out) == (set(), [])


# --- leaders that others know of ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "topic_id", "is_later"),
    [
        ({}, ID, True),
        ({}, NO_TOPIC_ID, True),
        ({}, OTHER_ID, False),
        ({"leader_epoch": 5}, ID, False),
        ({"leader_id": -1}, ID, False),
        ({"leader_id": 1}, ID, False),
        ({"partition_index": 1}, ID, False),
        ({"partition_index": 2}, ID, False),
    ],
)
def test_only_what_is_led_here_and_later_elsewhere_is_taken_over(
    fields: dict[str, int], topic_id: bytes, is_later: bool
) -> None:
    told = MetadataResponse.MetadataResponsePartition(
        **{"partition_index": 0, "leader_id": 2, "leader_epoch": 6, "isr_nodes": [2]} | fields
    )
    response = MetadataResponse(
        topics=[
            MetadataResponse.MetadataResponseTopic(name="u", topic_id=topic_id, partitions=[told]),
            MetadataResponse.MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[told]),
        ]
    )
    now = image(topic(LED, LED._replace(leader=2)))
    expected = [PartitionChanged("t", 0, PartitionInfo(2, (1, 2), (2,), 6, -1))] if is_later else []
    assert later_leaders(now, response, 1) == expected


# --- delegation tokens --------------------------------------------------------------------------------------------

NOW = 1_000_000


class Cluster:
    """Metadata, and the credentials in them."""

    def __init__(self, *tokens: Token, has_tokens: bool = True) -> None:
        self.image = ClusterImage("c").apply([DelegationTokenChanged(one) for one in tokens])
        self.has_tokens = has_tokens
        self.changes = 0
        self.is_full = False

    async def change(self, decide: Any) -> None:
        self.changes += 1
        if self.is_full:
            raise StorageError("/d", OSError(28, "full"))
        self.image = self.image.apply([one for one in decide(self.image) if one is not None])

    async def token_with(self, mac: bytes) -> Token | None:
        return self.image.tokens.get(mac.decode())

    def mac_of(self, token_id: str) -> bytes:
        return token_id.encode()


class Random:
    def bytes(self, count: int) -> bytes:
        return b"r" * count

    def __getattr__(self, name: str) -> Any:
        return lambda count=16: b"r" * count


def tokens(cluster: Cluster, now_ms: int = NOW) -> DelegationTokens:
    return DelegationTokens(
        cluster, cluster, lifetime_max_ms=10_000, expiry_ms=3_000, per_owner_max=2, check_interval_ms=500,  # type: ignore[arg-type]
        clock_ms=lambda: now_ms, entropy=Random(),  # type: ignore[arg-type]
    )  # fmt: skip


def token(
    token_id: str = "x", owner: str = "User:a", expires_ms: int = NOW + 100, longest_ms: int = NOW + 5_000
) -> Token:
    return Token(token_id, owner, "User:r", ("User:b",), NOW - 10, expires_ms, longest_ms)


@pytest.mark.parametrize(
    ("lifetime_ms", "expires", "longest"),
    [
        (0, 3_000, 10_000),
        (-1, 3_000, 10_000),
        (1, 1, 1),
        (2_000, 2_000, 2_000),
        (5_000, 3_000, 5_000),
        (20_000, 3_000, 10_000),
    ],
)
async def test_a_token_lives_as_long_as_is_asked_for_and_allowed(
    lifetime_ms: int, expires: int, longest: int
) -> None:
    cluster = Cluster()
    made = await tokens(cluster).create("User:a", "User:r", ["User:b"], lifetime_ms)
    assert (made.owner, made.requester, made.renewers, made.issued_ms) == (
        "User:a",
        "User:r",
        ("User:b",),
        NOW,
    )
    assert (made.expires_ms, made.expires_max_ms) == (NOW + expires, NOW + longest)
    assert list(cluster.image.tokens.values()) == [made]


@pytest.mark.parametrize(
    ("held", "is_refused"),
    [
        ([], False),
        ([token("1")], False),
        ([token("1"), token("2")], True),
        ([token("1"), token("2", owner="User:c")], False),
        ([token("1"), token("2", expires_ms=NOW - 1)], False),
        ([token("1"), token("2", expires_ms=NOW)], True),
    ],
)
async def test_an_owner_has_so_many_tokens_that_are_alive(held: list[Token], is_refused: bool) -> None:
    cluster = Cluster(*held)
    if is_refused:
        with pytest.raises(RequestError) as caught:
            await tokens(cluster).create("User:a", "User:a", [], 0)
        assert caught.value.code == ErrorCode.POLICY_VIOLATION
    else:
        await tokens(cluster).create("User:a", "User:a", [], 0)
    assert len(cluster.image.tokens) == len(held) + (not is_refused)


@pytest.mark.parametrize(
    ("act", "period_ms", "expires"),
    [("renew", 0, 3_000), ("renew", -1, 3_000), ("renew", 700, 700), ("renew", 9_000, 3_000), ("expire", 0, 0),
     ("expire", 700, 700), ("expire", 9_000, 5_000)],
)  # fmt: skip
async def test_a_token_expires_when_it_is_asked_to_and_never_later_than_it_may(
    act: str, period_ms: int, expires: int
) -> None:
    cluster = Cluster(token())
    served = tokens(cluster)
    assert await getattr(served, act)(b"x", "User:b", period_ms) == NOW + expires
    assert cluster.image.tokens["x"] == replace(token(), expires_ms=NOW + expires)


async def test_a_token_that_is_expired_at_once_is_gone() -> None:
    cluster = Cluster(token(), token("y"))
    assert await tokens(cluster).expire(b"x", "User:a", -1) == NOW
    assert list(cluster.image.tokens) == ["y"]


OLD = token(expires_ms=NOW - 1)
MISMATCH, EXPIRED = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ErrorCode.DELEGATION_TOKEN_EXPIRED
NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize(
    ("kept", "mac", "principal", "renewing", "expiring"),
    [
        (token(), b"x", "User:a", 0, 0),
        (token(), b"x", "User:b", 0, 0),
        (token(), b"x", "User:r", MISMATCH, MISMATCH),
        (token(), b"y", "User:a", NOT_FOUND, NOT_FOUND),
        (OLD, b"x", "User:a", EXPIRED, EXPIRED),
        (OLD, b"x", "User:r", EXPIRED, MISMATCH),
    ],
)
async def test_a_token_is_refused_with_the_first_reason(
    kept: Token, mac: bytes, principal: str, renewing: int, expiring: int
) -> None:
    for act, code in (("renew", renewing), ("expire", expiring)):
        cluster = Cluster(kept)
        try:
            await getattr(tokens(cluster), act)(mac, principal, 50)
            found = 0
        except RequestError as error:
            found = error.code
        assert found == code
        assert cluster.changes == (not code)


async def test_without_a_secret_key_there_are_no_tokens() -> None:
    served = tokens(Cluster(has_tokens=False))
    for ask in (
        served.create("User:a", "User:a", [], 0),
        served.renew(b"x", "User:a", 0),
        served.expire(b"x", "User:a", 0),
    ):
        with pytest.raises(RequestError) as caught:
            await ask
        assert caught.value.code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_expired_tokens_are_removed_and_nothing_is_written_where_there_are_none(
    autojump_clock: Any,
) -> None:
    import trio

    cluster = Cluster(token("1"), token("2", expires_ms=NOW - 1), token("3", longest_ms=NOW - 1))
    await tokens(cluster).remove_expired()
    await tokens(cluster).remove_expired()
    assert (list(cluster.image.tokens), cluster.changes) == (["1"], 1)
    cluster.is_full = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tokens(cluster, NOW + 101).run)
        await trio.sleep(0.4)
        assert cluster.changes == 1
        await trio.sleep(1)  # it fails twice
        cluster.is_full = False
        await trio.sleep(0.5)
        assert (cluster.changes, len(cluster.image.tokens)) == (4, 0)
        nursery.cancel_scope.cancel()
