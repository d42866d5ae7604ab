"""FindCoordinator v0-v6. The broker that coordinates a group, a transactional id or a share partition.

v1 adds the key type (0 group, 1 transaction, 2 share partition), v4 many keys in one request, v6 key type 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.endpoints import advertised_node
from barnabas.coordinators.locator import CoordinatorType
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.locator import CoordinatorLocator
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

MANY_KEYS_SINCE = 4
SINCE = {CoordinatorType.GROUP: 0, CoordinatorType.TRANSACTION: 0, CoordinatorType.SHARE: 6}
"""The version that knows each type."""

Coordinator = FindCoordinatorResponse.Coordinator


@dataclass(eq=False)
class FindCoordinator:
    """Handler of FindCoordinator."""

    metadata: MetadataStore
    coordinator_locator: CoordinatorLocator
    budget: LoopBudget

    async def handle(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        """Answer every key on its own."""
        if context.api_version >= MANY_KEYS_SINCE:
            response = FindCoordinatorResponse()
            for key in request.coordinator_keys:
                coordinator = await self._find(
                    context,
                    request.key_type,
                    key,
                )
                if not coordinator.error_code:
                    coordinator.error_message = ""  # where there is one key, Kafka says "NONE"
                response.coordinators.append(coordinator)
                await self.budget.checkpoint()
            return response
        coordinator = await self._find(
            context,
            request.key_type,
            request.key,
        )
        return FindCoordinatorResponse(
            error_code=coordinator.error_code,
            error_message=coordinator.error_message,
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )

    async def _find(self, context: RequestContext, key_type: int, key: str) -> Coordinator:
        answer = Coordinator(key=key, node_id=-1, port=-1, error_message=ErrorCode.NONE.name)
        try:
            if key_type not in SINCE or context.api_version < SINCE[CoordinatorType(key_type)]:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type} here"
                )
            _check_access(context, CoordinatorType(key_type), key)
            broker_id = await self.coordinator_locator.locate(CoordinatorType(key_type), key)
            node = advertised_node(self.metadata.image, broker_id, context.connection)
            if node is None:
                raise RequestError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"broker {broker_id} is not alive, or has no listener {context.connection.listener}",
                )
        except RequestError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
            return answer
        answer.node_id, answer.host, answer.port, _ = node
        return answer


def _check_access(context: RequestContext, key_type: CoordinatorType, key: str) -> None:
    """Raise unless the requester may look up this coordinator; those of share partitions are for brokers alone."""
    if key_type is CoordinatorType.GROUP:
        context.require(Operation.DESCRIBE, ResourceType.GROUP, key)
    elif key_type is CoordinatorType.TRANSACTION:
        context.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
    else:
        context.require(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
