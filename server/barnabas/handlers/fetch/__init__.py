"""Fetch v0-v18. Waits up to max_wait_ms for min_bytes; never decodes the records that it sends.

v3 adds max_bytes over all partitions, and from then on the first batch is sent whole even when it is larger than
every limit; v4 isolation levels and record batches (older versions get converted message sets); v5 log start
offsets; v7 sessions (KIP-227); v9 and v12 leader epoch checks (KIP-320, KIP-595); v10 zstd; v13 topic ids;
v15 moves the replica id into a tagged field; v16 adds the current leader if the client has another one (KIP-951).
A fetch of a follower includes its position, and reads up to the log end. Consumers read below the high watermark, from
v11 on also from followers (KIP-392).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.fetch.answering import FetchAnswer
from barnabas.handlers.fetch.services import FetchServices
from barnabas.serving.deferred import Deferred

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext
    from barnabas.wire.generated.fetch import FetchRequest, FetchResponse


class Fetch(FetchServices):
    """Handler of Fetch.

    `answering.py` builds the response, `passes.py` the data of each partition in it, by the limits in `terms.py`;
    `reading.py` repeats passes while the fetch waits, and `conversion.py` encodes message sets for old versions.
    """

    def handle(
        self, context: RequestContext, request: FetchRequest
    ) -> FetchResponse | Deferred[FetchResponse]:
        """Read the available records; when they are too few, wait once for more."""
        fetch = FetchAnswer(self, context, request)
        response = fetch.answer_nowait()
        return Deferred(fetch.rest) if response is None else response
