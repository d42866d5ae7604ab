"""Questions to the controller, and its end: what waits for what, what is broken off, and which broker stands again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.cluster.controller.state import Broker
from barnabas.cluster.metadata.image import ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.ports import ElectionType
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.session import ZooKeeperError
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.controller_cluster import Cluster, running

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def known(epochs: dict[int, int]) -> ClusterImage:
    """Knowledge of a topic of these partitions, by leader epoch."""
    parts = tuple(PartitionInfo(1, (1, 2), (1, 2), epochs[index]) for index in sorted(epochs))
    return ClusterImage("c", topics={"t": TopicInfo("t", b"i" * 16, parts)})


async def core_of(runtime: Any) -> Any:
    """The core of the active controller."""
    cores = []

    async def act(active: Any) -> None:
        cores.append(active.core)

    await runtime.ask_active("its core", act)
    return cores[0]


async def led_elsewhere(cluster: Cluster) -> Any:
    """The controller, with two partitions that broker 2 leads though broker 1 should."""
    await cluster.create_topic("t", (1, 2), (1, 2))
    await cluster.until(lambda: cluster.state("t", 1) is not None)
    runtime = cluster.brokers[1].runtime
    core = await core_of(runtime)
    for index in (0, 1):
        state = core.state.states["t", index]
        data = znodes.encode_state(znodes.PartitionState(2, 1, (1, 2), 1))
        stat = await cluster.admin.set(znodes.state_path("t", index), data)
        core.state.states["t", index] = state.next_epoch(2, (1, 2))
        core.state.states["t", index] = type(state)(2, (1, 2), 1, 1, stat.version)
    return runtime


@pytest.mark.parametrize(
    ("image", "after_s", "timeout_ms", "late"),
    [
        (known({0: 2, 1: 2}), 0.0, 1_000, []),
        (known({0: 5, 1: 2}), 0.5, 1_000, []),
        (known({0: 2, 1: 2}), 1.5, 1_000, [0, 1]),
        (known({0: 2, 1: 1}), 0.0, 1_000, [1]),
        (known({0: 2}), 0.0, 1_000, [1]),
        (ClusterImage("c"), 0.0, 1_000, [0, 1]),
        (known({0: 2, 1: 2}), 0.0, 0, []),
        (known({0: 2, 1: 2}), 0.1, 0, [0, 1]),
        (None, 0.0, 0, []),
    ],
)
async def test_an_election_is_waited_for_until_this_broker_knows_of_it(
    image: ClusterImage | None, after_s: float, timeout_ms: int, late: list[int], autojump_clock: Any
) -> None:
    async with running(1, 2) as cluster:
        runtime = await led_elsewhere(cluster)
        begun = trio.current_time()

        def seen() -> ClusterImage:
            assert image is not None
            is_time = trio.current_time() - begun >= after_s
            return image if is_time else known({0: 1, 1: 1})

        if image is not None:
            runtime._image = seen
        results = await runtime.elect_leaders(PREFERRED, [("t", 0), ("t", 1), ("u", 0)], timeout_ms)
        spent = trio.current_time() - begun
    codes = {place: error.code if error else 0 for place, error in results.items()}
    expected = {("t", index): ErrorCode.REQUEST_TIMED_OUT if index in late else 0 for index in (0, 1)}
    assert codes == expected | {("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert spent == pytest.approx(timeout_ms / 1000 if late else min(after_s, 1), abs=0.02)


async def test_a_question_that_nobody_waits_for_any_more_is_not_asked(autojump_clock: Any) -> None:
    async with running(1) as cluster:
        runtime = cluster.brokers[1].runtime
        asked: list[str] = []

        async def slow(_: Any) -> None:
            await trio.sleep(1)

        async def quick(_: Any) -> None:
            asked.append("quick")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.ask_active, "slow", slow)
            await trio.sleep(0.5)
            with trio.move_on_after(0.1) as scope:
                await runtime.ask_active("quick", quick)
            assert scope.cancelled_caught
        await runtime.ask_active("last", slow)
        assert asked == []


# --- the end ------------------------------------------------------------------------------------------------------


async def failing(runtime: Any, error: Exception) -> RequestError | None:
    """Ask a question that fails while it is answered; returns the error that its asker gets."""

    async def act(_: Any) -> None:
        raise error

    try:
        await runtime.ask_active("a question", act)
    except RequestError as refusal:
        return refusal
    return None


@pytest.mark.parametrize("error", [ZooKeeperError("no"), ValueError("bad"), RuntimeError("bug")])
async def test_a_controller_that_fails_gives_up_and_stands_again(
    error: Exception, autojump_clock: Any
) -> None:
    async with running(1, 2) as cluster:
        runtime = cluster.brokers[1].runtime
        refusal = await failing(runtime, error)
        assert refusal is not None
        assert (refusal.code, refusal.message) == (ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        await cluster.until(lambda: cluster.brokers[2].runtime.is_active)
        assert cluster.zookeeper.dump()["/controller_epoch"] == b"2"
        assert not runtime.is_active
        await cluster.until(lambda: runtime.controller_id == 2)


async def test_only_the_named_controller_is_deposed_by_others(autojump_clock: Any) -> None:
    async with running(1, 2, 3) as cluster:
        first, other = cluster.brokers[1].runtime, cluster.brokers[2].runtime
        for runtime, gone in ((first, 1), (first, 2), (other, 2), (other, 3)):
            runtime.controller_gone(gone)
            await trio.sleep(5)
            assert first.is_active
            assert first.epoch == 1
        other.controller_gone(1)
        other.controller_gone(1)
        await cluster.until(lambda: cluster.zookeeper.dump()["/controller_epoch"] == b"2")
        await trio.sleep(5)
        assert cluster.zookeeper.dump()["/controller_epoch"] == b"2"


async def test_unreachable_other_brokers_are_events(autojump_clock: Any) -> None:
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (2, 1), (1, 2))
        await cluster.until(lambda: cluster.state("t", 1) is not None)
        runtime = cluster.brokers[1].runtime
        state = (await core_of(runtime)).state
        contact: Callable[[Broker, bool], None] = runtime._channels.contact
        contact(state.brokers[1], False)
        await trio.sleep(1)
        assert state.refusing == set()
        contact(state.brokers[2], False)
        await cluster.until(lambda: cluster.state("t", 0).leader == 1)
        assert state.refusing == {2}
        contact(state.brokers[2], True)
        await cluster.until(lambda: not state.refusing)


async def test_unclean_elections_are_held_once_they_are_allowed(autojump_clock: Any) -> None:
    async with running(1, 2) as cluster:
        await cluster.create_topic("t", (2, 1), (2, 1))
        await cluster.create_topic("u", (2, 1))
        await cluster.until(lambda: cluster.state("u") is not None and cluster.state("t", 1) is not None)
        runtime = cluster.brokers[1].runtime
        for path in ("t", "u"):
            for index in range(2 if path == "t" else 1):
                state = (await core_of(runtime)).state
                now = state.states[path, index]
                data = znodes.encode_state(znodes.PartitionState(2, 1, (2,), 1))
                stat = await cluster.admin.set(znodes.state_path(path, index), data)
                state.states[path, index] = type(now)(2, (2,), 1, 1, stat.version)
        cluster.brokers[2].stop()
        await cluster.until(lambda: cluster.state("t", 1).leader == -1 and cluster.state("u").leader == -1)
        settings: Callable[[Any], bool] = lambda _: True  # noqa: E731
        runtime._active._allows_unclean = settings
        runtime.unclean_election_allowed("t")
        await cluster.until(lambda: cluster.state("t", 0).leader == cluster.state("t", 1).leader == 1)
        assert cluster.state("u").leader == -1
        runtime.unclean_election_allowed(None)
        await cluster.until(lambda: cluster.state("u").leader == 1)


async def test_a_stopped_broker_is_the_controller_no_more(autojump_clock: Any) -> None:
    async with running(1) as cluster:
        broker = cluster.brokers[1]
        waits: list[int] = []

        async def forever(_: Any) -> None:
            await trio.sleep_forever()

        async def ask(act: Callable[[Any], Awaitable[None]]) -> None:
            try:
                await broker.runtime.ask_active("a question", act)
            except RequestError as error:
                waits.append(error.code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, forever)
            nursery.start_soon(ask, forever)
            await trio.testing.wait_all_tasks_blocked()
            broker.stop()
        assert waits == [ErrorCode.NOT_CONTROLLER] * 2
        assert not broker.runtime.is_active
        assert not broker.runtime._channels._scopes
