"""Kinds of change about access and its limits: credentials, delegation tokens, quotas, ACLs. Pure.

The rule: as in `changes`; a broker that uses none of these features does not import this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.image import Change, Draft, Subjects

if TYPE_CHECKING:
    from barnabas.security.acls import AclBinding
    from barnabas.security.scram import ScramCredential
    from barnabas.security.tokens import Token
    from barnabas.serving.quotas.entities import QuotaEntity


@dataclass(frozen=True, slots=True)
class ScramCredentialChanged(Change):
    """A user's new credential for a SCRAM mechanism (as in `SCRAM-SHA-256`); None if it was deleted."""

    user: str
    mechanism: str
    credential: ScramCredential | None

    def apply(self, draft: Draft) -> None:
        """Replace or remove the credential; a user without any is removed."""
        credentials = dict(draft.scram.now.get(self.user, {}))
        if self.credential is not None:
            credentials[self.mechanism] = self.credential
        else:
            credentials.pop(self.mechanism, None)
        draft.scram.put(self.user, credentials or None)


@dataclass(frozen=True, slots=True)
class DelegationTokenChanged(Change):
    """A delegation token was created or renewed, or expires at another time."""

    token: Token

    def apply(self, draft: Draft) -> None:
        """Add the token, or replace it."""
        draft.tokens.put(self.token.token_id, self.token)


@dataclass(frozen=True, slots=True)
class DelegationTokenRemoved(Change):
    """A delegation token was removed."""

    token_id: str

    def apply(self, draft: Draft) -> None:
        """Remove the token."""
        draft.tokens.put(self.token_id, None)


@dataclass(frozen=True, slots=True)
class ClientQuotaChanged(Change):
    """The quotas of an entity were replaced by these, which may be empty."""

    entity: QuotaEntity
    quotas: tuple[tuple[str, float], ...]

    def apply(self, draft: Draft) -> None:
        """Replace the entity's quotas."""
        draft.quotas.put(self.entity, dict(self.quotas) or None)

    def mark(self, subjects: Subjects) -> None:
        """Mark the entity."""
        subjects.quotas[self.entity] = None


@dataclass(frozen=True, slots=True)
class AclAdded(Change):
    """An ACL was added."""

    acl: AclBinding

    def apply(self, draft: Draft) -> None:
        """Add the ACL."""
        draft.acls().add(self.acl)


@dataclass(frozen=True, slots=True)
class AclRemoved(Change):
    """An ACL was removed."""

    acl: AclBinding

    def apply(self, draft: Draft) -> None:
        """Remove the ACL."""
        draft.acls().remove(self.acl)
