"""A change of the metadata for which a client waits at most so long.

The rule: what is decided is carried out, however long that takes; only the wait for it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from barnabas.cluster.image import Change, ClusterImage
    from barnabas.cluster.store import Decide, MetadataStore


async def change_within(metadata: MetadataStore, decide: Decide, timeout_ms: int) -> bool:
    """Make a change; returns whether it was done, leaders elected, within `timeout_ms` from now.

    The wait does not end before `decide` has decided: so its caller knows what was refused, and what goes on. With 0 or
    less it ends right then, as in Kafka. Raises as `MetadataStore.change`.
    """
    deadline = trio.current_time() + timeout_ms / 1000

    def decide_and_begin(image: ClusterImage) -> Iterator[Change]:
        yield from decide(image)
        scope.deadline = max(deadline, trio.current_time())

    with trio.CancelScope() as scope:
        await metadata.change(decide_and_begin)
    return not scope.cancelled_caught
