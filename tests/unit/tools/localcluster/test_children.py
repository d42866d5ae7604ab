"""Processes of a local cluster: their first line, their end, and what is said of it."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from barnabas.tools.localcluster.children import Child, ChildError, ending

WAITS = "import sys; print('ready', flush=True); sys.stdin.close(); import signal; signal.pause()"


@asynccontextmanager
async def running(tmp_path: Path, program: str) -> AsyncIterator[Child]:
    child = Child("child", [sys.executable, "-c", program], tmp_path / "child.log")
    async with trio.open_nursery() as nursery:
        child.start(reads_output=True)
        nursery.start_soon(child.wait)
        try:
            yield child
        finally:
            child.signal(signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await child.ended.wait()


async def test_a_child_says_that_it_is_ready_and_ends_when_it_is_told(tmp_path: Path) -> None:
    async with running(tmp_path, WAITS) as child:
        assert await child.first_line(60) == "ready"
        assert await child.stop(60)
        assert child.code == -signal.SIGTERM


async def test_child_that_ends_at_once_is_reported_with_last_words(tmp_path: Path) -> None:
    async with running(tmp_path, "import sys; sys.exit('port 1 is in use')") as child:
        with pytest.raises(ChildError, match=r"(?s)child does not start.*child\.log.*port 1 is in use"):
            await child.first_line(60)
        await child.ended.wait()
        assert child.code == 1


async def test_abandoned_child_can_still_report_ready(tmp_path: Path) -> None:
    late = (
        "import os, signal, sys, time;"
        "signal.signal(signal.SIGTERM, lambda *_: (print('ready', flush=True), os._exit(0)));"
        "print('begun', file=sys.stderr, flush=True); time.sleep(60)"
    )
    async with running(tmp_path, late) as child:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(child.first_line, 60)
                while "begun" not in (tmp_path / "child.log").read_text():
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
            assert await child.stop(60)
        assert child.code == 0, child.last_words()


async def test_a_child_that_does_not_end_is_killed(tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + WAITS
    async with running(tmp_path, deaf) as child:
        await child.first_line(60)
        assert not await child.stop(0.01)
        assert child.code == -signal.SIGKILL


async def test_a_child_that_is_killed_by_somebody_is_noticed(tmp_path: Path) -> None:
    async with running(tmp_path, WAITS) as child:
        await child.first_line(60)
        child.signal(signal.SIGKILL)
        await child.ended.wait()
        assert child.code is not None
        assert ending(child.code) == "killed by SIGKILL"


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChildError, match=r"child cannot be started: .*/no/such"):
        Child("child", ["/no/such"], tmp_path / "child.log").start(reads_output=True)
