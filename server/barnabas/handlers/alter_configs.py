"""AlterConfigs v0-v2. Replaces all of a resource's own settings; what is not named goes back to its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.handlers.shared.config_alteration import ConfigAlteration
from barnabas.wire.generated.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from barnabas.cluster.kraft.forwarding import Forwarder
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.listeners import ListenerSecurity
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Answer = AlterConfigsResponse.AlterConfigsResourceResponse


@dataclass(eq=False)
class AlterConfigs:
    """Handler of AlterConfigs."""

    metadata: MetadataStore
    config: BrokerConfig
    budget: LoopBudget
    broker_id: int
    security: ListenerSecurity
    forwarder: Forwarder | None

    async def handle(self, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
        """Alter all resources in one change; one that is refused does not keep the others back."""
        alteration = ConfigAlteration(
            context,
            replace_all=True,
            validate_only=request.validate_only,
            metadata=self.metadata,
            config=self.config,
            budget=self.budget,
            broker_id=self.broker_id,
            security=self.security,
            forwarder=self.forwarder,
        )
        return AlterConfigsResponse(responses=await alteration.apply(request, Answer))
