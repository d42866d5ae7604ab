"""DeleteTopics v0-v6. Deletes topics by name, or by id (v6); v5 adds error messages.

Answers when no broker has the topics in its metadata, or REQUEST_TIMED_OUT after `timeout_ms`; they are deleted
nevertheless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.metadata.timed_change import change_within
from barnabas.config import broker as settings
from barnabas.config.authorizer import follows_acl_authorizer
from barnabas.errors import RequestError, detached
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.request_quotas import Mutations

QUOTA_ERROR_SINCE = 5
NAMED_TWICE = "the topic is named twice"

Result = DeleteTopicsResponse.DeletableTopicResult


@dataclass(eq=False)
class DeleteTopics:
    """Handler of DeleteTopics."""

    metadata: MetadataStore
    config: BrokerConfig
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        """Delete all topics in one change; a topic that is named twice, by name or id, is not deleted."""
        image = self.metadata.image
        results: list[Result] = []
        # by name and id: None if there is no such topic, as an existing one may have no id
        counts: Counter[tuple[str, bytes | None]] = Counter()
        access = _Access(context, is_in_zookeeper=follows_acl_authorizer(self.config))
        for (name, topic_id), count in (await self._asked(request)).items():
            if name is not None and topic_id != ZERO_UUID:
                results += [_refused(name, topic_id, "both a name and an id are given")] * count
            elif name is None and topic_id == ZERO_UUID:
                results += [_refused(None, topic_id, "neither a name nor an id is given")] * count
            elif count > 1:
                results.append(_refused(name, topic_id, NAMED_TWICE))
            elif name is not None and not access.may_delete_by_name(name):
                results.append(access.refusal_by_name(name, exists=name in image.topics))
            elif name is not None:
                counts[name, image.topics[name].id if name in image.topics else None] += 1
            elif (topic_name := image.topic_name(topic_id)) is None:
                results.append(
                    _refused(None, topic_id, "there is no topic with this id", ErrorCode.UNKNOWN_TOPIC_ID)
                )
            elif not access.may_delete_by_id(topic_name):
                results.append(access.refusal_by_id(topic_name, topic_id))
            else:
                counts[topic_name, topic_id] += 1
            await self.budget.checkpoint()
        once: list[tuple[str, bytes]] = []  # of those that are there
        for (name, there), count in counts.items():
            if count == 1 and there is not None:
                once.append((name, there))
            await self.budget.checkpoint()
        mutations = context.mutations(refuses=context.api_version >= QUOTA_ERROR_SINCE)
        is_enabled = self.config.get(settings.DELETE_TOPIC_ENABLE)
        refused = await self._delete(once, request.timeout_ms, mutations) if is_enabled else {}
        for (name, found_id), count in counts.items():
            error, topic_id = refused.get(name), found_id or ZERO_UUID
            if count > 1:
                results.append(_refused(name, topic_id, NAMED_TWICE))
            elif not is_enabled:
                results.append(
                    _refused(
                        name, topic_id, "delete.topic.enable is false", ErrorCode.TOPIC_DELETION_DISABLED
                    )
                )
            elif error is not None:
                results.append(_refused(name, topic_id, error.message or None, error.code))
            elif found_id is None:
                results.append(
                    _refused(
                        name, topic_id, f"there is no topic {name!r}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                )
            else:
                results.append(Result(name=name, topic_id=topic_id))
            await self.budget.checkpoint()
        return DeleteTopicsResponse(responses=results)

    async def _asked(self, request: DeleteTopicsRequest) -> Counter[tuple[str | None, bytes]]:
        """Count the occurrences of each (name, id) in the request."""
        asked: Counter[tuple[str | None, bytes]] = Counter()
        for topic in request.topics:
            asked[topic.name, topic.topic_id] += 1
            await self.budget.checkpoint()
        for name in request.topic_names:
            asked[name, ZERO_UUID] += 1
            await self.budget.checkpoint()
        return asked

    async def _delete(
        self, there: Sequence[tuple[str, bytes]], timeout_ms: int, mutations: Mutations | None
    ) -> dict[str, RequestError]:
        """Delete topics by name and id; returns why not, by name."""
        refused: dict[str, RequestError] = {}
        if not there:
            return refused

        def decide(image: ClusterImage) -> Iterator[Change | None]:
            for name, topic_id in there:
                try:
                    changes = topic_decisions.delete_topic(image, name, topic_id)
                    if mutations is not None:
                        mutations.charge(name, len(image.topics[name].partitions))
                except RequestError as error:
                    refused[name] = detached(error)
                    yield None
                    continue
                yield from changes

        if not await change_within(self.metadata, decide, timeout_ms):
            late = RequestError(ErrorCode.REQUEST_TIMED_OUT)
            return {name: refused.get(name, late) for name, _ in there}
        return refused


class _Access:
    """The requester's access to topics, and refusals that reveal nothing that it may not describe.

    With KRaft DELETE on the cluster is enough for every topic, and deletion by name also requires DESCRIBE on the topic. A
    Kafka with ZooKeeper (`is_in_zookeeper`) requires DELETE on the topic alone, and DESCRIBE for deletion by id.
    """

    def __init__(self, context: RequestContext, *, is_in_zookeeper: bool) -> None:
        self._context = context
        self._is_in_zookeeper = is_in_zookeeper
        self._all = not is_in_zookeeper and context.authorizes(
            Operation.DELETE, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False
        )

    def may_delete_by_name(self, name: str) -> bool:
        return (self._is_in_zookeeper or self._may_describe(name)) and self._may_delete(name)

    def may_delete_by_id(self, name: str) -> bool:
        return (not self._is_in_zookeeper or self._may_describe(name)) and self._may_delete(name)

    def _may_delete(self, name: str) -> bool:
        return self._all or self._context.authorizes(Operation.DELETE, ResourceType.TOPIC, name)

    def _may_describe(self, name: str) -> bool:
        return self._all or self._context.authorizes(Operation.DESCRIBE, ResourceType.TOPIC, name)

    def refusal_by_name(self, name: str, *, exists: bool) -> Result:
        if not exists and not self._is_in_zookeeper and self._may_describe(name):
            return _refused(
                name, ZERO_UUID, f"there is no topic {name!r}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        denied = f"DELETE on TOPIC {name!r} is denied"
        return _refused(name, ZERO_UUID, denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def refusal_by_id(self, name: str, topic_id: bytes) -> Result:
        shown_name = name if self._may_describe(name) else None
        denied = "DELETE on the topic with this id is denied"
        return _refused(shown_name, topic_id, denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refused(
    name: str | None, topic_id: bytes, why: str | None, code: int = ErrorCode.INVALID_REQUEST
) -> Result:
    return Result(name=name, topic_id=topic_id, error_code=code, error_message=why)
