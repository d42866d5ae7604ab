"""The end of other processes is seen, by a descriptor of Linux and by kqueue."""

import os
import signal
import subprocess
import sys
from contextlib import closing

import pytest
import trio

from barnabas.system import processes
from barnabas.system.processes import watch_process
from tests.support.systems import has_ended

SLEEP = [sys.executable, "-c", "input()"]
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.DEVNULL)
input()
"""
CHILD = """
import signal, sys
from barnabas.system import processes
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(print("ended", flush=True)))
{begin}(signal.SIGUSR1)
print("begun", flush=True)
while True: signal.pause()
"""


async def test_the_end_of_a_process_can_be_waited_for():
    with (
        subprocess.Popen(SLEEP, stdin=subprocess.PIPE) as process,
        closing(watch_process(process.pid)) as watched,
    ):
        with trio.move_on_after(0.05) as scope:
            await trio.lowlevel.wait_readable(watched.fileno())
        assert scope.cancelled_caught
        process.stdin.close()
        await trio.lowlevel.wait_readable(watched.fileno())
        assert process.wait() == 1


async def test_unwaited_process_counts_as_ended():
    process = subprocess.Popen(SLEEP, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not has_ended(process.pid):
        pass  # `ps` is a wait by itself
    try:
        watched = watch_process(process.pid)
    except ProcessLookupError:
        pass
    else:
        with closing(watched):
            await trio.lowlevel.wait_readable(watched.fileno())
    assert process.wait() == 1


def test_a_process_that_never_was_cannot_be_watched():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(ProcessLookupError):
        watch_process(process.pid)


@pytest.mark.parametrize("begin", ["signal_when_parent_ends", "_signal_by_thread"])
def test_a_process_is_told_that_its_parent_was_killed(begin):
    assert hasattr(processes, begin)
    child = CHILD.format(begin=f"processes.{begin}")
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, child],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as parent:
        assert parent.stdout.readline() == b"begun\n"
        parent.send_signal(signal.SIGKILL)
        assert parent.stdout.read() == b"ended\n"  # the child holds the same output open until it ends
