"""Access: ACLs, passwords of SCRAM, delegation tokens, quotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.client.administration.base import Base, Outcome, outcome
from barnabas.client.administration.words import (
    ITERATIONS,
    MECHANISMS,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
)
from barnabas.client.errors import ClientError, check

_MATCH_EXACT, _MATCH_DEFAULT, _MATCH_ANY = range(3)


class Acl(NamedTuple):
    """An ACL; in a filter `any` and None match every value. The words are those of the tables above."""

    resource_type: str = "any"
    resource_name: str | None = None
    pattern_type: str = "any"
    principal: str | None = None
    host: str | None = None
    operation: str = "any"
    permission: str = "any"


class Principal(NamedTuple):
    """A user, as `User:ann`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


class Token(NamedTuple):
    """A delegation token; times in ms since 1970."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_at_ms: int
    expires_at_ms: int
    max_at_ms: int
    hmac: bytes


Entity = Mapping[str, str | None]
"""The entity that a quota applies to: `user`, `client-id` and `ip` with their names; None stands for the default."""


class Quota(NamedTuple):
    """Quotas of an entity, which is a sorted tuple of (type, name)."""

    entity: tuple[tuple[str, str | None], ...]
    values: dict[str, float]


class Access(Base):
    """Calls that concern access."""

    # --- ACLs -----------------------------------------------------------------------------------------------

    async def acls(self, filter_: Acl | None = None) -> list[Acl]:
        """Return the ACLs that a filter matches."""
        from barnabas.wire.generated.describe_acls import DescribeAclsRequest

        response = await self.client.ask(DescribeAclsRequest(*_filter_fields(filter_ or Acl())))
        check(response.error_code, "listing ACLs", response.error_message)
        return sorted(_acl(resource, acl) for resource in response.resources for acl in resource.acls)

    async def create_acls(self, acls: Iterable[Acl]) -> dict[Acl, Outcome]:
        """Make ACLs."""
        from barnabas.wire.generated.create_acls import CreateAclsRequest as Request

        creations = list(acls)
        request = Request([Request.AclCreation(*_filter_fields(acl)) for acl in creations])
        response = await self.client.ask_controller(request)
        return {
            acl: outcome(result.error_code, "creating an ACL", result.error_message)
            for acl, result in zip(creations, response.results, strict=True)
        }

    async def delete_acls(self, filter_: Acl) -> dict[Acl, Outcome]:
        """Delete all ACLs that a filter matches; returns them."""
        from barnabas.wire.generated.delete_acls import DeleteAclsRequest as Request

        request = Request([Request.DeleteAclsFilter(*_filter_fields(filter_))])
        (result,) = (await self.client.ask_controller(request)).filter_results
        check(result.error_code, "deleting ACLs", result.error_message)
        return {
            _acl(acl, acl): outcome(acl.error_code, "deleting an ACL", acl.error_message)
            for acl in result.matching_acls
        }

    # --- passwords ------------------------------------------------------------------------------------------

    async def users(self, names: Iterable[str] | None = None) -> dict[str, dict[str, int] | ClientError]:
        """Return users that have passwords of SCRAM: number of iterations by mechanism."""
        from barnabas.wire.generated.describe_user_scram_credentials import (
            DescribeUserScramCredentialsRequest as Request,
        )

        user_names = None if names is None else [Request.UserName(name) for name in names]
        response = await self.client.ask(Request(user_names))
        check(response.error_code, "listing users", response.error_message)
        mechanisms = {number: name for name, number in MECHANISMS.items()}
        return {
            entry.user: outcome(entry.error_code, f"looking for user {entry.user!r}", entry.error_message)
            or {mechanisms.get(info.mechanism, "unknown"): info.iterations for info in entry.credential_infos}
            for entry in sorted(response.results, key=lambda entry: entry.user)
        }

    async def set_password(
        self, user: str, password: str, *, mechanism: str = "SCRAM-SHA-512", iterations: int = ITERATIONS
    ) -> None:
        """Set a user's password; it leaves this process hashed. Raises ResponseError."""
        # Neither is needed by the other calls, and both bring OpenSSL.
        import hashlib
        import secrets

        from barnabas.wire.generated.alter_user_scram_credentials import (
            AlterUserScramCredentialsRequest as Request,
        )

        salt = secrets.token_bytes(24)
        algorithm = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        salted = await self.client.in_thread(
            lambda: hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
        )
        upsertion = Request.ScramCredentialUpsertion(user, MECHANISMS[mechanism], iterations, salt, salted)
        await self._alter_users(Request([], [upsertion]), f"setting the password of {user!r}")

    async def delete_password(self, user: str, mechanism: str) -> None:
        """Delete a user's password of a mechanism. Raises ResponseError."""
        from barnabas.wire.generated.alter_user_scram_credentials import (
            AlterUserScramCredentialsRequest as Request,
        )

        gone = Request.ScramCredentialDeletion(user, MECHANISMS[mechanism])
        await self._alter_users(Request([gone], []), f"deleting the password of {user!r}")

    async def _alter_users(self, request: Any, doing: str) -> None:
        response = await self.client.ask_controller(
            request, error_of=lambda response: response.results[0].error_code
        )
        for result in response.results:
            check(result.error_code, doing, result.error_message)

    # --- delegation tokens ----------------------------------------------------------------------------------

    async def create_token(
        self, *, owner: Principal | None = None, renewers: Sequence[Principal] = (), lifetime_ms: int = -1
    ) -> Token:
        """Create a token for the client's principal or for `owner`; a lifetime of -1 ms is the broker's maximum.

        Raises ResponseError.
        """
        from barnabas.wire.generated.create_delegation_token import CreateDelegationTokenRequest as Request

        request = Request(
            None, None, [Request.CreatableRenewers(*renewer) for renewer in renewers], lifetime_ms
        )
        connection = await self.client.any_connection()
        version = connection.version_of(38)
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = owner
        elif version < 3:
            request.owner_principal_type = request.owner_principal_name = ""
        response = await self.client.ask_controller(request, version=version)
        check(response.error_code, "creating a delegation token")
        token_owner = Principal(response.principal_type, response.principal_name)
        requester = Principal(
            response.token_requester_principal_type, response.token_requester_principal_name
        )
        times = (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms)
        return Token(response.token_id, token_owner, requester, tuple(renewers), *times, bytes(response.hmac))

    async def renew_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Renew a token; returns its new expiry, in ms since 1970. Raises ResponseError."""
        from barnabas.wire.generated.renew_delegation_token import RenewDelegationTokenRequest

        response = await self.client.ask_controller(RenewDelegationTokenRequest(hmac, period_ms))
        check(response.error_code, "renewing a delegation token")
        return int(response.expiry_timestamp_ms)

    async def expire_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """End a token's life, -1 at once; returns when, in ms since 1970. Raises ResponseError."""
        from barnabas.wire.generated.expire_delegation_token import ExpireDelegationTokenRequest

        response = await self.client.ask_controller(ExpireDelegationTokenRequest(hmac, period_ms))
        check(response.error_code, "expiring a delegation token")
        return int(response.expiry_timestamp_ms)

    async def tokens(self, owners: Iterable[Principal] | None = None) -> list[Token]:
        """Return the tokens that the client's user may see, all or those of these owners. Raises ResponseError."""
        from barnabas.wire.generated.describe_delegation_token import (
            DescribeDelegationTokenRequest as Request,
        )

        token_owners = (
            None if owners is None else [Request.DescribeDelegationTokenOwner(*owner) for owner in owners]
        )
        response = await self.client.ask(Request(token_owners))
        check(response.error_code, "describing delegation tokens")
        return [
            Token(
                token.token_id,
                Principal(token.principal_type, token.principal_name),
                Principal(token.token_requester_principal_type, token.token_requester_principal_name),
                tuple(
                    Principal(renewer.principal_type, renewer.principal_name) for renewer in token.renewers
                ),
                token.issue_timestamp,
                token.expiry_timestamp,
                token.max_timestamp,
                bytes(token.hmac),
            )
            for token in sorted(response.tokens, key=lambda token: token.token_id)
        ]

    # --- quotas ---------------------------------------------------------------------------------------------

    async def quotas(
        self, *, exact: Entity | None = None, kinds: Iterable[str] = (), strict: bool = False
    ) -> list[Quota]:
        """Return quotas: of entities with these parts, and with parts of these kinds; `strict`: with no others."""
        from barnabas.wire.generated.describe_client_quotas import DescribeClientQuotasRequest as Request

        components = [
            Request.ComponentData(kind, _MATCH_DEFAULT if name is None else _MATCH_EXACT, name)
            for kind, name in (exact or {}).items()
        ]
        components += [Request.ComponentData(kind, _MATCH_ANY, None) for kind in kinds]
        response = await self.client.ask(Request(components, strict))
        check(response.error_code, "describing quotas", response.error_message)
        quotas = [
            Quota(
                tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)),
                {value.key: value.value for value in entry.values},
            )
            for entry in response.entries or ()
        ]
        return sorted(quotas, key=lambda quota: [(kind, name or "") for kind, name in quota.entity])

    async def alter_quotas(
        self, entity: Entity, changes: Mapping[str, float | None], *, only_check: bool = False
    ) -> None:
        """Change quotas of an entity; None removes a quota. Raises ResponseError."""
        from barnabas.wire.generated.alter_client_quotas import AlterClientQuotasRequest as Request

        entry = Request.EntryData(
            [Request.EntityData(kind, name) for kind, name in entity.items()],
            [Request.OpData(key, value or 0.0, value is None) for key, value in changes.items()],
        )
        response = await self.client.ask_controller(
            Request([entry], only_check), error_of=lambda response: response.entries[0].error_code
        )
        for result in response.entries:
            check(result.error_code, "changing quotas", result.error_message)


def _acl(resource: Any, entry: Any) -> Acl:
    """Return an ACL, from the fields of a response that name the resource and those of one entry."""
    return Acl(
        _word(RESOURCE_TYPES, resource.resource_type),
        resource.resource_name,
        _word(PATTERN_TYPES, resource.pattern_type),
        entry.principal,
        entry.host,
        _word(OPERATIONS, entry.operation),
        _word(PERMISSIONS, entry.permission_type),
    )


def _word(words: Sequence[str], number: int) -> str:
    return words[number] if 0 <= number < len(words) else f"unknown-{number}"


def _filter_fields(acl: Acl) -> tuple[Any, ...]:
    """Return an ACL or a filter in the order of the messages' fields."""
    return (
        RESOURCE_TYPES.index(acl.resource_type),
        acl.resource_name,
        PATTERN_TYPES.index(acl.pattern_type),
        acl.principal,
        acl.host,
        OPERATIONS.index(acl.operation),
        PERMISSIONS.index(acl.permission),
    )


__all__ = [
    "Access", "Acl", "Entity", "Principal", "Quota", "Token",
]  # fmt: skip
