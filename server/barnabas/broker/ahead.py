"""Imports ahead of need: what nearly every client asks for first, while nobody is connected yet.

The rule: in a thread, one module after the other, so that a client that comes meanwhile waits for one of them at most; it
ends with the first client, whose requests import what they need. Nothing is made, and nothing is looked at but modules.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from barnabas import apis
from barnabas.lazy import import_modules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sized

    from barnabas.environment import Threads

QUIET_SECONDS = 0.01
"""For how long nobody may have come: whoever has waited for the broker is there at once."""
PAUSE_SECONDS = 0.002
MODULES: tuple[str, ...] = (
    "barnabas.wire.generated.api_versions",
    "barnabas.handlers.api_versions",
    "barnabas.handlers.errors",
    "barnabas.wire.generated.metadata",
    "barnabas.handlers.metadata",
    "barnabas.log.config",
    "barnabas.log.damage",
    "barnabas.log.producers",
    "barnabas.log.replay",
    "barnabas.log.loading",
    "barnabas.log.timestamps",
    "barnabas.log.partition_log",
    "barnabas.replicas.replica",
    "barnabas.wire.generated.init_producer_id",
    "barnabas.transactions.transaction",
    "barnabas.handlers.init_producer_id",
    "barnabas.wire.generated.produce",
    "barnabas.handlers.transactional",
    "barnabas.handlers.produce",
    "barnabas.wire.generated.list_offsets",
    "barnabas.handlers.list_offsets",
    "barnabas.wire.generated.find_coordinator",
    "barnabas.handlers.find_coordinator",
    "barnabas.wire.generated.fetch",
    "barnabas.replicas.reading",
    "barnabas.handlers.fetch",
)
"""In this order none takes more than some milliseconds: each is here before those that import it."""
APIS = ("ApiVersions", "Metadata", "InitProducerId", "Produce", "ListOffsets", "FindCoordinator", "Fetch")


async def import_ahead(threads: Threads, connections: Sized, more: Iterable[str] = ()) -> None:
    """Import these modules, and `more`, as long as there are no connections; returns when all is there or a client is."""

    def work() -> None:
        time.sleep(QUIET_SECONDS)
        for name in (*MODULES, *more):
            if connections:
                return
            if name not in sys.modules:
                threads.check_cancelled()
                import_modules(name)
                time.sleep(PAUSE_SECONDS)
        for api in apis.BY_KEY.values():
            if api.name in APIS:
                api.load()

    await threads.run(work)
