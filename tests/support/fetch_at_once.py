"""A fetch of one partition through the handler of Fetch, on a node that consists of replicas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError
from barnabas.handlers.fetch import Fetch
from barnabas.records.batch import iter_batches, read_records
from barnabas.serving.fetch_sessions import FetchSessions
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest
from tests.support.contexts import new_context
from tests.support.logs import TOPIC_ID
from tests.support.replicas import Node

FETCH, VERSION = 1, 17
CONFIG = BrokerConfig({})


def fetch_at_once(
    node: Node, part: FetchRequest.FetchPartition, *, replica_id: int = -1, broker_epoch: int = -1
) -> Any:
    """Return the partition's answer, to a consumer or a follower. Raises RequestError with its code."""
    request = FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id, broker_epoch),
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_id=0, session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[part])],
    )  # fmt: skip
    context = new_context(FETCH, VERSION, now_ms=node.now_ms)
    services: dict[str, Any] = {
        "step_runner": None,
        "fetch_sessions": FetchSessions(0, lambda: 1),
        "failures": None,
        "tiered": None,
    }
    metadata: Any = SimpleNamespace(image=node.image)
    handler = Fetch(metadata=metadata, replicas=node.replicas, config=CONFIG, budget=node.budget, **services)
    response: Any = handler.handle(context, request)
    (answer,) = response.responses[0].partitions
    if answer.error_code:
        raise RequestError(ErrorCode(answer.error_code))
    return answer


def batches_in(data: bytes) -> list[tuple[int, int, int]]:
    """Return (leader epoch, value as a number, record count) of each batch; its records must have equal values."""
    batches = []
    for at, header in iter_batches(data):
        records = read_records(data, at)
        (value,) = {record.value for record in records}
        batches.append((header.leader_epoch, int(value or b"-1"), len(records)))
    return batches
