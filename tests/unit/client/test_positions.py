"""A consumer's positions: asked for in each version, looked up, and checked against the logs of new leaders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import (
    ClientSettings,
    ConnectionLostError,
    ConsumerSettings,
    ResponseError,
    TopicPartition,
)
from barnabas.client.consuming import offsets
from barnabas.client.consuming.locating import Locator
from barnabas.client.consuming.partition import Partition
from barnabas.client.errors import ClientError, CommitFailedError, LogTruncatedError
from barnabas.client.values import GroupMetadata, OffsetAndMetadata, OffsetAndTimestamp
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.list_offsets import ListOffsetsResponse
from barnabas.wire.generated.offset_commit import OffsetCommitResponse
from tests.support.members import StandinCoordinator, topics_with

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def watch(**counts: int) -> Any:
    """Return metadata of topics with partitions that broker 1 leads, in epoch 4."""
    topics = topics_with(**(counts or {"t": 2, "u": 1}))
    for info in topics.infos.values():
        info.partitions = {
            index: SimpleNamespace(leader=1, epoch=4, replicas=(1,)) for index in info.partitions
        }
    return topics


def listed(*offsets: tuple[TopicPartition, int, int]) -> ListOffsetsResponse:
    """Answer with partition, code and offset."""
    created = ListOffsetsResponse
    return created(
        topics=[
            created.ListOffsetsTopicResponse(
                place.topic, [created.ListOffsetsPartitionResponse(place.partition, code, 77, offset, 3)]
            )
            for place, code, offset in offsets
        ]
    )


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(12))
@pytest.mark.parametrize("committed_only", [True, False])
async def test_offsets_are_listed_as_the_version_has_it(version: int, committed_only: bool) -> None:
    answer = listed((T0, 0, 5), (T1, 0, -1), (U0, DENIED, 0))
    if version == 0:
        for topic in answer.topics:
            topic.partitions[0].old_style_offsets = [topic.partitions[0].offset, 1]
        answer.topics[1].partitions[0].old_style_offsets = []
    client: Any = StandinCoordinator(lambda _: answer, ListOffsets=version)
    topics = watch()
    times = {T0: 99, T1: -1, U0: -2}
    result = await offsets.list_offsets(client, topics, times, committed_only=committed_only)
    assert result.values == {T0: OffsetAndTimestamp(5, 77, 3), T1: None}
    assert {place: error.code for place, error in result.errors.items()} == {U0: DENIED}
    assert topics.refresh_due.is_set(), "the metadata may be old"
    with pytest.raises(ResponseError, match="asking for an offset of u-0: TOPIC_AUTHORIZATION_FAILED"):
        result.all()
    (sent,) = client.asked
    assert (sent.replica_id, sent.isolation_level) == (-1, int(committed_only and version >= 2))
    asked = [
        (entry.name, [(part.partition_index, part.timestamp) for part in entry.partitions])
        for entry in sent.topics
    ]
    assert asked == [("t", [(0, 99), (1, -1)]), ("u", [(0, -2)])]


async def test_each_leader_is_asked_for_its_own_partitions() -> None:
    client: Any = StandinCoordinator(lambda _: ListOffsetsResponse())
    asked: list[int] = []
    usual = client.broker

    async def broker(leader: int) -> Any:
        asked.append(leader)
        return await usual(leader)

    client.broker = broker
    topics = watch(t=3, u=1)
    topics.infos["t"].partitions[1] = SimpleNamespace(leader=2, epoch=4)
    topics.infos["t"].partitions[2] = SimpleNamespace(leader=-1, epoch=4)
    topics.errors["gone"] = DENIED
    places = [
        T0,
        T1,
        TopicPartition("t", 2),
        TopicPartition("t", 9),
        TopicPartition("gone", 0),
        TopicPartition("new", 0),
    ]
    result = await offsets.list_offsets(client, topics, dict.fromkeys(places, -1), committed_only=False)
    assert asked == [1, 2]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {str(place): error.code for place, error in result.errors.items()} == {
        "t-2": ErrorCode.LEADER_NOT_AVAILABLE, "t-9": unknown, "gone-0": DENIED, "new-0": unknown,
    }  # fmt: skip


@pytest.mark.parametrize("version", range(11))
async def test_offsets_are_committed_as_the_version_has_it(version: int) -> None:
    created = OffsetCommitResponse
    parts = [created.OffsetCommitResponsePartition(0, 0), created.OffsetCommitResponsePartition(1, 0)]
    answer = created(topics=[created.OffsetCommitResponseTopic("t", partitions=parts)])
    client: Any = StandinCoordinator(lambda _: answer, OffsetCommit=version)
    group = GroupMetadata("g", 4 if version else -1, "m" if version else "", "i" if version >= 7 else None)
    await offsets.commit(client, group, {T0: OffsetAndMetadata(5, 3, "note"), T1: OffsetAndMetadata(6)})
    (sent,) = client.asked
    member = (sent.group_id, sent.generation_id_or_member_epoch, sent.member_id, sent.group_instance_id)
    assert member == tuple(group)
    (topic,) = sent.topics
    asked = [
        (
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
        )
        for partition in topic.partitions
    ]
    assert (topic.name, asked) == ("t", [(0, 5, 3 if version >= 6 else -1, "note"), (1, 6, -1, "")])
    assert client.lanes == ["group"]
    parts[1].error_code = DENIED
    with pytest.raises(ResponseError, match="committing offsets of group 'g': TOPIC_AUTHORIZATION_FAILED"):
        await offsets.commit(client, group, {T0: OffsetAndMetadata(5)})


# --- looking up -------------------------------------------------------------------------------------------------------


class Case:
    """A locator of T0 and T1, with what a group has committed, where logs begin and end, and where epochs do."""

    def __init__(self, *, group: str | None = "g", **settings: Any) -> None:
        self.partitions = {place: Partition(place) for place in (T0, T1)}
        self.committed: Any = {}
        self.bounds: Any = offsets.Found({T0: OffsetAndTimestamp(10, -1), T1: OffsetAndTimestamp(20, -1)})
        self.ends: Any = offsets.Found({})
        self.asked: list[Any] = []
        self.meanwhile = lambda: None
        self.topics = watch()
        client: Any = SimpleNamespace(settings=ClientSettings(retry_backoff_ms=100, retry_backoff_max_ms=300))
        chosen = ConsumerSettings(**settings)
        place = GroupMetadata(group) if group else None
        requests: Any = SimpleNamespace(
            committed=self._answering("committed"), list_offsets=self._answering("bounds"),
            epoch_ends=self._answering("ends"),
        )  # fmt: skip
        self.locator = Locator(client, self.topics, chosen, self.partitions, lambda: place, requests)

    def _answering(self, kind: str) -> Any:
        async def answer(*args: Any, **options: Any) -> Any:
            requested = args[2]
            self.asked.append(
                (kind, list(requested) if kind == "committed" else dict(requested), *options.values())
            )
            self.meanwhile()
            result = getattr(self, kind)
            if isinstance(result, Exception):
                raise result
            return result

        return answer

    def states(self) -> list[tuple[int, str]]:
        return [(partition.offset, partition.reset) for partition in self.partitions.values()]


@pytest.mark.parametrize(("reset", "time", "committed_only"), [("earliest", -2, False), ("latest", -1, True)])
async def test_consumer_starts_at_committed_offset_or_reset(
    reset: str, time: int, committed_only: bool
) -> None:
    isolation = "read_committed" if committed_only else "read_uncommitted"
    case = Case(offset_reset=reset, isolation=isolation)
    case.committed = {T0: OffsetAndMetadata(5, 3, "")}
    del case.bounds.values[T0]
    assert await case.locator.locate_all()
    assert case.asked == [
        ("committed", [T0, T1], committed_only),
        ("bounds", {T1: time}, committed_only),
        ("ends", {T0: 3}),
    ]
    first, second = case.partitions.values()
    assert (first.offset, first.epoch, first.committed_offset, first.done_offset) == (5, 3, 5, 5)
    assert (second.offset, second.epoch, second.committed_offset) == (20, -1, -1)
    case.asked.clear()
    assert await case.locator.locate_all()
    assert case.asked == [], "all is known"


@pytest.mark.parametrize(
    ("failure", "is_left", "is_told"),
    [
        (CommitFailedError("rebalance"), True, False),
        (ConnectionLostError("gone"), True, False),
        (ResponseError(ErrorCode.UNSTABLE_OFFSET_COMMIT, "asking"), True, False),
        (ResponseError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "asking"), False, True),
    ],
)
async def test_retriable_lookups_are_retried_and_others_raised(
    failure: ClientError, is_left: bool, is_told: bool
) -> None:
    case = Case()
    case.partitions[T1].seek(7)
    case.committed = failure
    assert await case.locator.locate_all() is not is_left
    assert [part.failure for part in case.partitions.values()] == [failure if is_told else None, None]


async def test_it_looks_again_after_longer_and_longer_pauses(autojump_clock: trio.testing.MockClock) -> None:
    case = Case()
    times: list[float] = []
    begun = trio.current_time()

    def note() -> None:
        times.append(round(trio.current_time() - begun, 2))
        if len(times) == 5:
            case.committed = {T0: OffsetAndMetadata(1), T1: OffsetAndMetadata(2)}

    case.meanwhile = note
    case.committed = ConnectionLostError("gone")
    changes: list[float] = []
    case.locator.changed = lambda: changes.append(trio.current_time())
    case.locator.wake()
    with trio.move_on_after(10):
        await case.locator.run()
    assert times == [0.0, 0.1, 0.3, 0.6, 0.9]
    assert len(changes) == 5
    assert case.states() == [(1, ""), (2, "")]


@pytest.mark.parametrize(
    ("reset", "end", "position", "fetched", "outcome"),
    [
        ("latest", 9, 5, 8, (5, 8)),
        ("latest", 8, 5, 8, (5, 8)),
        ("latest", 7, 5, 8, (5, 5)),
        ("latest", 5, 5, 8, (5, 5)),
        ("latest", 4, 5, 8, (4, 4)),
        ("latest", 0, 5, 8, (0, 0)),
        ("earliest", -1, 5, 8, "earliest"),
        ("none", 4, 5, 8, LogTruncatedError),
        ("none", -1, 5, 8, LogTruncatedError),
        ("none", 5, 5, 8, (5, 5)),
        ("latest", None, 5, 8, (5, 8)),
    ],
)
async def test_a_new_leader_may_have_less_than_was_read(
    reset: str, end: int | None, position: int, fetched: int, outcome: Any
) -> None:
    case = Case(offset_reset=reset)
    entry, other = case.partitions.values()
    entry.seek(position, 2)
    entry.fetch_offset, entry.fetch_epoch, entry.leader_epoch = fetched, 3, 3
    other.seek(1)
    case.ends = offsets.Found({} if end is None else {T0: (3, end)})
    assert await case.locator.locate_all()
    assert case.asked == [("ends", {T0: 3})], "what has no epoch cannot be checked"
    assert (entry.leader_epoch, other.leader_epoch) == (4, 4)
    if outcome is LogTruncatedError:
        assert isinstance(entry.failure, LogTruncatedError)
    elif outcome == "earliest":
        assert (entry.offset, entry.reset, case.locator._wakes.is_set()) == (-1, "earliest", True)
    else:
        assert (entry.offset, entry.fetch_offset) == outcome
    assert entry.failure is None or reset == "none"
