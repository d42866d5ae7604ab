"""The client for programs without Trio: its loop runs in a separate thread.

The rule: one thread for each client, ended by `close`; any thread may call it, and waits for the answer. A forked
process has none of its parent's threads: it must open its own client.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

import trio

from barnabas.client.client import Client, open_client
from barnabas.client.errors import ClosedError
from barnabas.client.settings import ClientSettings, Endpoint, parse_bootstrap

T = TypeVar("T")


class BlockingClient:
    """A `Client` for synchronous code. Lifecycle: open after construction, until `close`."""

    def __init__(self, bootstrap: str | Iterable[Endpoint], settings: ClientSettings | None = None) -> None:
        """Start the loop; nothing is connected yet. Raises ValueError for invalid addresses."""
        endpoints = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else list(bootstrap)
        self._process_id = os.getpid()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._token: trio.lowlevel.TrioToken
        self._client: Client
        self._closing: trio.Event
        self._thread = threading.Thread(
            target=self._run, args=(endpoints, settings), name="barnabas-client", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _run(self, bootstrap: list[Endpoint], settings: ClientSettings | None) -> None:
        try:
            trio.run(self._serve, bootstrap, settings)
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self, bootstrap: list[Endpoint], settings: ClientSettings | None) -> None:
        self._closing = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with open_client(bootstrap, settings) as client:
            self._client = client
            self._ready.set()
            await self._closing.wait()

    def run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Run `work` with the client in its loop, and return the result.

        Raises the errors of `work`, and ClosedError after `close`, while it closes, and in a forked process.
        """
        if os.getpid() != self._process_id:
            raise ClosedError("the client belongs to the process that this one was forked from")
        try:
            return trio.from_thread.run(work, self._client, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            if self._failure is not None:
                raise ClosedError(f"the client's loop has ended: {self._failure!r}") from self._failure
            raise ClosedError("the client is closed") from None

    def ask(self, message: Any, **options: Any) -> Any:
        """Ask any broker, as `Client.ask`."""
        return self.run(lambda client: client.ask(message, **options))

    def close(self) -> None:
        """Close all connections and end the loop; also from a finalizer, in any thread. Does nothing when forked."""
        if os.getpid() != self._process_id or not self._thread.is_alive():
            return
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._closing.set)
        if self._thread is not threading.current_thread():
            self._thread.join()
