"""Port between SASL mechanisms and the store of credentials, for listeners that authenticate. Pure.

The rule: credentials are looked up at each login, in the newest image of the cluster, so a change takes effect immediately.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.security.scram import ScramCredential
from barnabas.security.tokens import Token


class Credentials(Protocol):
    """SCRAM credentials of users, and delegation tokens. Called from the event loop."""

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential for a mechanism (for example `SCRAM-SHA-256`), None for a user without one."""

    def token(self, token_id: str) -> Token | None:
        """Return the delegation token with this id, None if it does not exist or has expired, or tokens are not served."""

    async def token_scram(self, mechanism: str, token_id: str) -> ScramCredential | None:
        """Return the credential for a login with a token, None if `token` returns None.

        It is computed at the first login with the token (some ms, in a thread), and cached while the token exists.
        """
