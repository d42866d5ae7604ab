"""IncrementalAlterConfigs v0-v1. Sets, deletes, appends to and subtracts from single settings (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.shared.config_alteration import ConfigAlteration, ConfigServices
from barnabas.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext

Answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


class IncrementalAlterConfigs(ConfigServices):
    """Handler of IncrementalAlterConfigs."""

    async def handle(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Alter all resources in one change; a refused resource does not affect the others."""
        alteration = ConfigAlteration(self, context, replace_all=False, validate_only=request.validate_only)
        return IncrementalAlterConfigsResponse(responses=await alteration.apply(request, Answer))
