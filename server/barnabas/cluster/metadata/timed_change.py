"""A change of the metadata with a timeout of the client.

The rule: a decided change is carried out, however long that takes; only the wait for it ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import Change, ClusterImage
    from barnabas.cluster.metadata.store import Decide, MetadataStore


async def change_within(metadata: MetadataStore, decide: Decide, timeout_ms: int) -> bool:
    """Make a change; returns whether it was done, leaders elected, within `timeout_ms` from now.

    If `decide` has not begun by then, because of other changes, nothing is decided. Once it has begun, the wait does not
    end before it has decided, so that its caller knows the refusals. With 0 or less the wait ends directly after that,
    as in Kafka, or after the store's `patience_ms`. Raises like `MetadataStore.change`.
    """
    deadline = trio.current_time() + (timeout_ms if timeout_ms > 0 else metadata.patience_ms) / 1000

    def decide_and_begin(image: ClusterImage) -> Iterator[Change | None]:
        scope.deadline = math.inf
        yield from decide(image)
        scope.deadline = max(deadline, trio.current_time())

    with trio.CancelScope(deadline=deadline if timeout_ms > 0 else math.inf) as scope:
        await metadata.change(decide_and_begin)
    return not scope.cancelled_caught
