"""Message sets for fetch versions older than record batches (v0-v1: format v0, v2-v3: format v1).

The rule: only a small amount is converted for one response, and counted until it has been sent. An old client then
fetches again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import RequestError, detached
from barnabas.records.convert import down_convert_steps
from barnabas.wire.generated.fetch import FetchResponse

if TYPE_CHECKING:
    from barnabas.log.results import ReadResult
    from barnabas.records.steps import Steps
    from barnabas.serving.context import RequestContext
    from barnabas.serving.fetch_sessions import SessionPartition
    from barnabas.serving.step_runner import StepRunner

FORMAT_V1_SINCE = 2
PARTIAL_FIRST_UNTIL = 2
GROWTH_MAX = 4
"""Upper bound of growth by conversion: the smallest records take 7 bytes as a record, 26 as a message of v0."""


PartitionData = FetchResponse.PartitionData
Unconverted = tuple["SessionPartition", PartitionData, "ReadResult"]


async def convert(
    context: RequestContext, unconverted: list[Unconverted], *, step_runner: StepRunner
) -> list[tuple[PartitionData, RequestError]]:
    """Put the read records into the response, in the format of the fetch version.

    Up to v2 no more than the partition's max bytes are sent, even if that cuts off the first message: from a partial
    message such a client concludes that it is larger than its buffer, and reports that. Returns the partitions that cannot
    be converted (zstd), with their errors.
    """
    magic = 1 if context.api_version >= FORMAT_V1_SINCE else 0
    reserved = sum(len(result.records) for _, _, result in unconverted)
    await context.reserve(reserved)
    kept = 0
    failed: list[tuple[PartitionData, RequestError]] = []
    for want, data, result in unconverted:
        try:
            converted = await step_runner.run(_steps(result, magic, want.fetch_offset))
        except RequestError as error:
            failed.append((data, detached(error)))
            continue
        data.records = (
            converted[: want.max_bytes] if context.api_version <= PARTIAL_FIRST_UNTIL else converted
        )
        kept += len(data.records)
    if kept > reserved:
        await context.reserve(kept - reserved)
    else:
        context.unreserve(reserved - kept)
    return failed


def _steps(result: ReadResult, magic: int, fetch_offset: int) -> Steps[bytes]:
    yield None
    data = result.to_bytes()
    yield None
    return (
        yield from down_convert_steps(
            data, magic, bytes_max=GROWTH_MAX * len(data), fetch_offset=fetch_offset
        )
    )
