"""Processing of a client's tokens in the login of its connection.

The rule: a failure is logged with its cause, and answered without secrets; tokens are never logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from barnabas.errors import NotLoggedInError, RequestError
from barnabas.security.sasl.mechanism import LoginFailedError
from barnabas.wire import registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.security.sasl.server import SaslServer
    from barnabas.serving.context import ConnectionInfo
    from barnabas.serving.log_limit import LogLimit
    from barnabas.wire.headers import RequestHeader

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


async def answer_token(
    connection: ConnectionInfo, token: bytes, clock_ms: Callable[[], int], log_limit: LogLimit
) -> tuple[bytes | None, bool]:
    """Return the answer to a bare token, None for none, and whether the connection continues after it."""
    failure: LoginFailedError | None = None
    answer: bytes | None = None
    try:
        answer, _ = await token_answered(connection, token, clock_ms=clock_ms, log_limit=log_limit)
    except LoginFailedError as error:
        failure = error
    if failure is not None and not failure.is_transient:
        await wait_after_failure(connection)
    return answer, failure is None


def out_of_turn(login: SaslServer, header: RequestHeader) -> RequestError | None:
    """Return the error of a request that its connection's login does not admit; None if it is admitted.

    Raises NotLoggedInError where the connection is closed without an answer.
    """
    try:
        login.admit(header.api_key, trio.current_time() * 1000)
    except RequestError as error:
        return error
    except NotLoggedInError as error:
        key = header.api_key
        name = registry.name_of(key) if registry.is_known(key) else f"API key {key}"
        raise NotLoggedInError(f"{name} (correlation id {header.correlation_id}) {error}") from error
    return None


async def wait_after_failure(connection: ConnectionInfo) -> None:
    """Delay a client after a failed login, so that guessing is slow."""
    login = connection.login
    if login is not None and login.has_failed and login.offer.failure_delay_ms > 0:
        await trio.sleep(login.offer.failure_delay_ms / 1000)
