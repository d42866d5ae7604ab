"""`barnabas groups` with share and streams groups; their members are heartbeats of a bare client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client import Client
from barnabas.client.blocking import BlockingClient
from barnabas.testing import KafkaBroker, start_thread
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest as Streams
from barnabas.wire.ids import uuid_text

from .conftest import Commands

SHARE, STREAMS = uuid_text(b"share member id."), uuid_text(b"streams member.!")


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker with a topic of two partitions, three records in each."""
    started = start_thread({"share.coordinator.append.linger.ms": "0"})
    started.create_topic("read", 2)
    started.produce("read", *({"value": "x", "partition": number % 2} for number in range(6)))
    yield started
    started.close()


@pytest.fixture
def client(broker: KafkaBroker, run: Commands) -> Iterator[BlockingClient]:
    run("brokers", "features", "update", "share.version=2", "streams.version=1", "--yes")
    result = BlockingClient(broker.bootstrap)
    yield result
    result.close()


def ask(client: BlockingClient, group: str, request: Any) -> Any:
    async def work(asked: Client) -> Any:
        return await asked.ask_coordinator(group, request)

    response = client.run(work)
    assert response.error_code == 0, response
    return response


def test_a_share_group_is_described_reset_and_forgets(run: Commands, client: BlockingClient) -> None:
    epoch = ask(client, "shares", ShareGroupHeartbeatRequest("shares", SHARE, 0, None, ["read"])).member_epoch
    ask(client, "shares", ShareGroupHeartbeatRequest("shares", SHARE, epoch))
    (group,) = run.rows("groups", "groups", "describe", "shares")
    assert (group["kind"], group["state"], group["members"]) == ("share", "Stable", 1)
    (member,) = run.rows("members", "groups", "describe", "shares")
    assert (member["member_id"], member["partitions"], member["subscription"]) == (SHARE, 2, ["read"])
    reset = ("groups", "reset-offsets", "shares", "-t", "read")
    assert "is Stable: stop its members first" in run(*reset, "--to-earliest", code=1)[1]
    ask(client, "shares", ShareGroupHeartbeatRequest("shares", SHARE, -1))
    rows = run.rows("offsets", *reset, "--to-offset", "1", "--execute")
    assert [(row["new"], row["is_done"], row["error"]) for row in rows] == [(1, True, None)] * 2
    lags = run.rows("offsets", "groups", "describe", "shares")
    assert [(lag["partition"], lag["committed"], lag["lag"]) for lag in lags] == [(0, 1, 2), (1, 1, 2)]
    assert (
        "leave out the partition" in run("groups", "delete-offsets", "shares", "read:0", "--yes", code=2)[1]
    )
    (row,) = run.rows("offsets", "groups", "delete-offsets", "shares", "read", "--yes")
    assert (row["topic"], row["outcome"]) == ("read", "deleted")
    assert run.rows("groups", "groups", "delete", "shares", "--yes")[0]["outcome"] == "deleted"


def test_a_streams_group_is_described_by_its_tasks(run: Commands, client: BlockingClient) -> None:
    topology = Streams.Topology(1, [Streams.Subtopology("0", ["read"])])
    first = Streams("flows", STREAMS, rebalance_timeout_ms=10_000, topology=topology, process_id="p")
    first.active_tasks, first.standby_tasks, first.warmup_tasks, first.client_tags = [], [], [], []
    epoch = ask(client, "flows", first).member_epoch
    epoch = ask(client, "flows", Streams("flows", STREAMS, epoch, rebalance_timeout_ms=-1)).member_epoch
    (group,) = run.rows("groups", "groups", "describe", "flows")
    assert (group["kind"], group["members"]) == ("streams", 1)
    (member,) = run.rows("members", "groups", "describe", "flows")
    assert (member["partitions"], member["subscription"]) == (2, ["read"])
    lags = run.rows("offsets", "groups", "describe", "flows")
    assert [(lag["topic"], lag["partition"], lag["latest"], lag["member_id"]) for lag in lags] == [
        ("read", 0, 3, STREAMS), ("read", 1, 3, STREAMS),
    ]  # fmt: skip
    assert [row["group"] for row in run.rows("groups", "groups", "list", "--kind", "streams")] == ["flows"]
