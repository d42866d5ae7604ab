"""Calls in child processes, and the limits at which they end."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise

import pytest
import trio
import trio.testing

from barnabas.patterns import PatternError
from barnabas.registry.errors import RegistryError, SchemaError
from barnabas.sandbox.messages import SandboxError
from barnabas.sandbox.pool import Sandbox
from tests.support import sandboxed


@pytest.fixture
async def sandbox():
    async with Sandbox(seconds_max=20) as sandbox:
        yield sandbox


async def test_call_returns_the_functions_value(sandbox):
    assert await sandbox.call(sandboxed.joined, "a", b"b") == ("a", b"b")


async def test_calls_one_after_the_other_share_a_process(sandbox):
    assert await sandbox.call(os.getpid) == await sandbox.call(os.getpid) != os.getpid()


@pytest.mark.parametrize(
    "error",
    [
        SchemaError("no schema"),
        RegistryError(409, 409, "differs"),
        PatternError("(", "missing"),
        KeyError("a"),
    ],
)
async def test_call_raises_the_functions_exception(sandbox, error):
    with pytest.raises(type(error)) as raised:
        await sandbox.call(sandboxed.raising, error)
    assert raised.value.args == error.args
    assert await sandbox.call(sandboxed.joined, 1) == (1,)


async def test_error_that_a_pickle_loses_arrives_with_its_text(sandbox):
    with pytest.raises(SandboxError, match=r"^UnpickledError: x in line 3$"):
        await sandbox.call(sandboxed.raise_unpickled)
    assert await sandbox.call(sandboxed.joined, 1) == (1,)


async def test_memory_beyond_the_limit_is_an_error_not_the_end():
    async with Sandbox(memory_bytes=128 << 20, seconds_max=20) as sandbox:
        with pytest.raises(SandboxError, match="128 MiB of memory"):
            await sandbox.call(sandboxed.allocate, 1 << 30)
        assert await sandbox.call(sandboxed.joined, 1) == (1,)


async def test_nesting_beyond_the_stack_is_an_error(sandbox):
    with pytest.raises(SandboxError, match="nested too deeply"):
        await sandbox.call(sandboxed.recurse)


async def test_result_beyond_the_limit_is_an_error(sandbox):
    with pytest.raises(SandboxError, match="more than 16 MiB"):
        await sandbox.call(bytes, 17 << 20)
    assert await sandbox.call(sandboxed.joined, 1) == (1,)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
async def test_end_of_the_process_is_an_error(sandbox, number):
    with pytest.raises(SandboxError, match=number.name):
        await sandbox.call(sandboxed.end_by, number)
    assert await sandbox.call(sandboxed.joined, 1) == (1,)


async def test_process_that_ended_between_calls_is_replaced(sandbox):
    process = await sandbox.call(os.getpid)
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    assert await sandbox.call(sandboxed.joined, 1) == (1,)


async def test_call_ends_after_its_seconds():
    async with Sandbox(seconds_max=0.5) as sandbox:
        began = time.monotonic()
        with pytest.raises(SandboxError, match=r"more than 0\.5 s"):
            await sandbox.call(sandboxed.spin)
        assert time.monotonic() - began < 5


def test_cpu_time_ends_a_call_while_the_clock_is_frozen():
    async def main() -> None:
        async with Sandbox(seconds_max=0.5) as sandbox:
            with pytest.raises(SandboxError, match="takes too long"):
                await sandbox.call(sandboxed.spin)

    trio.run(main, clock=trio.testing.MockClock())


async def test_cancelled_call_ends_its_process(sandbox, tmp_path):
    file = tmp_path / "pid"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sandbox.call, sandboxed.spin, str(file))
        while not file.exists() or not file.read_text():
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


async def test_call_that_waits_ends_the_longest_running_one():
    async with Sandbox(processes_max=1, seconds_max=60) as sandbox:
        ended = []

        async def spin() -> None:
            with pytest.raises(SandboxError, match="while others wait"):
                await sandbox.call(sandboxed.spin, owner="heavy")
            ended.append("heavy")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(spin)
            await trio.sleep(0.1)
            with trio.fail_after(20):
                assert await sandbox.call(sandboxed.joined, 1, owner="light") == (1,)
        assert ended == ["heavy"]


async def test_owner_has_one_call_at_a_time(sandbox):
    times = []

    async def call() -> None:
        times.append(await sandbox.call(sandboxed.interval, 0.2, owner="ann"))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(call)
    times.sort()
    assert all(end <= begin for (_, end), (begin, _) in pairwise(times))


async def test_calls_at_once_share_a_child_that_is_quick() -> None:
    """A child takes longer to start than most calls take: a call waits a moment for one that others use."""
    processes: list[int] = []
    async with Sandbox() as sandbox:
        await sandbox.call(os.getpid)

        async def call() -> None:
            processes.append(await sandbox.call(os.getpid))

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(call)
    assert len(processes) == 20
    assert len(set(processes)) < 4
