"""Log dirs that fail, fill up or are lost, with the replicas in them; and ISRs that this broker decides on."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.metadata.changes import BrokerRegistered, LogDirsRegistered, TopicCreated
from barnabas.cluster.metadata.image import (
    NO_TOPIC_ID,
    BrokerInfo,
    Change,
    ClusterImage,
    PartitionInfo,
    TopicInfo,
)
from barnabas.cluster.replicas.failures import LogDirFailures
from barnabas.cluster.replicas.in_sync import LocalAlterPartition
from barnabas.cluster.replicas.lost_dirs import LOST, LostDirs
from barnabas.cluster.replication.roles import Role
from barnabas.errors import StorageError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import NOW_MS, TOPIC_ID
from tests.support.replicas import Node

OTHER_ID = b"another topic id"
LED = PartitionInfo(1, (1, 2), (1, 2), 5, 7)
SOLE = PartitionInfo(1, (1,), (1,), 5, 7)


def topic(*partitions: PartitionInfo, name: str = "t", id: bytes = TOPIC_ID) -> TopicCreated:
    return TopicCreated(TopicInfo(name, id, partitions))


def brokers() -> list[Change]:
    return [BrokerRegistered(BrokerInfo(id_, None, {})) for id_ in (1, 2)]


# --- disks that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["open", "write"])
async def test_logs_are_made_in_a_dir_that_works(operation: str) -> None:
    node = Node(1, dirs=("/d", "/e"))
    await node.apply([topic(SOLE, name="first", id=OTHER_ID)])
    bad = "/e" if node.replicas.local("first", 0).log.log_dir == "/d" else "/d"

    def fault(asked: str, path: str) -> OSError | None:
        return OSError(5, "broken", path) if path.startswith(bad) and asked == operation else None

    node.disk.fault = fault
    await node.apply([topic(*[SOLE] * 3)])
    node.disk.fault = None
    if node.logs.offline:
        assert list(node.logs.offline) == [bad]
    assert [node.replicas.role("t", index) for index in range(3)] == [Role.LEADER] * 3


@pytest.mark.parametrize(("fails", "role"), [(1, Role.LEADER), (2, Role.OFFLINE)])
async def test_logs_are_created_in_another_dir_after_a_failure(
    fails: int, role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(1, dirs=("/d", "/e"))
    begin, bad = node.logs.begin_creation, ["/d", "/e"][:fails]

    def failing(*args: Any) -> Any:
        if bad:
            raise StorageError(bad.pop(0), BROKEN)
        return begin(*args)

    monkeypatch.setattr(node.logs, "begin_creation", failing)
    await node.apply([topic(SOLE, SOLE)])
    assert [node.replicas.role("t", index) for index in range(2)] == [role] * 2
    assert sorted(node.logs.offline) == ["/d", "/e"][:fails]


async def test_logs_that_cannot_be_deleted_are_named() -> None:
    node = Node(1, dirs=("/d", "/e"))
    await node.apply([topic(*[SOLE] * 4)])
    dirs = {index: node.replicas.local("t", index).log.log_dir for index in range(4)}
    bad = dirs[0]

    def fault(asked: str, path: str) -> OSError | None:
        return OSError(5, "broken", path) if asked == "rename" and path.startswith(bad) else None

    node.disk.fault = fault
    errors = await node.replicas.delete_logs([("t", index) for index in range(5)], NOW_MS)
    node.disk.fault = None
    assert errors == {
        ("t", index): ErrorCode.KAFKA_STORAGE_ERROR for index, path in dirs.items() if path == bad
    }
    assert list(node.logs.offline) == [bad]


def failures(node: Node, *, has_other_replicas: bool = False) -> tuple[LogDirFailures, list[Any]]:
    happened: list[Any] = []
    dir_failures = LogDirFailures(
        node.logs, lambda: node.now_ms, lambda: happened.append("all"), has_other_replicas=has_other_replicas
    )
    dir_failures.on_lost.append(lambda logs: happened.append([log.name for log in logs]))
    dir_failures.on_lost.append(lambda _: happened.append("second"))
    return dir_failures, happened


FULL, NO_FILES, BROKEN = OSError(28, "full"), OSError(24, "too many open files"), OSError(5, "broken")


@pytest.mark.parametrize(
    ("cause", "has_others", "goes"),
    [(BROKEN, False, True), (BROKEN, True, True), (FULL, False, False), (FULL, True, True),
     (NO_FILES, False, False), (NO_FILES, True, False)],
)  # fmt: skip
async def test_full_dir_goes_offline_if_others_have_room(
    cause: OSError, has_others: bool, goes: bool
) -> None:
    node = Node(1, dirs=("/d", "/e"))
    await node.apply([topic(SOLE)])
    log = node.replica.log
    dir_failures, happened = failures(node, has_other_replicas=has_others)
    error = dir_failures.failed(StorageError(log.log_dir, cause))
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_dir in node.logs.offline) is goes
    assert happened == ([[log.name], "second"] if goes else [])
    dir_failures.failed(StorageError(log.log_dir, cause))  # what meets it afterwards is answered alike
    assert len(happened) == (2 if goes else 0)


async def test_the_last_dir_that_fails_is_told_once() -> None:
    node = Node(1, dirs=("/d", "/e"))
    dir_failures, happened = failures(node)
    dir_failures.failed(StorageError("/d", BROKEN))
    assert "all" not in happened
    for _ in range(2):
        dir_failures.failed(StorageError("/e", BROKEN))
    assert happened.count("all") == 1


# --- log dirs that are lost ---------------------------------------------------------------------------------------


class Store:
    """Keeps an image."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.error: StorageError | None = None

    async def change(self, decide: Any) -> None:
        if self.error is not None:
            raise self.error
        self.image = self.image.apply(decide(self.image))


