"""AlterClientQuotas v0-v1: quotas of users, client ids and IP addresses (KIP-546).

The rule: each entity is altered as a whole or refused, and is answered once; an unchanged value needs no record. Brokers
answer DescribeClientQuotas; controllers do not have it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from barnabas.cluster.kraft.controller.conditions import check_size
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome
from barnabas.cluster.kraft.image import Entity, QuorumImage
from barnabas.config import broker as settings
from barnabas.config import releases
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation
from barnabas.serving.quotas.entities import altered, entity_of
from barnabas.wire.generated.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.client_quota import ClientQuotaRecord

ALTER_CLIENT_QUOTAS: Final = 49


def alter_client_quotas(state: ControllerState, request: AlterClientQuotasRequest, caller: Caller) -> Outcome:
    """Alter the quotas of each valid entity. Raises POLICY_VIOLATION for too many quotas at once."""
    caller.require_on_cluster(Operation.ALTER_CONFIGS)
    finite_only = releases.has_finite_quotas(state.config.get(settings.KAFKA_VERSION))
    # if a type of entity is named twice, the last counts, as in Kafka
    alterations = [({part.entity_type: part.entity_name for part in entry.entity}, entry.ops)
                   for entry in request.entries]  # fmt: skip
    counts = Counter(_key(parts) for parts, _ in alterations)
    answers: dict[Entity, AlterClientQuotasResponse.EntryData] = {}
    records: list[ClientQuotaRecord] = []
    for parts, operations in alterations:
        key = _key(parts)
        answer = answers[key] = AlterClientQuotasResponse.EntryData(
            entity=[AlterClientQuotasResponse.EntityData(kind, name) for kind, name in parts.items()],
            error_message=None,
        )
        try:
            if counts[key] > 1:
                raise RequestError(ErrorCode.INVALID_REQUEST, "the entity is named twice")
            records += _alter(state.image, parts, operations, finite_only=finite_only)
        except RequestError as error:
            answer.error_code, answer.error_message = error.code, error.message
    check_size(records)
    response = AlterClientQuotasResponse(entries=list(answers.values()))
    return Outcome(response, () if request.validate_only else tuple(records))


def _alter(
    image: QuorumImage, parts: dict[str, str | None], operations: list[Any], *, finite_only: bool
) -> list[ClientQuotaRecord]:
    """Return the records that alter the quotas of an entity. Raises INVALID_REQUEST."""
    before = image.quotas.get(_key(parts), {})
    changes = [(operation.key, None if operation.remove else operation.value) for operation in operations]
    altered(entity_of(parts.items()), before, changes, finite_only=finite_only)
    return [
        ClientQuotaRecord(
            [ClientQuotaRecord.EntityData(kind, part) for kind, part in parts.items()],
            name,
            0.0 if value is None else value,
            value is None,
        )
        for name, value in changes
        if before.get(name) != value
    ]


def _key(parts: dict[str, str | None]) -> Entity:
    """Return the key of an entity in the image."""
    return tuple(sorted(parts.items()))


HANDLERS: Handlers = {ALTER_CLIENT_QUOTAS: alter_client_quotas}
