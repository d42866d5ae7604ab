"""A broker process for the tests of programs that use Kafka clients.

The rule: the broker is ready when the block begins, has ended when it ends, and no other process has its port.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import IO, TypeVar

import trio

T = TypeVar("T")

READY = "bootstrap.servers="
START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0


class BrokerFailedError(Exception):
    """The broker did not start; the text ends with its log."""


class RunningBroker:
    """A broker that runs for the length of a `with` or an `async with` block (Trio, asyncio or AnyIO).

    `settings` are Kafka's, by name. Without `data` nothing is left when the broker stops; with it, the directory is
    used and kept, so that a second broker can continue with it. `stop` and `start` may be called within the block, to
    test a program with a broker that disappears and returns on another port.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
    ) -> None:
        self.bootstrap = ""
        """`host:port` for a client's bootstrap.servers, once the broker runs."""
        self._arguments = ["serve", "--listen", listen]
        self._arguments += ["--ephemeral"] if data is None else ["--data", os.fspath(data)]
        for name, value in (settings or {}).items():
            self._arguments += ["--set", f"{name}={value}"]
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def start(self) -> None:
        """Start the broker and wait until it is ready. Raises BrokerFailedError."""
        if self._process is not None:
            raise RuntimeError("the broker runs already")
        if self._log is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": import_path()},
        )
        try:
            line = self._first_line()
            if READY not in line:
                raise BrokerFailedError(f"the broker did not start: {self.log().strip() or line.strip()}")
            self.bootstrap = line.partition(READY)[2].split()[0]
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stop the broker cleanly (SIGTERM), or kill it when that takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._ended()

    def kill(self) -> None:
        """End the broker as a crash does (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def log(self) -> str:
        """Return the text that the broker has written to its log so far."""
        if self._log is None:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def close(self) -> None:
        """Stop the broker, and forget its log."""
        self.stop()
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> RunningBroker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> RunningBroker:
        try:
            await in_thread(self.__enter__)
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.close)

    def _first_line(self) -> str:
        """Return the ready line, or the output until the broker ended. Raises BrokerFailedError after a timeout."""
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        line = b""
        deadline_s = time.monotonic() + START_SECONDS_MAX
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(deadline_s - time.monotonic(), 0)):
                    raise BrokerFailedError(
                        f"the broker is not ready after {START_SECONDS_MAX:.0f} s: {self.log()}"
                    )
                received = os.read(descriptor, 4096)
                if not received:
                    self._process.wait(STOP_SECONDS_MAX)
                    break
                line += received
        return line.decode()

    def _ended(self) -> None:
        assert self._process is not None
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


def import_path(*others: str | os.PathLike[str]) -> str:
    """Return a PYTHONPATH by which a child process imports this very package, whether installed or in a checkout.

    It is followed by `others`, and by the inherited PYTHONPATH.
    """
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([here, *map(str, others), *([inherited] if inherited else [])])


async def in_thread(function: Callable[[], T]) -> T:
    """Call a blocking function in a thread of the running event loop; a cancellation waits for its return."""
    if trio.lowlevel.in_trio_task():
        with trio.CancelScope(shield=True):
            return await trio.to_thread.run_sync(function)
    import asyncio

    call = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await call
        raise
