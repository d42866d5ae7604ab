"""Servers end with the programs that start them."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType


def end_servers_at_sigterm() -> None:
    """Have SIGTERM end this program as an exception does, which ends the servers that it has started.

    What starts a server calls it, so that no program has to think of it; a handler that is there stays. A second SIGTERM
    does not break off the ending. SIGINT is KeyboardInterrupt as it is.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


@contextmanager
def rows_in_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Run what starts servers in so many threads. When the program is to end, the rows in hand end, and no other begins.

    A thread gets no signal, so what a row has started is ended by the row.
    """
    end_servers_at_sigterm()
    with ThreadPoolExecutor(count) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)
