"""A whole simulated broker with a wall clock that is set while a member is in a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from barnabas.client import Client, ClientSettings, Endpoint, open_client
from barnabas.testing.simulation.broker import SimulatedBroker
from barnabas.testing.simulation.world import World, run_world
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest

HOUR_MS = 3_600_000
SESSION_MS = 10_000
BEFORE_KNOWN_IDS = 3  # JoinGroup up to this version lets a member in at once
Beat = Callable[[], Awaitable[int]]


async def joined(client: Client, group: str) -> Beat:
    """Join a group; returns what sends a heartbeat and says its error code."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=[protocol],
    )
    member = await client.ask_coordinator(group, join, version_max=BEFORE_KNOWN_IDS)
    identity = {"group_id": group, "generation_id": member.generation_id, "member_id": member.member_id}
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"")
    sync = SyncGroupRequest(**identity, assignments=[assignment])
    assert (await client.ask_coordinator(group, sync, version_max=BEFORE_KNOWN_IDS)).error_code == 0

    async def beat() -> int:
        code: int = (await client.ask_coordinator(group, HeartbeatRequest(**identity))).error_code
        return code

    return beat


def in_group(steps_ms: int, wait_s: float) -> int:
    """The answer to a heartbeat that comes so long after the one before, with the clock set in between."""

    async def program(world: World) -> int:
        async with trio.open_nursery() as nursery:
            machine = SimulatedBroker(world, nursery)
            await machine.start()
            host = world.network.host("client")

            async def dial(endpoint: Endpoint) -> trio.abc.Stream:
                return await host.dial(endpoint.host, endpoint.port)

            async with open_client(machine.bootstrap, ClientSettings(), dial=dial) as client:
                beat = await joined(client, "g")
                assert await beat() == 0
                machine.clock.step(steps_ms)
                await joined(client, "another")  # so that all timers are looked at
                await trio.sleep(wait_s)
                code = await beat()
            nursery.cancel_scope.cancel()
        return code

    return run_world(0, program, seconds_max=120.0)


@pytest.mark.parametrize("steps_ms", [HOUR_MS, 0, -HOUR_MS])
def test_wall_clock_does_not_shorten_a_session_timeout(steps_ms: int) -> None:
    assert in_group(steps_ms, SESSION_MS / 1000 - 1) == 0


@pytest.mark.parametrize("steps_ms", [HOUR_MS, 0, -HOUR_MS])
def test_silent_member_expires_whatever_the_wall_clock_says(steps_ms: int) -> None:
    assert in_group(steps_ms, SESSION_MS / 1000 + 1) == ErrorCode.UNKNOWN_MEMBER_ID
