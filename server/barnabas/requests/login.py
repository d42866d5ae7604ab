"""A client's token on its way through the login of its connection.

The rule: a failure is logged with its cause, and answered with what the client may know; tokens are never logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from barnabas.security.sasl.mechanism import LoginFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.requests.context import ConnectionInfo
    from barnabas.requests.log_limit import LogLimit

log = logging.getLogger(__name__)


async def token_answered(
    connection: ConnectionInfo, token: bytes, *, clock_ms: Callable[[], int], log_limit: LogLimit
) -> tuple[bytes | None, int]:
    """Return the answer to a token, None for none, and the life of the login in ms once it is complete.

    Sets the connection's principal then. `clock_ms` gives the time since the epoch. Raises LoginFailedError.
    """
    login = connection.login
    assert login is not None, "tokens are admitted only where there is SASL"
    try:
        answer = await login.evaluate(token)
    except LoginFailedError as failure:
        log_limit.log(
            log, logging.WARNING, "failed logins", connection.peer_address[0],
            "login with %s on listener %s failed: %s: %s",
            login.mechanism, connection.listener, failure, connection,
        )  # fmt: skip
        raise
    lifetime_ms = login.complete(clock_ms(), trio.current_time() * 1000)
    if login.is_done and login.identity is not None:
        connection.principal = f"User:{login.identity.name}"
        connection.token_authenticated = login.identity.is_by_token
        log.debug("%s has logged in with %s as %s", connection, login.mechanism, connection.principal)
    return answer, lifetime_ms


async def wait_after_failure(connection: ConnectionInfo) -> None:
    """Keep a client whose login has failed waiting, so that guessing is slow."""
    login = connection.login
    if login is not None and login.has_failed and login.offer.failure_delay_ms > 0:
        await trio.sleep(login.offer.failure_delay_ms / 1000)
