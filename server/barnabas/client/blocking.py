"""The client for programs without Trio: its loop runs in a thread of its own.

The rule: one thread a client, ended by `close`; calls come from any thread and wait for the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from barnabas.client.client import Client, open_client
from barnabas.client.settings import ClientSettings

T = TypeVar("T")


class BlockingClient:
    """A `Client` that can be asked from ordinary code. Lifecycle: open after construction, until `close`."""

    def __init__(self, bootstrap: str, settings: ClientSettings | None = None) -> None:
        """Start the loop; nothing is connected yet. Raises ValueError for addresses that are none."""
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._token: trio.lowlevel.TrioToken
        self._client: Client
        self._closing: trio.Event
        self._thread = threading.Thread(
            target=self._run, args=(bootstrap, settings), name="barnabas-client", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _run(self, bootstrap: str, settings: ClientSettings | None) -> None:
        try:
            trio.run(self._serve, bootstrap, settings)
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self, bootstrap: str, settings: ClientSettings | None) -> None:
        self._closing = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with open_client(bootstrap, settings) as client:
            self._client = client
            self._ready.set()
            await self._closing.wait()

    def run(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Do something with the client in its loop, and return what it returns."""
        return trio.from_thread.run(work, self._client, trio_token=self._token)

    def ask(self, message: Any, **options: Any) -> Any:
        """Ask any broker, as `Client.ask`."""
        return self.run(lambda client: client.ask(message, **options))

    def close(self) -> None:
        """Close all connections and end the loop."""
        if self._thread.is_alive():
            trio.from_thread.run_sync(self._closing.set, trio_token=self._token)
            self._thread.join()
