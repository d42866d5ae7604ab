"""A leader and its followers: which are proposed for the ISR, which may fetch, and what a failed disk ends."""

from __future__ import annotations

import pytest

from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import NOW_MS, batch
from tests.support.replicas import fetched, leader

# --- who may fetch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "epoch", "code"),
    [(2, 5, 0), (3, -1, 0), (4, 5, ErrorCode.UNKNOWN_LEADER_EPOCH), (4, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
     (4, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (1, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
)  # fmt: skip
async def test_only_replicas_fetch_as_followers(broker: int, epoch: int, code: int) -> None:
    node = await leader()
    assert node.replica.has_follower(broker) is (not code)
    if code:
        with pytest.raises(RequestError) as caught:
            node.replica.check_follower(broker, epoch)
        assert caught.value.code == code
        before = node.replica.log.high_watermark
        fetched(node, broker, 0)  # nothing comes of it
        assert (node.proposals, node.replica.log.high_watermark) == ([], before)
    else:
        node.replica.check_follower(broker, epoch)


# --- disks that fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
async def test_append_to_a_failed_disk_takes_the_replica_offline(own: bool) -> None:
    node = await leader()
    replica = node.replica
    with node.disk.failing("write"):
        if own:
            with pytest.raises(StorageError):
                replica.append_own(batch(b"x"), now_ms=NOW_MS)
        else:
            with pytest.raises(RequestError) as caught:
                node.produce(b"x")
            assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert replica.is_offline
    assert node.logs.offline
