"""AlterConfigs v0-v2. Replaces all of a resource's own settings; settings that are not named return to their defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.handlers.shared.config_alteration import ConfigAlteration, ConfigServices
from barnabas.wire.generated.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext

Answer = AlterConfigsResponse.AlterConfigsResourceResponse


class AlterConfigs(ConfigServices):
    """Handler of AlterConfigs."""

    async def handle(self, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
        """Alter all resources in one change; a refused resource does not affect the others."""
        alteration = ConfigAlteration(self, context, replace_all=True, validate_only=request.validate_only)
        return AlterConfigsResponse(responses=await alteration.apply(request, Answer))
