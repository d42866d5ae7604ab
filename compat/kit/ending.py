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
    """Make SIGTERM raise an exception in this program, which ends its servers.

    Functions that start servers call it, so that programs need not; an existing handler stays. A second SIGTERM does not
    interrupt the shutdown. SIGINT raises KeyboardInterrupt anyway.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


@contextmanager
def rows_in_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Run rows that start servers in `count` threads. When the program ends, running rows end, and no other begins.

    A thread gets no signal, so each row ends its own servers.
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
