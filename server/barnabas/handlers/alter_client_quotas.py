"""AlterClientQuotas v0-v1. Sets and removes quotas of users, client ids and IP addresses (KIP-546).

Each entity is altered as a whole or refused; a refused entity does not affect the others. Brokers of 4.4 refuse infinite
quotas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.access_changes import ClientQuotaChanged
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.config import broker as settings
from barnabas.config import releases
from barnabas.errors import RequestError, detached
from barnabas.handlers.shared.config_alteration import ALTERATIONS_PER_REQUEST_MAX
from barnabas.serving.quotas.entities import QuotaEntity, altered, entity_of, in_order
from barnabas.wire.generated.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget

Response = AlterClientQuotasResponse


@dataclass(slots=True)
class _Alteration:
    """The requested alteration of one entity, and the error if it is refused."""

    asked: AlterClientQuotasRequest.EntryData
    parts: dict[str, str | None] = field(default_factory=dict)
    entity: QuotaEntity | None = None
    refused: RequestError | None = None


@dataclass(eq=False)
class AlterClientQuotas:
    """Handler of AlterClientQuotas."""

    config: BrokerConfig
    metadata: MetadataStore
    budget: LoopBudget

    async def handle(self, _context: RequestContext, request: AlterClientQuotasRequest) -> Response:
        """Alter all entities in one change, and answer each. Raises POLICY_VIOLATION for too many at once."""
        alterations = await self._wanted(request)
        finite_only = releases.has_finite_quotas(self.config.get(settings.KAFKA_VERSION))

        def decide(image: ClusterImage) -> Iterator[Change | None]:
            for alteration in alterations:
                yield None
                if alteration.refused is not None or alteration.entity is None:
                    continue
                before = image.quotas.get(alteration.entity, {})
                operations = [(op.key, None if op.remove else op.value) for op in alteration.asked.ops]
                try:
                    after = altered(alteration.entity, before, operations, finite_only=finite_only)
                except RequestError as error:
                    alteration.refused = detached(error)
                else:
                    if after != before:
                        yield ClientQuotaChanged(alteration.entity, tuple(after.items()))

        if request.validate_only:
            for _ in decide(self.metadata.image):
                await self.budget.checkpoint()
        else:
            await self.metadata.change(decide)
        response = Response()
        answered: set[QuotaEntity] = set()
        for alteration in alterations:
            if alteration.entity is not None:
                if alteration.entity in answered:  # refused, as it is named twice, and answered once
                    continue
                answered.add(alteration.entity)
            response.entries.append(await self._answer(alteration))
            await self.budget.checkpoint()
        return response

    async def _wanted(self, request: AlterClientQuotasRequest) -> list[_Alteration]:
        """Return the requested changes of each entity; invalid entities, and those named twice, are refused."""
        count = 0
        for entry in request.entries:
            count += len(entry.ops)
            await self.budget.checkpoint()
        if count > ALTERATIONS_PER_REQUEST_MAX:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"{count} quotas are changed; at most {ALTERATIONS_PER_REQUEST_MAX} in one request",
            )
        alterations = []
        times: Counter[QuotaEntity] = Counter()
        for entry in request.entries:
            alteration = _Alteration(entry)
            for part in entry.entity:  # of two parts of one type the last counts, as in Kafka
                alteration.parts[part.entity_type] = part.entity_name
                await self.budget.checkpoint()
            try:
                alteration.entity = entity_of(alteration.parts.items())
                times[alteration.entity] += 1
            except RequestError as error:
                alteration.refused = detached(error)
            alterations.append(alteration)
            await self.budget.checkpoint()
        for alteration in alterations:
            if alteration.entity is not None and times[alteration.entity] > 1:
                alteration.refused = RequestError(
                    ErrorCode.INVALID_REQUEST, f"{alteration.entity} is named twice"
                )
            await self.budget.checkpoint()
        return alterations

    async def _answer(self, alteration: _Alteration) -> Response.EntryData:
        parts = alteration.entity.parts if alteration.entity is not None else in_order(alteration.parts)
        entity = []
        for kind, name in parts:
            entity.append(Response.EntityData(entity_type=kind, entity_name=name))
            await self.budget.checkpoint()
        answer = Response.EntryData(
            entity=entity,
            error_message=None,
        )
        if alteration.refused is not None:
            answer.error_code, answer.error_message = alteration.refused.code, alteration.refused.message
        return answer
