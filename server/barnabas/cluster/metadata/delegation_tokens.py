"""Delegation tokens (KIP-48): creation, renewal, expiry, and removal of expired ones.

The rule: a decision on a token is made on the newest image, and persisted before it is answered. Errors are those of
Apache Kafka's controller, in its order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.metadata.access_changes import DelegationTokenChanged, DelegationTokenRemoved
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.errors import RequestError, StorageError
from barnabas.security.tokens import Lifetime, Token
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.ids import new_uuid, uuid_text

if TYPE_CHECKING:
    from barnabas.cluster.metadata.credentials import ClusterCredentials
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.environment import Entropy

log = logging.getLogger(__name__)


class DelegationTokens:
    """The tokens of the cluster. Lifecycle: `run` in a separate task, which removes expired tokens."""

    def __init__(
        self,
        metadata: MetadataStore,
        credentials: ClusterCredentials,
        *,
        lifetime: Lifetime,
        per_owner_max: int,
        check_interval_ms: int,
        clock_ms: Callable[[], int],
        entropy: Entropy,
    ) -> None:
        """An owner has at most `per_owner_max` tokens, and a token as many renewers."""
        self._metadata = metadata
        self._credentials = credentials
        self._lifetime = lifetime
        self.per_owner_max = per_owner_max
        self._check_interval_ms = check_interval_ms
        self._clock_ms = clock_ms
        self._entropy = entropy

    def check_served(self) -> None:
        """Raise DELEGATION_TOKEN_AUTH_DISABLED unless there is a secret key."""
        if not self._credentials.has_tokens:
            raise RequestError(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set"
            )

    def mac_of(self, token: Token) -> bytes:
        """Return a token's HMAC, which is its password."""
        return self._credentials.mac_of(token.token_id)

    async def create(self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int) -> Token:
        """Create a token; a lifetime of 0 or less means the maximum.

        Raises DELEGATION_TOKEN_AUTH_DISABLED, POLICY_VIOLATION; StorageError.
        """
        self.check_served()
        now_ms = self._clock_ms()
        token_id = uuid_text(new_uuid(self._entropy))
        token = self._lifetime.new_token(token_id, owner, requester, renewers, lifetime_ms, now_ms)

        def decide(image: ClusterImage) -> Iterator[Change | None]:
            held = 0
            for other in image.tokens.values():
                held += other.owner == owner and not other.is_expired(now_ms)
                yield None
            if held >= self.per_owner_max:
                raise RequestError(
                    ErrorCode.POLICY_VIOLATION,
                    f"{owner} has {held} delegation tokens, as many as delegation.token.max.per.owner allows",
                )
            yield DelegationTokenChanged(token)

        await self._metadata.change(decide)
        log.info("created delegation token %s of %s", token.token_id, owner)
        return token

    async def renew(self, mac: bytes, principal: str, period_ms: int) -> int:
        """Extend a token by this period; 0 or less: by the period of the broker's settings. Returns when it expires.

        Raises RequestError DELEGATION_TOKEN_AUTH_DISABLED, _NOT_FOUND, _EXPIRED, _OWNER_MISMATCH; StorageError.
        """
        token = await self._found(mac)
        return await self._keep(token.renewed(principal, period_ms, self._lifetime, self._clock_ms()))

    async def expire(self, mac: bytes, principal: str, period_ms: int) -> int:
        """Set a token to expire after this period, immediately if it is negative. Returns when it expires.

        Raises RequestError DELEGATION_TOKEN_AUTH_DISABLED, _NOT_FOUND, _OWNER_MISMATCH, _EXPIRED; StorageError.
        """
        token = await self._found(mac)
        now_ms = self._clock_ms()
        after = token.expiring(principal, period_ms, now_ms)
        if after is None:
            await self._metadata.change(lambda _: [DelegationTokenRemoved(token.token_id)])
            log.info("removed delegation token %s of %s", token.token_id, token.owner)
            return now_ms
        return await self._keep(after)

    async def _found(self, mac: bytes) -> Token:
        self.check_served()
        token = await self._credentials.token_with(mac)
        if token is None:
            raise RequestError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return token

    async def _keep(self, token: Token) -> int:
        def decide(image: ClusterImage) -> Iterator[Change]:
            newest = image.tokens.get(token.token_id)
            if newest is None:
                raise RequestError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            yield DelegationTokenChanged(replace(newest, expires_ms=token.expires_ms))

        await self._metadata.change(decide)
        log.info("delegation token %s of %s expires at %d", token.token_id, token.owner, token.expires_ms)
        return token.expires_ms

    # --- expired tokens -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Remove expired tokens whenever it is due, until cancelled."""
        while self._credentials.has_tokens:
            await trio.sleep(min(self._check_interval_ms / 1000, 1e9))
            try:
                await self.remove_expired()
            except StorageError as error:
                log.error("expired delegation tokens cannot be removed, which is tried again: %s", error)
        await trio.sleep_forever()

    async def remove_expired(self) -> None:
        """Remove the tokens that have expired. Raises StorageError."""

        def decide(image: ClusterImage) -> Iterator[Change]:
            now_ms = self._clock_ms()
            for token in list(image.tokens.values()):
                if token.is_expired(now_ms):
                    yield DelegationTokenRemoved(token.token_id)

        now_ms = self._clock_ms()
        if any(token.is_expired(now_ms) for token in self._metadata.image.tokens.values()):
            await self._metadata.change(decide)
