"""Writes to ZooKeeper for each kind of change: beside what is there, what is left as it is, and what is a conflict."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.metadata.changes import (
    BrokerRegistered,
    ConfigChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    NO_TOPIC_ID,
    TOPIC,
    BrokerInfo,
    Change,
    ClusterImage,
    TopicInfo,
)
from barnabas.cluster.zookeeper import entity_settings, writes, znodes
from barnabas.cluster.zookeeper.session import Create, Operation, SetData, Stat
from barnabas.cluster.zookeeper.writes import ConflictError, Truth, entity_of, resource_of
from barnabas.cluster.zookeeper.znodes import ProducerIdBlock
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.planned_writes import (
    CONFIG_PATH,
    DELETE_PATH,
    EMPTY,
    ID,
    NONE,
    OTHER_ID,
    TOPIC_PATH,
    config,
    found,
    info,
    kept,
    operations,
    planned,
    read,
    topic,
)

# --- topics -------------------------------------------------------------------------------------------------------

NEW = topic(info(1, 2), info(2, 1))


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({}, [Create(CONFIG_PATH, NONE), Create(TOPIC_PATH, kept((1, 2), (2, 1)))]),
        ({"config": b"x"}, [SetData(CONFIG_PATH, NONE, 4), Create(TOPIC_PATH, kept((1, 2), (2, 1)))]),
        ({"topic": kept((1, 2), (2, 1))}, []),
        ({"topic": kept((9, 9), id=ID)}, [SetData(TOPIC_PATH, kept((1, 2), (2, 1)), 4)]),
        ({"topic": kept((1, 2), (2, 1)), "delete": b""}, []),
    ],
)  # fmt: skip
def test_a_topic_is_made_unless_it_is_there(there: dict[str, bytes], expected: list[Operation]) -> None:
    plan = planned([TopicCreated(NEW)], found(**there))
    assert operations(plan) == expected
    assert plan.notifications == []


@pytest.mark.parametrize(
    ("there", "truth", "deleting"),
    [
        ({"topic": kept((1, 2), (2, 1), id=OTHER_ID)}, read((1, 2), (2, 1), id=OTHER_ID), False),
        ({"topic": kept((1,), id=OTHER_ID), "delete": b""}, read((1,), id=OTHER_ID), True),
        ({"topic": kept((1, 2), (2, 1), id=None)}, read((1, 2), (2, 1), id=NO_TOPIC_ID), False),
        ({"topic": kept((1, 2), (2, 1), id=None), "delete": b""}, read((1, 2), (2, 1), id=NO_TOPIC_ID), True),
        ({"topic": b"{"}, read(id=NO_TOPIC_ID), False),
        ({"delete": b""}, read(id=NO_TOPIC_ID), True),
    ],
)
def test_another_topic_of_the_name_is_a_conflict(
    there: dict[str, bytes], truth: TopicInfo, deleting: bool
) -> None:
    with pytest.raises(ConflictError) as caught:
        planned([TopicCreated(NEW)], found(**there))
    assert caught.value.truth == Truth({"t": truth})
    assert caught.value.deleting == (frozenset({"t"}) if deleting else frozenset())


@pytest.mark.parametrize(("there", "is_conflict"), [(((1, 2), (2, 1)), False), (((1, 2),), True)])
def test_without_ids_a_topic_is_the_same_if_it_has_the_same_replicas(
    there: tuple[tuple[int, ...], ...], is_conflict: bool
) -> None:
    for new in (NEW, NEW._replace(id=NO_TOPIC_ID)):
        arguments: dict[str, Any] = {"has_topic_ids": new.id == NO_TOPIC_ID}
        if is_conflict:
            with pytest.raises(ConflictError):
                planned([TopicCreated(new)], found(topic=kept(*there, id=None)), **arguments)
        else:
            plan = planned([TopicCreated(new)], found(topic=kept(*there, id=None)), **arguments)
            assert operations(plan) == []
        made = planned([TopicCreated(new)], found(), **arguments)
        assert operations(made)[1] == Create(TOPIC_PATH, kept((1, 2), (2, 1), id=None))


def test_a_new_topics_settings_come_with_it_and_nobody_is_notified() -> None:
    settings = ConfigChanged(TOPIC, "t", (("a", "1"),))
    plan = planned([TopicCreated(NEW), settings], found())
    assert operations(plan) == [
        Create(CONFIG_PATH, b'{"version":1,"config":{"a":"1"}}'),
        Create(TOPIC_PATH, kept((1, 2), (2, 1))),
    ]
    assert plan.notifications == []
    plan = planned([TopicCreated(NEW), settings], found(topic=kept((1, 2), (2, 1))))
    assert operations(plan) == [Create(CONFIG_PATH, b'{"version":1,"config":{"a":"1"}}')]
    assert plan.notifications == ["topics/t"], "it was there already"


KNOWN = EMPTY.apply([TopicCreated(topic(info(1, 2)))])


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (kept((1, 2)), [SetData(TOPIC_PATH, kept((1, 2), (2, 1), (3, 1)), 4)]),
        (kept((5, 6)), [SetData(TOPIC_PATH, kept((5, 6), (2, 1), (3, 1)), 4)]),  # moved meanwhile
        (kept((1, 2), (2, 1), (3, 1)), []),
        (kept((1, 2), (2, 1), (3, 1), (4, 1)), []),
    ],
)
def test_partitions_are_added_once(there: bytes, expected: list[Operation]) -> None:
    added = PartitionsAdded("t", (info(2, 1), info(3, 1)))
    assert operations(planned([added], found(topic=there), KNOWN)) == expected


@pytest.mark.parametrize(
    ("there", "truth"),
    [
        (kept((1, 2), (2, 1)), read((1, 2), (2, 1))),
        (kept((1, 2), (2, 1), (1, 3)), read((1, 2), (2, 1), (1, 3))),
        (kept(), read()),
        (None, None),
    ],
)
def test_partitions_that_others_have_added_are_a_conflict(
    there: bytes | None, truth: TopicInfo | None
) -> None:
    added = PartitionsAdded("t", (info(2, 1), info(3, 1)))
    with pytest.raises(ConflictError) as caught:
        planned([added], found(**({"topic": there} if there else {})), KNOWN)
    assert caught.value.truth == Truth({"t": truth})


def test_a_topic_that_is_made_and_grows_is_made_with_all_partitions() -> None:
    changes: list[Change] = [
        TopicCreated(topic(info(1))),
        PartitionsAdded("t", (info(2),)),
        PartitionsAdded("t", (info(3),)),
    ]
    assert operations(planned(changes, found()))[1] == Create(TOPIC_PATH, kept((1,), (2,), (3,)))


@pytest.mark.parametrize(
    ("there", "is_asked_for"),
    [
        ({"topic": kept((1, 2))}, True),
        ({"topic": kept((1, 2), id=None)}, True),
        ({"topic": kept((1, 2)), "delete": b""}, False),
        ({"topic": kept((1, 2), id=OTHER_ID)}, False),
        ({}, False),
        ({"topic": b"{"}, True),
    ],
)
def test_the_end_of_a_topic_is_asked_for_once(there: dict[str, bytes], is_asked_for: bool) -> None:
    plan = planned([TopicDeleted("t")], found(**there), KNOWN)
    assert operations(plan) == ([Create(DELETE_PATH, b"")] if is_asked_for else [])


def test_a_topic_that_is_made_and_deleted_at_once_is_asked_to_end() -> None:
    plan = planned([TopicCreated(NEW), TopicDeleted("t")], found())
    assert operations(plan)[1:] == [Create(TOPIC_PATH, kept((1, 2), (2, 1))), Create(DELETE_PATH, b"")]


@pytest.mark.parametrize("more", [0, 1])
def test_a_topic_has_to_fit_into_a_znode(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    monkeypatch.setattr(writes, "ZNODE_BYTES_MAX", len(kept((1, 2), (2, 1))) - more)
    if not more:
        assert operations(planned([TopicCreated(NEW)], found()))
        return
    with pytest.raises(RequestError, match="'t' with 2 partitions") as caught:
        planned([TopicCreated(NEW)], found())
    assert caught.value.code == ErrorCode.POLICY_VIOLATION


# --- settings -----------------------------------------------------------------------------------------------------

SETTINGS = EMPTY.apply([ConfigChanged(TOPIC, "t", (("a", "1"),))])


@pytest.mark.parametrize(
    ("there", "image", "expected"),
    [
        (None, EMPTY, [Create(CONFIG_PATH, config(b="2"))]),
        (config(), EMPTY, [SetData(CONFIG_PATH, config(b="2"), 4)]),
        (config(a="1"), SETTINGS, [SetData(CONFIG_PATH, config(b="2"), 4)]),
        (config(b="2"), SETTINGS, []),
        (config(b="2"), EMPTY, []),
        (b"{", EMPTY, [SetData(CONFIG_PATH, config(b="2"), 4)]),
    ],
)
def test_settings_are_replaced(there: bytes | None, image: ClusterImage, expected: list[Operation]) -> None:
    znode = found(**({"config": there} if there is not None else {}))
    plan = planned(
        [ConfigChanged(TOPIC, "t", (("a", "9"),)), ConfigChanged(TOPIC, "t", (("b", "2"),))], znode, image
    )
    assert operations(plan) == expected
    assert plan.notifications == ["topics/t"]


@pytest.mark.parametrize(
    ("there", "image", "truth"),
    [
        (config(a="2"), SETTINGS, {"a": "2"}),
        (config(a="1", c="3"), SETTINGS, {"a": "1", "c": "3"}),
        (config(a="1"), EMPTY, {"a": "1"}),
        (None, SETTINGS, {}),
        (b"{", SETTINGS, {}),
    ],
)
def test_settings_that_others_have_changed_are_a_conflict(
    there: bytes | None, image: ClusterImage, truth: dict[str, str]
) -> None:
    znode = found(**({"config": there} if there is not None else {}))
    with pytest.raises(ConflictError) as caught:
        planned([ConfigChanged(TOPIC, "t", (("b", "2"),))], znode, image)
    assert caught.value.truth == Truth(configs={(TOPIC, "t"): truth})
    assert caught.value.deleting == frozenset()


@pytest.mark.parametrize(
    ("key", "entity"),
    [
        ((TOPIC, "a.b"), ("topics", "a.b")), ((BROKER, "3"), ("brokers", "3")), ((BROKER, ""), ("brokers", "<default>")),
        ((CLIENT_METRICS, "a b"), ("client-metrics", "a%20b")), ((GROUP, "g/1"), ("groups", "g%2F1")),
        ((entity_settings.USERS, "u/clients/c"), ("users", "u/clients/c")),
        ((entity_settings.IPS, "1.2.3.4"), ("ips", "1.2.3.4")),
    ],
)  # fmt: skip
def test_each_resource_has_an_entity_and_back(key: tuple[int, str], entity: tuple[str, str]) -> None:
    assert entity_of(key) == entity
    assert resource_of(*entity) == key
    plan = planned([ConfigChanged(*key, (("a", "1"),))], {}) if key[0] > 0 else None
    if plan is not None:
        assert plan.notifications == ["/".join(entity)]


def test_what_is_no_entity_of_ours_is_none() -> None:
    assert resource_of("strange", "x") is None


# --- producer ids, and what belongs together ----------------------------------------------------------------------


def ids(first: int, count: int, broker: int = 7) -> bytes:
    return znodes.encode_producer_ids(ProducerIdBlock(broker, first, count))


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (None, [Create(znodes.PRODUCER_IDS, ids(1000, 500))]),
        (ids(0, 1000), [SetData(znodes.PRODUCER_IDS, ids(1000, 500), 4)]),
        (ids(1000, 500), []),
    ],
)
def test_producer_ids_follow_those_that_are_known(there: bytes | None, expected: list[Operation]) -> None:
    image = EMPTY.apply([ProducerIdsAllocated(1000)])
    znode = found(**({"ids": there} if there is not None else {}))
    assert operations(planned([ProducerIdsAllocated(1500)], znode, image)) == expected


@pytest.mark.parametrize(("there", "kept_next"), [(ids(1000, 500, 8), 1500), (b"", 0), (ids(0, 999), 999)])
def test_producer_ids_that_others_have_taken_are_a_conflict(there: bytes, kept_next: int) -> None:
    image = EMPTY.apply([ProducerIdsAllocated(1000)])
    with pytest.raises(ConflictError) as caught:
        planned([ProducerIdsAllocated(1500)], found(ids=there), image)
    assert caught.value.truth == Truth(next_producer_id=kept_next)


def test_one_conflict_names_all_that_others_have_changed() -> None:
    changes: list[Change] = [
        TopicCreated(NEW), ConfigChanged(BROKER, "1", (("a", "1"),)), ProducerIdsAllocated(10),
    ]  # fmt: skip
    there = found(topic=kept((1,), id=OTHER_ID), ids=ids(5, 5, 8)) | {
        "/config/brokers/1": (config(z="1"), Stat(1, 1))
    }
    with pytest.raises(ConflictError) as caught:
        planned(changes, there)
    assert caught.value.truth == Truth({"t": read((1,), id=OTHER_ID)}, {(BROKER, "1"): {"z": "1"}}, 10)


@pytest.mark.parametrize(("bytes_max", "sizes"), [(1, [2, 2, 2]), (700, [4, 2]), (10_000, [6])])
def test_what_is_small_is_written_together_and_a_topic_is_never_torn(
    monkeypatch: pytest.MonkeyPatch, bytes_max: int, sizes: list[int]
) -> None:
    """A topic and its settings, of some 330 bytes together."""
    monkeypatch.setattr(writes, "BYTES_MAX", bytes_max)
    plan = planned([TopicCreated(topic(info(1), name=f"t{number}")) for number in range(3)], {})
    assert [len(part) for part in plan.parts] == sizes


def test_what_comes_from_the_controller_is_not_written() -> None:
    with pytest.raises(TypeError, match="BrokerRegistered"):
        writes.paths_of(BrokerRegistered(BrokerInfo(1, None, {})))
