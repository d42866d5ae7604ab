"""DescribeClientQuotas v0-v1. The quotas of users, client ids and IP addresses that a filter matches (KIP-546)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.errors import RequestError
from barnabas.serving.quotas.entities import QuotaEntity, QuotaFilter, Quotas
from barnabas.wire.generated.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Response = DescribeClientQuotasResponse
ENTRY_BYTES = 600
"""Approximate memory of an entity in a response."""


@dataclass(eq=False)
class DescribeClientQuotas:
    """Handler of DescribeClientQuotas."""

    metadata: MetadataStore
    budget: LoopBudget

    async def handle(self, context: RequestContext, request: DescribeClientQuotasRequest) -> Response:
        """Describe every entity that matches."""
        quota_filter = QuotaFilter(request.strict)
        try:
            for component in request.components:
                quota_filter.add(component.entity_type, component.match_type, component.match)
                await self.budget.checkpoint()
            quota_filter.check()
        except RequestError as error:
            return Response(error_code=error.code, error_message=error.message, entries=None)
        quotas = self.metadata.image.quotas
        await context.reserve(len(quotas) * ENTRY_BYTES)
        entries = []
        for entity, limits in quotas.items():
            if quota_filter.matches(entity):
                entries.append(_described(entity, limits))
            await self.budget.checkpoint()
        context.unreserve((len(quotas) - len(entries)) * ENTRY_BYTES)
        return Response(error_message="", entries=entries)


def _described(entity: QuotaEntity, limits: Quotas) -> Response.EntryData:
    return Response.EntryData(
        entity=[Response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
        values=[Response.ValueData(key=name, value=value) for name, value in limits.items()],
    )
