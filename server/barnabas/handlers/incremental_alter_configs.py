"""IncrementalAlterConfigs v0-v1. Sets, deletes, appends to and subtracts from single settings (KIP-339)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.handlers.shared.config_alteration import ConfigAlteration
from barnabas.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.kraft.forwarding import Forwarder
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.listeners import ListenerSecurity
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


@dataclass(eq=False)
class IncrementalAlterConfigs:
    """Handler of IncrementalAlterConfigs."""

    metadata: MetadataStore
    config: BrokerConfig
    budget: LoopBudget
    broker_id: int
    security: ListenerSecurity
    forwarder: Forwarder | None

    async def handle(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Alter all resources in one change; one that is refused does not keep the others back."""
        alteration = ConfigAlteration(
            context,
            replace_all=False,
            validate_only=request.validate_only,
            metadata=self.metadata,
            config=self.config,
            budget=self.budget,
            broker_id=self.broker_id,
            security=self.security,
            forwarder=self.forwarder,
        )
        return IncrementalAlterConfigsResponse(responses=await alteration.apply(request, Answer))