def kept(node: Node, *dir_ids: bytes) -> tuple[LostDirs, Store]:
    image = node.image.apply([LogDirsRegistered(1, frozenset(dir_ids))]) if dir_ids else node.image
    store = Store(image)
    return LostDirs(1, node.logs, node.replicas, store), store  # type: ignore[arg-type]


async def two_dirs() -> tuple[Node, bytes, bytes]:
    node = Node(1, dirs=("/d", "/e"))
    await node.apply([topic(SOLE, SOLE)])
    node.logs.write_meta("c", 1)
    first, other = (node.logs.meta[path].directory_id for path in ("/d", "/e"))
    assert first is not None
    assert other is not None
    return node, first, other


async def test_unknown_dir_is_logged_without_an_id(caplog: pytest.LogCaptureFixture) -> None:
    node, *_ = await two_dirs()
    dirs, store = kept(node)
    node.replicas.own_logs.lost_dirs = frozenset({LOST})
    node.replicas._close("t", 0)
    dirs.register(store.image)
    assert "a log dir is lost: 1 partitions" in caplog.text


@pytest.mark.parametrize(
    ("why", "is_possible"),
    [
        ("nothing", False),
        ("lost dir", True),
        ("missing log", True),
        ("another topic's", True),
        ("offline dir", False),
    ],
)
async def test_only_logs_that_cannot_come_back_are_given_up(why: str, is_possible: bool) -> None:
    node, first, other = await two_dirs()
    dirs, store = kept(node, first, other)
    if why in ("lost dir", "offline dir"):
        node.replicas.own_logs.lost_dirs = frozenset({OTHER_ID})
    if why == "missing log":
        node.logs.missing["t", 0] = "/d/t-0"
    if why == "another topic's":
        await node.apply([topic(SOLE, SOLE, id=NO_TOPIC_ID)])
        node.logs.get("t", 0).topic_id = OTHER_ID  # type: ignore[union-attr]
        node.replicas._image = node.image.apply([topic(SOLE, SOLE)])
    if why == "offline dir":
        node.storage_failed(StorageError("/e", BROKEN))
    assert await dirs.begin_again("t", 0) is is_possible
    info = store.image.topics["t"].partitions[0]
    assert info == (SOLE.with_sole_leader(1) if is_possible else SOLE)


# --- the ISR, decided here ----------------------------------------------------------------------------------------


async def carry_out(alter: LocalAlterPartition, proposals: Any) -> None:
    await alter._carry_out(proposals)


async def test_a_proposal_that_is_decided_here_is_answered() -> None:
    node = Node(1)
    await node.create(LED._replace(isr=(1,)))
    store = Store(node.image)
    alter = LocalAlterPartition(1, store)  # type: ignore[arg-type]
    node.replica.follower_fetched(2, 0, log_start_offset=0)
    [(replica, change)] = node.proposals
    await carry_out(alter, [(replica, change._replace(leader_epoch=4)), (replica, change)])
    assert replica.in_sync_replicas == {1, 2}
    assert store.image.topics["t"].partitions[0] == LED._replace(isr=(1, 2), partition_epoch=8)


async def test_a_proposal_that_could_not_be_kept_is_taken_back(autojump_clock: Any) -> None:
    node = Node(1)
    await node.create(LED._replace(isr=(1,)))
    store = Store(node.image)
    store.error = StorageError("/d", BROKEN)
    alter = LocalAlterPartition(1, store)  # type: ignore[arg-type]
    node.replica.follower_fetched(2, 0, log_start_offset=0)
    await carry_out(alter, node.proposals[:1])
    assert node.replica.in_sync_replicas == {1}
    node.replica.follower_fetched(2, 0, log_start_offset=0)
    assert len(node.proposals) == 2  # it is made again
