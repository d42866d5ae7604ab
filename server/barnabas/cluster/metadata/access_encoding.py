"""Credentials, delegation tokens, quotas and ACLs in the lines of `encoding`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.cluster.metadata.access_changes import (
    AclAdded,
    AclRemoved,
    ClientQuotaChanged,
    DelegationTokenChanged,
    DelegationTokenRemoved,
    ScramCredentialChanged,
)
from barnabas.cluster.metadata.change_codec import ChangeCodec
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.security import scram
from barnabas.security.acls import AccessControlEntry, AclBinding, PatternType, Permission, ResourcePattern
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.tokens import Token
from barnabas.serving.quotas.entities import entity_of


def _scram(body: dict[str, Any]) -> ScramCredentialChanged:
    text = body["credential"]
    credential = scram.of_text(text) if text is not None else None
    return ScramCredentialChanged(body["user"], body["mechanism"], credential)


def _scram_body(change: ScramCredentialChanged) -> dict[str, Any]:
    kept = scram.to_text(change.credential) if change.credential is not None else None
    return {"user": change.user, "mechanism": change.mechanism, "credential": kept}


def _token(body: dict[str, Any]) -> DelegationTokenChanged:
    token = Token(
        body["id"], body["owner"], body["requester"], tuple(body["renewers"]),
        body["issued"], body["expires"], body["expires_max"],
    )  # fmt: skip
    return DelegationTokenChanged(token)


def _token_body(change: DelegationTokenChanged) -> dict[str, Any]:
    token = change.token
    return {
        "id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": token.issued_ms,
        "expires": token.expires_ms,
        "expires_max": token.expires_max_ms,
    }


def _quotas(body: dict[str, Any]) -> ClientQuotaChanged:
    quotas = tuple((name, float(value)) for name, value in body["quotas"].items())
    return ClientQuotaChanged(entity_of(body["entity"].items()), quotas)


def _acl(body: dict[str, Any]) -> AclBinding:
    pattern = ResourcePattern(ResourceType(body["type"]), PatternType(body["pattern"]), body["name"])
    operation, permission = Operation(body["operation"]), Permission(body["permission"])
    return AclBinding(pattern, AccessControlEntry(body["principal"], body["host"], operation, permission))


def _acl_body(change: AclAdded | AclRemoved) -> dict[str, Any]:
    (kind, pattern, name), (principal, host, operation, permission) = change.acl
    return {
        "type": int(kind), "pattern": int(pattern), "name": name, "principal": principal, "host": host,
        "operation": int(operation), "permission": int(permission),
    }  # fmt: skip


CODECS: Mapping[str, ChangeCodec[Any]] = {
    codec.kind.__name__: codec
    for codec in (
        ChangeCodec(ScramCredentialChanged, _scram_body, _scram),
        ChangeCodec(DelegationTokenChanged, _token_body, _token),
        ChangeCodec(
            DelegationTokenRemoved,
            lambda change: {"id": change.token_id},
            lambda body: DelegationTokenRemoved(body["id"]),
        ),
        ChangeCodec(
            ClientQuotaChanged,
            lambda change: {"entity": dict(change.entity.parts), "quotas": dict(change.quotas)},
            _quotas,
        ),
        ChangeCodec(AclAdded, _acl_body, lambda body: AclAdded(_acl(body))),
        ChangeCodec(AclRemoved, _acl_body, lambda body: AclRemoved(_acl(body))),
    )
}


def changes_of(whole: ClusterImage) -> list[Change]:
    """Return those of the changes that lead from nothing to this image."""
    changes: list[Change] = [
        ScramCredentialChanged(user, mechanism, credential)
        for user, credentials in whole.scram.items()
        for mechanism, credential in credentials.items()
    ]
    changes += [DelegationTokenChanged(token) for token in whole.tokens.values()]
    changes += [ClientQuotaChanged(entity, tuple(quotas.items())) for entity, quotas in whole.quotas.items()]
    changes += map(AclAdded, whole.acls)
    return changes
