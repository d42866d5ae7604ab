"""Records of a fetch that are in tiered storage only (KIP-405).

The rule: records that do not arrive in time are omitted, without an error; the client fetches again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from barnabas.cluster.tiering.reads import RemoteFetch
from barnabas.errors import RequestError
from barnabas.handlers.fetch.passes import FetchPass, named_transactions
from barnabas.handlers.fetch.reading import answer_error
from barnabas.log.results import ReadResult

if TYPE_CHECKING:
    from barnabas.cluster.tiering.reads import RemoteData, RemoteReads
    from barnabas.handlers.fetch.passes import RemotePart
    from barnabas.serving.context import RequestContext


def read_remote_nowait(context: RequestContext, reads: RemoteReads, done: FetchPass) -> bool:
    """Add the remote partitions of a pass to its data if they were read ahead; return whether they were."""
    if done.is_converted:
        return False
    results = reads.fetch_nowait(_fetches(done), context.reserve_nowait)
    if results is None:
        return False
    for part, result in zip(done.remote, results, strict=True):
        _add(done, part, result)
    return True


async def read_remote(context: RequestContext, reads: RemoteReads, done: FetchPass, wait_ms: int) -> None:
    """Read the remote partitions of a pass into its data, within `remote.fetch.max.wait.ms`.

    Above the quota of remote reads nothing is read, and the fetch waits for `wait_ms`, like a fetch without records.
    """
    if reads.is_throttled:
        await trio.sleep(max(wait_ms, 0) / 1000)
        return
    reserved = sum(part.max_bytes for part in done.remote)
    await context.reserve(reserved)
    results = await reads.fetch(_fetches(done))
    kept = 0
    for part, result in zip(done.remote, results, strict=True):
        if isinstance(result, RequestError):
            answer_error(part.data, result)
        elif result is not None:
            kept += len(result.data)
            _add(done, part, result)
    if kept > reserved:
        await context.reserve(kept - reserved)
    else:
        context.unreserve(reserved - kept)


def _fetches(done: FetchPass) -> list[RemoteFetch]:
    return [
        RemoteFetch(
            part.replica, part.want.fetch_offset, part.max_bytes, part.min_one_batch, done.reads_committed
        )
        for part in done.remote
    ]


def _add(done: FetchPass, part: RemotePart, result: RemoteData) -> None:
    """Add records to the data of a partition, or to those that are converted."""
    size = len(result.data)
    done.size += size
    if result.aborted is not None:
        part.data.aborted_transactions = named_transactions(result.aborted)
    if done.is_converted and size:
        done.unconverted.append((part.want, part.data, ReadResult(result.data, part.want.fetch_offset)))
    else:
        part.data.records = result.data
