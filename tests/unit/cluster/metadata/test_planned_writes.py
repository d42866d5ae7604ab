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
from barnabas.cluster.metadata.image import (
    TOPIC,
    Change,
    TopicInfo,
)
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.session import Create
from barnabas.cluster.zookeeper.writes import ConflictError, Truth, resource_of
from barnabas.cluster.zookeeper.znodes import ProducerIdBlock
from tests.support.planned_writes import (
    DELETE_PATH,
    EMPTY,
    OTHER_ID,
    TOPIC_PATH,
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
