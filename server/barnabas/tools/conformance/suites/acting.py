"""Steps that suites repeat: append, read, begin producers, join groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from barnabas.records.batch import iter_batches, read_records
from barnabas.records.record import Record
from barnabas.tools.conformance.cases import Case, Need, Run
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.inspection.errors import code_name
from barnabas.tools.probing.exchanges import COORDINATOR_COMES, Wire
from barnabas.wire.generated.errors import ErrorCode

LATER = (ErrorCode.CONCURRENT_TRANSACTIONS, *COORDINATOR_COMES)
"""A transaction that is still being ended, or a coordinator that is not ready: asked again."""


def case(
    id_: str,
    rule: str,
    source: str,
    run: Run,
    *apis: str,
    feature: tuple[str, int] | None = None,
    alone: bool = False,
    with_topic: bool = False,
    **versions: int,
) -> Case:
    """Return a case of a suite; `apis` are needed in any version, `versions` are APIs in a certain one."""
    needs = (*map(Need, apis), *(Need(api, version) for api, version in versions.items()))
    return Case(id_, rule, source, run, needs, feature, with_topic, alone)


def rule_of(run: Callable[..., object]) -> str:
    """Return the rule in the docstring of a case's function."""
    return (run.__doc__ or "").strip()


def described(group: str, source: str, runs: Mapping[str, Run], *apis: str, **more: Any) -> Iterator[Case]:
    """Yield a case for each of `runs`, named within the group, its rule in the docstring; `more` is as for `case`."""
    for name, run in runs.items():
        yield case(f"{group}/{name}", rule_of(run), source, run, *apis, **more)


async def append(
    trial: Trial,
    topic: tuple[str, bytes],
    records: bytes,
    *,
    index: int = 0,
    acks: int = -1,
    version: int | None = None,
    transactional_id: str | None = None,
    wire: Wire | None = None,
) -> Any:
    """Append records to a partition; return the partition's answer."""
    name, topic_id = topic
    partition = {"index": index, "records": records}
    asked = {
        "acks": acks,
        "timeout_ms": 20_000,
        "transactional_id": transactional_id,
        "topic_data": [{"name": name, "topic_id": topic_id, "partition_data": [partition]}],
    }
    answer = await trial.ask("Produce", asked, version, wire=wire)
    return None if answer is None else answer.responses[0].partition_responses[0]


async def appended(trial: Trial, topic: tuple[str, bytes], records: bytes, **more: Any) -> int:
    """Append records; return their base offset. Raises DiffersError when they are refused."""
    answer = await append(trial, topic, records, **more)
    trial.check(not answer.error_code, f"Produce is answered {code_name(answer.error_code)}")
    return int(answer.base_offset)


async def refused(trial: Trial, topic: tuple[str, bytes], records: bytes, *codes: str, **more: Any) -> Any:
    """Append records that must be refused with one of these codes; returns the partition's answer."""
    answer = await append(trial, topic, records, **more)
    trial.expect(answer, {"error_code": set(codes)})
    return answer


def reading(topic: tuple[str, bytes], offset: int = 0, *, index: int = 0, **more: Any) -> dict[str, Any]:
    """Return a Fetch of one partition."""
    name, topic_id = topic
    of_partition = {
        key: more.pop(key) for key in ("current_leader_epoch", "partition_max_bytes") if key in more
    }
    partition = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20} | of_partition
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": name, "topic_id": topic_id, "partitions": [partition]}],
    } | more


async def read(
    trial: Trial, topic: tuple[str, bytes], offset: int = 0, *, version: int | None = None, **more: Any
) -> Any:
    """Read from a partition; return the partition's answer."""
    answer = await trial.ask("Fetch", reading(topic, offset, **more), version)
    trial.expect(answer, {"responses.0.partitions.0.error_code": 0})
    return answer.responses[0].partitions[0]


def records_in(data: Any) -> list[Record]:
    """Return the records of a Fetch answer without control batches; magic 2 only."""
    records: list[Record] = []
    for at, header in iter_batches(data or b""):
        if header.magic == 2 and not header.is_control:
            records += read_records(data, at)
    return records


def values_in(data: Any) -> list[bytes | None]:
    """Return the values of the records of a Fetch answer."""
    return [None if record.value is None else bytes(record.value) for record in records_in(data)]


async def offset_at(
    trial: Trial, topic: tuple[str, bytes], timestamp: int, *, isolation: int = 0, index: int = 0
) -> int:
    """Return the answer of ListOffsets for a time or a special timestamp."""
    partition = {"partition_index": index, "timestamp": timestamp}
    asked = {
        "replica_id": -1,
        "isolation_level": isolation,
        "topics": [{"name": topic[0], "partitions": [partition]}],
    }
    answer = await trial.expecting("ListOffsets", asked, {"topics.0.partitions.0.error_code": 0})
    return int(answer.topics[0].partitions[0].offset)


async def begin(
    trial: Trial, transactional_id: str | None = None, *, version: int | None = None, **more: Any
) -> tuple[int, int]:
    """Begin a producer; return its id and epoch. A transaction that ends is waited for."""
    asked: Mapping[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000} | more
    answer = await trial.until(
        "InitProducerId", asked, lambda response: response.error_code not in LATER, "InitProducerId", version
    )
    trial.expect(answer, {"error_code": 0})
    return answer.producer_id, answer.producer_epoch


async def committed(
    trial: Trial, group: str, topic: tuple[str, bytes], *partitions: int, **more: Any
) -> list[int]:
    """Return the offsets that a group has committed."""
    version = trial.fixture.newest("OffsetFetch")
    named = {"partition_indexes": list(partitions or (0,))} | (
        {"topic_id": topic[1]} if version >= 10 else {"name": topic[0]}
    )
    asked = {
        "group_id": group,
        "topics": [{"name": topic[0], "partition_indexes": list(partitions or (0,))}],
        "groups": [{"group_id": group, "topics": [named]}],
    } | more
    answer = await trial.ask("OffsetFetch", asked)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    return [partition.committed_offset for partition in topics[0].partitions]
