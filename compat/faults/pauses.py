"""Pauses of clients in each round, and their delay once ZooKeeper had ended a broker's session.

The rule: the moment at which a session ends is ZooKeeper's own, seen by a watch; what comes after it is ours.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.states import EventType

CHECK_S = 1.0


class Registrations:
    """Records when brokers' registrations end. Lifecycle: `start` once all brokers are registered, `stop`."""

    def __init__(self, client: KazooClient, paths: dict[int, str]) -> None:
        """`paths` has the znode of each broker's registration."""
        self._client = client
        self._paths = paths
        self._gone: dict[int, list[float]] = defaultdict(list)
        self._is_over = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        for broker_id in self._paths:
            threading.Thread(target=self._watch, args=(broker_id,), daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._is_over.set()

    def gone_at(self, broker_id: int, since: float) -> float | None:
        """Return when (`time.monotonic`) a broker's registration first ended after `since`; None if it did not."""
        return next((moment for moment in self._gone[broker_id] if moment >= since), None)

    def _watch(self, broker_id: int) -> None:
        while not self._is_over.is_set():
            fired = threading.Event()

            def changed(event: Any, fired: threading.Event = fired) -> None:
                if event.type == EventType.DELETED:
                    self._gone[broker_id].append(time.monotonic())
                fired.set()

            try:
                self._client.exists(self._paths[broker_id], watch=changed)
            except KazooException:
                self._is_over.wait(0.1)
                continue
            while not fired.wait(CHECK_S) and not self._is_over.is_set():
                pass


@dataclass(frozen=True, slots=True)
class Pauses:
    """Of one round, in s, by client: the longest time without an acknowledgement from some partition, and the time from
    the end of the broker's session to the next acknowledgement of every partition, where the kind of fault ends it.
    """

    longest: dict[str, float]
    session_s: float | None = None
    resumed: dict[str, float] | None = None

    def late(self, resume_within_s: float) -> dict[str, float]:
        """Return the clients that took longer to resume, with their times (s)."""
        return {name: pause for name, pause in (self.resumed or {}).items() if pause > resume_within_s}


def table(rounds: dict[str, list[Pauses]]) -> list[str]:
    """Lines of a table: for each kind of fault the worst of all rounds."""
    clients = list(
        dict.fromkeys(name for of_kind in rounds.values() for pauses in of_kind for name in pauses.longest)
    )
    lines = [
        f"| kind | rounds | session ended after | {' | '.join(clients)} |",
        f"|---|---|---|{'---|' * len(clients)}",
    ]
    for kind, of_kind in sorted(rounds.items()):
        ended = [pauses for pauses in of_kind if pauses.resumed is not None]
        cells = []
        for name in clients:
            longest = _largest(pauses.longest[name] for pauses in of_kind)
            resumed = _largest(pauses.resumed[name] for pauses in ended if pauses.resumed is not None)
            cells.append(longest + (f" ({resumed} after it)" if ended else ""))
        session = _largest(row.session_s for row in ended if row.session_s is not None) if ended else "-"
        lines.append(f"| {kind} | {len(of_kind)} | {session} | {' | '.join(cells)} |")
    return lines


def _largest(seconds: Iterable[float]) -> str:
    return f"{max(seconds, default=0.0):.1f}"
