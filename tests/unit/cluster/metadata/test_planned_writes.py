"""Writes to ZooKeeper for each kind of change: beside what is there, what is left as it is, and what is a conflict."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import TOPIC, Change, ClusterImage, TopicInfo
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.session import Create, Operation, SetData
from barnabas.cluster.zookeeper.writes import ConflictError, Truth, resource_of
from barnabas.cluster.zookeeper.znodes import ProducerIdBlock
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


KNOWN = EMPTY.apply([TopicCreated(topic(info(1, 2)))])


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


def test_new_topic_that_grows_is_written_with_all_partitions() -> None:
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


def test_new_topic_deleted_at_once_is_queued_for_deletion() -> None:
    plan = planned([TopicCreated(NEW), TopicDeleted("t")], found())
    assert operations(plan)[1:] == [Create(TOPIC_PATH, kept((1, 2), (2, 1))), Create(DELETE_PATH, b"")]


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


def test_what_is_no_entity_of_ours_is_none() -> None:
    assert resource_of("strange", "x") is None


# --- producer ids, and what belongs together ----------------------------------------------------------------------


def ids(first: int, count: int, broker: int = 7) -> bytes:
    return znodes.encode_producer_ids(ProducerIdBlock(broker, first, count))


@pytest.mark.parametrize(("there", "kept_next"), [(ids(1000, 500, 8), 1500), (b"", 0), (ids(0, 999), 999)])
def test_producer_ids_that_others_have_taken_are_a_conflict(there: bytes, kept_next: int) -> None:
    image = EMPTY.apply([ProducerIdsAllocated(1000)])
    with pytest.raises(ConflictError) as caught:
        planned([ProducerIdsAllocated(1500)], found(ids=there), image)
    assert caught.value.truth == Truth(next_producer_id=kept_next)
