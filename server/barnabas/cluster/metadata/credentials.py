"""Credentials from the newest image of the cluster; implements `security.credentials.Credentials`.

The rule: only values computed from the image are cached: a token's HMAC and credential are computed at the first use,
and dropped with the token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.security import scram, tokens
from barnabas.security.tokens import Token

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.environment import Entropy, Threads
    from barnabas.security.scram import ScramCredential
    from barnabas.serving.loop_budget import LoopBudget

SALT_BYTES = 24


class ClusterCredentials:
    """SCRAM credentials and delegation tokens of the cluster."""

    def __init__(
        self,
        metadata: MetadataStore,
        secret_key: str | None,
        *,
        clock_ms: Callable[[], int],
        entropy: Entropy,
        threads: Threads,
        budget: LoopBudget,
    ) -> None:
        """`secret_key` signs delegation tokens (`delegation.token.secret.key`); None: there are no tokens."""
        self._metadata = metadata
        self._secret_key = secret_key
        self._clock_ms = clock_ms
        self._entropy = entropy
        self._threads = threads
        self._budget = budget
        self._indexed: Mapping[str, Token] = {}
        self._ids_by_mac: dict[bytes, str] = {}
        self._macs_by_id: dict[str, bytes] = {}
        self._token_credentials: dict[tuple[str, str], ScramCredential] = {}

    @property
    def has_tokens(self) -> bool:
        """True if delegation tokens are served: their secret key is set."""
        return self._secret_key is not None

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        """See Credentials.scram."""
        of_user = self._metadata.image.scram.get(user)
        return of_user.get(mechanism) if of_user is not None else None

    def token(self, token_id: str) -> Token | None:
        """See Credentials.token."""
        token = self._metadata.image.tokens.get(token_id) if self._secret_key is not None else None
        return token if token is not None and not token.is_expired(self._clock_ms()) else None

    async def token_scram(self, mechanism: str, token_id: str) -> ScramCredential | None:
        """See Credentials.token_scram."""
        scram_mechanism = scram.MECHANISMS.get(mechanism)
        if scram_mechanism is None or self.token(token_id) is None:
            return None
        key = mechanism, token_id
        credential = self._token_credentials.get(key)
        if credential is None:
            salt = self._entropy.token_bytes(SALT_BYTES)
            password = tokens.token_password(self.mac_of(token_id))
            credential = await self._threads.run(
                lambda: scram.credential(scram_mechanism, password, salt, scram_mechanism.iterations_min)
            )
            there = self._metadata.image.tokens
            for other in [credential for credential in self._token_credentials if credential[1] not in there]:
                del self._token_credentials[other]
            self._token_credentials[key] = credential
        return credential if self.token(token_id) is not None else None

    def mac_of(self, token_id: str) -> bytes:
        """Return the HMAC of a token. Raises ValueError without a secret key."""
        if self._secret_key is None:
            raise ValueError("there is no secret key for delegation tokens")
        return self._macs_by_id.get(token_id) or tokens.token_hmac(self._secret_key, token_id)

    async def token_with(self, mac: bytes) -> Token | None:
        """Return the token with this HMAC, even an expired one; None if it does not exist.

        The HMACs of all tokens are cached after the first call.
        """
        image = self._metadata.image
        if image.tokens is not self._indexed:
            await self._index(image.tokens)
        token_id = self._ids_by_mac.get(mac)
        return self._metadata.image.tokens.get(token_id) if token_id is not None else None

    async def _index(self, there: Mapping[str, Token]) -> None:
        for token_id in list(there):
            if token_id not in self._macs_by_id:
                token_mac = self.mac_of(token_id)
                self._macs_by_id[token_id], self._ids_by_mac[token_mac] = token_mac, token_id
                await self._budget.checkpoint()
        for token_id in [token_id for token_id in self._macs_by_id if token_id not in there]:
            mac = self._macs_by_id.pop(token_id, None)
            if mac is not None:
                self._ids_by_mac.pop(mac, None)
        self._indexed = there
