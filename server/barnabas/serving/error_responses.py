"""An error for a whole request, put into every place of the API's response where a client looks for it.

Many responses have an error code at the top. The others have one per topic, partition, group or resource of the request;
for those `_ECHOES` maps each list of the request to a list of the response.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from barnabas.wire import registry
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.serving.apis import Api
    from barnabas.serving.context import RequestContext
    from barnabas.serving.release import ReleaseProfile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Echo:
    """A list of the request and the list of the response with the errors of its entries.

    Each entry of the list `asked` gets a `struct` in the list `answered`. `asked` may name two lists
    (`topics+topic_names`), of which each version of the request has one. `copied` names the fields that identify an entry
    (`asked_name=answered_name` where they differ); a plain number or string goes into the first of them. The innermost
    level carries the error.
    """

    asked: str
    answered: str
    struct: str
    copied: tuple[str, ...]
    inner: Echo | None = None


def _partitions(
    struct: str, answered: str = "partitions", asked: str = "partitions", index: str = ""
) -> Echo:
    return Echo(asked, answered, struct, (index or "partition_index",))


def _states(struct: str) -> Echo:
    """The APIs of the share coordinator, which are all built alike."""
    return Echo(
        "topics", "results", struct, ("topic_id",),
        Echo("partitions", "partitions", "PartitionResult", ("partition",)),
    )  # fmt: skip


_ECHOES: dict[int, Echo] = {
    0: Echo(
        "topic_data", "responses", "TopicProduceResponse", ("name", "topic_id"),
        Echo("partition_data", "partition_responses", "PartitionProduceResponse", ("index",)),
    ),
    1: Echo(
        "topics", "responses", "FetchableTopicResponse", ("topic", "topic_id"),
        Echo("partitions", "partitions", "PartitionData", ("partition=partition_index",)),
    ),
    2: Echo("topics", "topics", "ListOffsetsTopicResponse", ("name",), _partitions("ListOffsetsPartitionResponse")),
    3: Echo("topics", "topics", "MetadataResponseTopic", ("name", "topic_id")),
    8: Echo(
        "topics", "topics", "OffsetCommitResponseTopic", ("name", "topic_id"),
        _partitions("OffsetCommitResponsePartition"),
    ),
    9: Echo("groups", "groups", "OffsetFetchResponseGroup", ("group_id",)),
    10: Echo("coordinator_keys", "coordinators", "Coordinator", ("key",)),
    15: Echo("groups", "groups", "DescribedGroup", ("group_id",)),
    19: Echo("topics", "topics", "CreatableTopicResult", ("name",)),
    20: Echo("topics+topic_names", "responses", "DeletableTopicResult", ("name", "topic_id")),
    21: Echo(
        "topics", "topics", "DeleteRecordsTopicResult", ("name",),
        _partitions("DeleteRecordsPartitionResult"),
    ),
    23: Echo(
        "topics", "topics", "OffsetForLeaderTopicResult", ("topic",),
        Echo("partitions", "partitions", "EpochEndOffset", ("partition",)),
    ),
    27: Echo(
        "markers", "markers", "WritableTxnMarkerResult", ("producer_id",),
        Echo(
            "topics", "topics", "WritableTxnMarkerTopicResult", ("name",),
            _partitions("WritableTxnMarkerPartitionResult", asked="partition_indexes"),
        ),
    ),
    28: Echo(
        "topics", "topics", "TxnOffsetCommitResponseTopic", ("name", "topic_id"),
        _partitions("TxnOffsetCommitResponsePartition"),
    ),
    30: Echo("creations", "results", "AclCreationResult", ()),
    31: Echo("filters", "filter_results", "DeleteAclsFilterResult", ()),
    32: Echo("resources", "results", "DescribeConfigsResult", ("resource_type", "resource_name")),
    33: Echo("resources", "responses", "AlterConfigsResourceResponse", ("resource_type", "resource_name")),
    34: Echo(
        "topics", "results", "AlterReplicaLogDirTopicResult", ("name=topic_name",),
        _partitions("AlterReplicaLogDirPartitionResult"),
    ),
    37: Echo("topics", "results", "CreatePartitionsTopicResult", ("name",)),
    42: Echo("groups_names", "results", "DeletableGroupResult", ("group_id",)),
    43: Echo(
        "topic_partitions", "replica_election_results", "ReplicaElectionResult", ("topic",),
        _partitions("PartitionResult", answered="partition_result", index="partition_id"),
    ),
    44: Echo("resources", "responses", "AlterConfigsResourceResponse", ("resource_type", "resource_name")),
    45: Echo(
        "topics", "responses", "ReassignableTopicResponse", ("name",),
        _partitions("ReassignablePartitionResponse"),
    ),
    46: Echo(
        "topics", "topics", "OngoingTopicReassignment", ("name",),
        _partitions("OngoingPartitionReassignment", asked="partition_indexes"),
    ),
    49: Echo("entries", "entries", "EntryData", ("entity",)),
    50: Echo("users", "results", "DescribeUserScramCredentialsResult", ()),  # as Kafka, without saying which
    51: Echo("deletions+upsertions", "results", "AlterUserScramCredentialsResult", ("name=user",)),
    61: Echo(
        "topics", "topics", "TopicResponse", ("name",),
        Echo("partition_indexes", "partitions", "PartitionResponse", ("partition_index",)),
    ),
    65: Echo("transactional_ids", "transaction_states", "TransactionState", ("transactional_id",)),
    69: Echo("group_ids", "groups", "DescribedGroup", ("group_id",)),
    75: Echo("topics", "topics", "DescribeTopicPartitionsResponseTopic", ("name",)),
    77: Echo("group_ids", "groups", "DescribedGroup", ("group_id",)),
    83: _states("InitializeStateResult"),
    84: _states("ReadStateResult"),
    85: _states("WriteStateResult"),
    86: _states("DeleteStateResult"),
    87: _states("ReadStateSummaryResult"),
    89: Echo("group_ids", "groups", "DescribedGroup", ("group_id",)),
    90: Echo("groups", "groups", "DescribeShareGroupOffsetsResponseGroup", ("group_id",)),
}  # fmt: skip

_ECHOES_UNTIL: dict[int, tuple[int, Echo]] = {
    9: (
        1,
        Echo("topics", "topics", "OffsetFetchResponseTopic", ("name",),
             _partitions("OffsetFetchResponsePartition", asked="partition_indexes")),
    ),
    24: (
        3,
        Echo("v3_and_below_topics", "results_by_topic_v3_and_below", "AddPartitionsToTxnTopicResult", ("name",),
             _partitions("AddPartitionsToTxnPartitionResult", answered="results_by_partition")),
    ),
}  # fmt: skip
"""APIs with another list of answers in their first versions, and the last of these versions."""
_WITHIN = {34: "dirs"}
"""APIs with one list of answers for several lists of a request, which are within the entries of this one."""
_ALSO_TOP_LEVEL = frozenset((43, 45, 46, 50))
"""APIs with entries beside the top-level error code, each with the code where it has a field for it."""
_TOP_LEVEL_SINCE = {1: 7, 3: 13, 9: 2, 24: 4, 35: 3, 43: 1}
"""APIs that got a top-level error code later than in their first version."""
_EMPTY_WITHOUT_ROOM = 35
"""DescribeLogDirs lists nothing in the versions that have no room for the error, as Kafka does."""
_TOP_LEVEL_UNTIL = {9: 7, 10: 3}
"""APIs that have one error code per entry, rather than at the top level, since a later version."""


_NONE_OF_IT: dict[int, tuple[str, ...]] = {10: ("node_id", "port"), 22: ("producer_epoch",)}
"""Fields that are -1 beside an error, by API, though the schema gives them no such default."""
_NO_OFFSETS = ("base_offset", "committed_offset", "high_watermark")
"""Fields of partitions that are -1 beside an error, though the schema gives them no such default."""
_MESSAGE_SINCE = {15: 6}
"""APIs with an error message per entry only since a later version than the first."""
_JOIN_GROUP, _NULL_PROTOCOL_SINCE = 11, 7
_ELECT_LEADERS = 43
_DESCRIBE_CLIENT_QUOTAS = 48


def error_response(api: Api, context: RequestContext, request: Any, code: int, message: str) -> Any:
    """The response of `api` with the error; None, and the connection is closed, if its response has no error field."""
    context.log(log, logging.INFO, f"refused {api.name} requests", "error %s %s", code, message)
    version = context.api_version
    if api.key == 0 and request.acks == 0:
        context.close_after_response = True
        return None
    response = top_level_response(api, version, code, message)
    if response is not None:
        moved = code == ErrorCode.NOT_CONTROLLER
        if api.key not in _ALSO_TOP_LEVEL or (moved and api.key != _ELECT_LEADERS):
            return response
        if moved and request.topic_partitions:  # every entry has the error, and nothing else
            response.error_code = ErrorCode.NONE
    else:
        response = registry.response_codec(api.key).message()
        if api.key == _EMPTY_WITHOUT_ROOM:
            return response
    none_of_it = _NONE_OF_IT.get(api.key, ())
    until, echo = _ECHOES_UNTIL.get(api.key, (-1, None))
    if echo is None or version > until:
        echo = _ECHOES.get(api.key)
    if echo is None:
        context.close_after_response = True
        return None
    if version < _MESSAGE_SINCE.get(api.key, 0):
        message = ""
    for part in getattr(request, _WITHIN[api.key]) if api.key in _WITHIN else (request,):
        _echo(echo, type(response), part, response, code, message)
    for answer in getattr(response, echo.answered) if none_of_it else ():
        for name in none_of_it:
            setattr(answer, name, -1)
    return response


def top_level_response(api: Api, version: int, code: int, message: str) -> Any:
    """Return the response of `api` with the error at its top, None where this version has no such place."""
    response = registry.response_codec(api.key).message()
    since, until = _TOP_LEVEL_SINCE.get(api.key, 0), _TOP_LEVEL_UNTIL.get(api.key, version)
    if not since <= version <= until or not hasattr(response, "error_code"):
        return None
    response.error_code = code
    for name in _NONE_OF_IT.get(api.key, ()):
        setattr(response, name, -1)
    if hasattr(response, "error_message"):
        response.error_message = message or None
    if api.key == _DESCRIBE_CLIENT_QUOTAS:
        response.entries = None
    if api.key == _JOIN_GROUP and version >= _NULL_PROTOCOL_SINCE:
        response.protocol_name = None
    return response


def partial_error_response(api: Api, request: Any, code: int) -> Any:
    """Return a response of `api` with the error for each topic or partition of a request, but no top-level error."""
    response = registry.response_codec(api.key).message()
    _echo(_ECHOES[api.key], type(response), request, response, code, "")
    return response


def _echo(echo: Echo, message_class: Any, asked: Any, answered: Any, code: int, message: str) -> None:
    """Answer one level of the request, and the levels inside it."""
    struct = getattr(message_class, echo.struct)
    answers = getattr(answered, echo.answered)
    lists = echo.asked.split("+")
    for entry in chain.from_iterable(getattr(asked, name) or () for name in lists):
        answer = struct()
        for names in echo.copied:
            source, _, target = names.partition("=")
            if isinstance(entry, int | str):
                setattr(answer, target or source, entry)
                break
            if hasattr(entry, source) and hasattr(answer, target or source):
                setattr(answer, target or source, getattr(entry, source))
        if echo.inner is not None:
            _echo(echo.inner, message_class, entry, answer, code, message)
        elif hasattr(answer, "error_code"):
            answer.error_code = code
            for name in _NO_OFFSETS:
                if hasattr(answer, name):
                    setattr(answer, name, -1)
            if message and hasattr(answer, "error_message"):
                answer.error_message = message
        elif hasattr(answer, "partition_error_code"):
            answer.partition_error_code = code
        answers.append(answer)


def unsupported_version(api: Api, release: ReleaseProfile) -> ApiVersionsResponse:
    """Return the answer of v0 to an ApiVersions of an unknown version: the versions that there are (KIP-511)."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[versions_of(api, release)])


def versions_of(api: Api, release: ReleaseProfile) -> ApiVersionsResponse.ApiVersion:
    """Return an entry of ApiVersions."""
    return ApiVersionsResponse.ApiVersion(
        api_key=api.key,
        min_version=release.advertised_first.get(api.key, api.min_version),
        max_version=api.max_version,
    )
