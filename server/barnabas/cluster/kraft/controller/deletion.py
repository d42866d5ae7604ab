"""DeleteTopics v1-v6: deletes topics by name, or by id (v6). Pure.

v4 adds an error code for a disabled deletion, v5 error messages.

The rule: a topic that is named twice, by name or id, is not deleted; entries with neither a name nor an id, or with
both, have a result each. A caller cannot tell a topic that it may not describe from a missing one; so the order of the
results is random.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Any

from barnabas.cluster.kraft.controller.conditions import check_size
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome, Steps
from barnabas.cluster.kraft.controller.placement import shuffle
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.config.broker import DELETE_TOPIC_ENABLE
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.remove_topic import RemoveTopicRecord
from barnabas.wire.primitives import ZERO_UUID

DISABLED_SINCE = 3
"""First version with an error code for a disabled deletion."""

_DENIED = "DELETE or DESCRIBE on the topic is denied"
_Result = DeleteTopicsResponse.DeletableTopicResult
_Named = tuple[str | None, bytes]
"""Name and id of a topic, as in the request."""


def delete_topics(state: ControllerState, request: DeleteTopicsRequest, caller: Caller) -> Steps[Outcome]:
    """Delete topics. Raises TOPIC_DELETION_DISABLED, before v3 INVALID_REQUEST; POLICY_VIOLATION for too many at once."""
    if not state.config.get(DELETE_TOPIC_ENABLE):
        code = (
            ErrorCode.TOPIC_DELETION_DISABLED
            if caller.version >= DISABLED_SINCE
            else ErrorCode.INVALID_REQUEST
        )
        raise RequestError(code, "delete.topic.enable is false")
    named: Counter[_Named] = Counter((topic.name, topic.topic_id) for topic in request.topics)
    named.update((name, ZERO_UUID) for name in request.topic_names)
    twice = _named_both_ways(state.image, named)
    records: list[Any] = []
    results: list[_Result] = []
    for name, count in named.items():
        result: _Result | None
        try:
            result = _delete(state.image, name, count, twice, caller, records)
        except RequestError as error:
            result = _Result(name=name[0], topic_id=name[1], error_code=error.code)
            result.error_message = error.message or None
        if result is not None:
            has_name, has_id = _given(name)
            results += [result] * (count if has_name == has_id else 1)
        yield
    check_size(records)
    shuffle(results, state.entropy)
    return Outcome(DeleteTopicsResponse(responses=results), tuple(records))


def _given(named: _Named) -> tuple[bool, bool]:
    """Return whether a name, and whether an id is present."""
    return named[0] is not None, named[1] != ZERO_UUID


def _id_of(image: QuorumImage, named: _Named) -> bytes | None:
    """Return the id of a topic, None if it does not exist."""
    name, topic_id = named
    if name is not None:
        return image.topic_ids.get(name)
    return topic_id if topic_id in image.topics else None


def _named_both_ways(image: QuorumImage, named: Counter[_Named]) -> set[bytes | None]:
    """Return the ids of topics that the request names both by name and by id."""
    by_name = {
        _id_of(image, entry)
        for entry, count in named.items()
        if _given(entry) == (True, False) and count == 1
    }
    return by_name & {entry[1] for entry in named if _given(entry) == (False, True)}


def _delete(
    image: QuorumImage,
    named: _Named,
    count: int,
    twice: Container[bytes | None],
    caller: Caller,
    records: list[Any],
) -> _Result | None:
    """Add the records of a deletion, and return the result; None for an id if its name has the error."""
    name, given_id = named
    has_name, has_id = _given(named)
    if has_name == has_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, "either a name or an id names a topic, not both")
    if count > 1:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the topic is named twice")
    topic_id = _id_of(image, named)
    if topic_id is None and has_id:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    may_describe, may_delete = _access(image.topics[topic_id].name if topic_id else str(name), caller)
    if has_name and not may_describe:
        raise RequestError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, _DENIED)
    if topic_id is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    topic = image.topics[topic_id]
    shown = topic.name if may_describe else None
    if not may_delete:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return _Result(name=shown, topic_id=given_id, error_code=code, error_message=_DENIED)
    if topic_id in twice:
        why = "the topic is named twice, by its name and its id"
        code = ErrorCode.INVALID_REQUEST
        return _Result(name=name, topic_id=topic_id, error_code=code, error_message=why) if has_name else None
    try:
        caller.charge(topic.name, image.partition_counts.get(topic_id, 0))
    except RequestError as error:
        return _Result(topic.name, topic_id, error.code, error.message)
    records.append(RemoveTopicRecord(topic_id=topic_id))
    return _Result(name=topic.name, topic_id=topic_id)


def _access(name: str, caller: Caller) -> tuple[bool, bool]:
    """Return whether a caller may describe, and whether it may delete a topic."""
    if caller.may(Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME):
        return True, True
    return (
        caller.may(Operation.DESCRIBE, ResourceType.TOPIC, name),
        caller.may(Operation.DELETE, ResourceType.TOPIC, name),
    )


HANDLERS: Handlers = {20: delete_topics}
