"""A process beside the driver for the tasks of small rounds, for which a Spark job costs more than its tasks.

The rule: tasks run here as in Spark's workers, never in the driver's own process; so a record that crashes its reader kills
the worker, and Spark runs the same tasks again.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeVar, cast

OFFSETS_MAX = 100_000  # offsets of a round up to which a Spark job costs more than its tasks

T = TypeVar("T")
R = TypeVar("R")


class Worker:
    """A process that starts with its first tasks, and ends with the driver. Threads share it, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, work: Callable[[list[T]], list[R]], items: list[T]) -> list[R] | None:
        """Return the result of `work`, a function of a module, for some items; None if the process died.

        Raises the exceptions of `work`.
        """
        with self._lock:
            try:
                connection = self._connection or self._start()
                connection.send((work, items))
                answer = connection.recv()
            except (EOFError, ConnectionError):
                self.close()
                return None
            except BaseException:  # such as Ctrl-C, after which the next answer would be of these tasks
                self.close()
                raise
        if isinstance(answer, BaseException):
            raise answer
        return cast("list[R]", answer)

    def _start(self) -> Connection:
        self._connection, theirs = Pipe()
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        return self._connection

    def close(self) -> None:
        """End the process; the next tasks start another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


SHARED = Worker()
"""The worker of all jobs of this process."""
atexit.register(SHARED.close)


def serve(connection: Connection) -> None:
    """Run tasks, and send their results or exceptions, until the driver has ended."""
    with connection, suppress(EOFError, ConnectionError):
        while True:
            work, items = connection.recv()
            try:
                answer = work(items)
            except Exception as error:
                error.add_note(traceback.format_exc())
                answer = error
            connection.send(answer)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole process group; the driver handles them
        signal.signal(number, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])))
