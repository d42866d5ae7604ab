"""A broker that stops hands over what it leads, and stops in the end whatever the controller says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.broker.controlled_shutdown import VERSION_MAX, shut_down_controlled
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.config.loading import BrokerConfig
from barnabas.wire.generated.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from barnabas.wire.generated.errors import ErrorCode

LEFT = ControlledShutdownResponse(
    remaining_partitions=[ControlledShutdownResponse.RemainingPartition("t", 3)]
)
DONE = ControlledShutdownResponse()
REFUSED = ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
LOST = PeerUnavailableError("gone")
UNREACHABLE = None
"""ZooKeeper cannot be reached: the controller is not asked."""


class World:
    """A controller that answers so, one time after the other; then without end as it did last."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[float, Any]] = []

    def can_change(self) -> bool:
        if self.answers[0] is UNREACHABLE and len(self.answers) > 1:
            self.answers.pop(0)
            return False
        return self.answers[0] is not UNREACHABLE

    async def ask(self, broker_id: int, request: Any, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        assert (broker_id, options) == (
            5,
            {"version_max": VERSION_MAX, "timeout_s": 7.0, "channel": "shutdown"},
        )
        self.asked.append((trio.current_time(), request))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stop(self, **settings: str) -> bool:
        config = BrokerConfig(
            {
                "controlled.shutdown.max.retries": "3",
                "controlled.shutdown.retry.backoff.ms": "2000",
                "controller.socket.timeout.ms": "7000",
            }
            | {name.replace("_", "."): text for name, text in settings.items()}
        )
        peers: Any = self
        image: Any = SimpleNamespace(controller_id=5)
        return await shut_down_controlled(config, 4, 44, peers, lambda: image, self.can_change)


@pytest.mark.parametrize(
    ("answers", "is_done", "asked_at"),
    [
        ((DONE,), True, [0]),
        ((LEFT, DONE), True, [0, 2]),
        ((REFUSED, LOST, DONE), True, [0, 2, 4]),
        ((LEFT,), False, [0, 2, 4]),
        ((REFUSED,), False, [0, 2, 4]),
        ((LOST,), False, [0, 2, 4]),
        ((UNREACHABLE, DONE), True, [2]),
        ((UNREACHABLE,), False, []),
    ],
)
async def test_controller_is_asked_until_nothing_is_led_or_the_limit(
    answers: tuple[Any, ...], is_done: bool, asked_at: list[int], autojump_clock: trio.testing.MockClock
) -> None:
    world = World(*answers)
    begun = trio.current_time()
    assert await world.stop() is is_done
    assert [at - begun for at, _ in world.asked] == pytest.approx(asked_at)
    assert trio.current_time() - begun <= 4 + 1e-6, "after the last time nothing is waited for"
    assert all(
        request == ControlledShutdownRequest(broker_id=4, broker_epoch=44) for _, request in world.asked
    )


async def test_a_broker_may_be_told_to_stop_at_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(DONE)
    assert not await world.stop(controlled_shutdown_enable="false")
    assert (world.asked, caplog.records) == ([], [])


async def test_what_is_left_is_said(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    caplog.set_level("INFO", "barnabas.broker.controlled_shutdown")
    await World(LEFT, REFUSED, UNREACHABLE).stop()
    assert [record.getMessage() for record in caplog.records] == [
        "this broker still leads 1 partitions: t-3",
        "controller 5 refused the controlled shutdown: STALE_BROKER_EPOCH",
        "ZooKeeper cannot be reached, so no other broker can take over the partitions that this broker leads",
        "stopping, although other brokers have not taken over all partitions that this broker leads",
    ]


async def test_some_of_many_that_are_left_are_named(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    caplog.set_level("INFO", "barnabas.broker.controlled_shutdown")
    remaining = [ControlledShutdownResponse.RemainingPartition("t", number) for number in range(12)]
    await World(ControlledShutdownResponse(remaining_partitions=remaining), DONE).stop()
    names = ", ".join(f"t-{number}" for number in range(10))
    assert caplog.records[0].getMessage() == f"this broker still leads 12 partitions: {names}"
