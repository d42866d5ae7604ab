"""Large appends that a thread writes first: the append takes what is there, and what is not appended is taken back."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.replicas.replica import Replica
from barnabas.errors import RequestError, StorageError
from barnabas.records.steps import run
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import NOW_MS, batch
from tests.support.replicas import FOLLOWED, Node, leader

NOW = {"now_ms": NOW_MS}


def validated(replica: Replica, *values: bytes) -> Any:
    return run(replica.validation(memoryview(batch(*values)), acks=1, api_version=11, **NOW))


def sizes(node: Node, replica: Replica) -> dict[str, int]:
    directory = replica.log.dir
    return {file.name: len(node.disk.read(f"{directory}/{file.name}")) for file in node.disk.list(directory)}


async def test_only_a_leader_writes() -> None:
    node = await leader()
    replica, valid = node.replica, validated(node.replica, b"x")
    await node.change(FOLLOWED)
    with pytest.raises(RequestError) as caught:
        replica.begin_background_write(valid, **NOW)
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("moment", ["begin", "end"])
async def test_a_disk_that_fails_takes_the_replica_offline(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await leader()
    replica, valid = node.replica, validated(node.replica, b"x")
    write = replica.begin_background_write(valid, **NOW)
    assert write is not None

    def fails(*_: object, **__: object) -> None:
        raise StorageError("/d", OSError(5, "broken"))

    monkeypatch.setattr(type(replica.log), f"{moment}_background_write", fails)
    if moment == "begin":
        with pytest.raises(RequestError) as caught:
            replica.begin_background_write(valid, **NOW)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    else:
        replica.end_background_write(replica.log, write)
    assert replica.is_offline
    assert list(node.logs.offline) == ["/d"]
