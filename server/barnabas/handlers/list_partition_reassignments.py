"""ListPartitionReassignments v0. The moves of partitions to other brokers that are going on (KIP-455): none.

In a cluster of one no partition is on its way anywhere. Topics that do not exist are left out, as those are that do not
move; moves between the log dirs of a broker are told by DescribeLogDirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.wire.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from barnabas.requests.context import RequestContext


async def handle(
    _context: RequestContext, __: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """None."""
    return ListPartitionReassignmentsResponse(error_message=None)
