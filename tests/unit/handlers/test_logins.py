"""SaslHandshake and SaslAuthenticate: what a client is told at each step of its login, and when it is its last word."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.security.sasl.mechanism import Identity, LoginFailedError, Mechanism
from barnabas.security.sasl.plain import PlainExchange
from barnabas.security.sasl.server import SaslOffer, SaslServer
from barnabas.serving.context import ANONYMOUS
from barnabas.wire.generated.errors import ErrorCode
from tests.support.broker import NOW_MS, broker_to_ask
from tests.support.plain_requests import ask

ILLEGAL, FAILED = ErrorCode.ILLEGAL_SASL_STATE, ErrorCode.SASL_AUTHENTICATION_FAILED
ALICE, WRONG = b"\0alice\0a", b"\0alice\0b"


class Token:
    """A mechanism with a first message that is answered, and a second that is the user's name, if there is one."""

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.begun = False

    async def step(self, message: bytes) -> bytes | None:
        if message == b"later":
            raise LoginFailedError("not yet", is_transient=True)
        if not self.begun:
            self.begun = True
            return b"challenge"
        self.identity = Identity(message.decode(), NOW_MS + 5_000, is_by_token=True)
        return None


@pytest.fixture
async def asked(tmp_path):
    async with broker_to_ask(tmp_path) as asked:
        yield asked


def offer(asked: Any, *, max_reauth_ms: int = 0) -> SaslServer:
    mechanisms = {
        "PLAIN": Mechanism(lambda: PlainExchange({"alice": b"a"}), max_reauth_ms),
        "TOKEN": Mechanism(Token, max_reauth_ms),
    }
    asked.connection.login = SaslServer(SaslOffer(mechanisms, 1000, 0))
    return asked.connection.login


async def handshake(asked: Any, mechanism: str = "PLAIN") -> Any:
    return await ask(asked, "SaslHandshake", 1, {"Mechanism": mechanism})


async def send(asked: Any, token: bytes) -> Any:
    return await ask(asked, "SaslAuthenticate", 1, {"AuthBytes": token})


async def test_where_there_is_no_sasl_nobody_logs_in(asked):
    refused = await handshake(asked)
    assert (refused.error_code, refused.mechanisms, asked.is_closed) == (ILLEGAL, [], False)
    refused = await send(asked, ALICE)
    assert (refused.error_code, asked.is_closed) == (ILLEGAL, False)
    assert refused.error_message == "listener PLAINTEXT uses PLAINTEXT, not SASL"
    assert asked.connection.principal == ANONYMOUS


async def test_a_mechanism_that_is_offered_is_begun(asked):
    offer(asked)
    answer = await handshake(asked)
    assert (answer.error_code, answer.mechanisms, asked.is_closed) == (0, ["PLAIN", "TOKEN"], False)
    answer = await send(asked, ALICE)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
    assert asked.connection.principal == "User:alice"
    assert not asked.connection.token_authenticated
    assert not asked.is_closed


async def test_mechanism_not_offered_is_the_last_that_is_asked_for(asked):
    offer(asked)
    answer = await handshake(asked, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert (answer.mechanisms, asked.is_closed) == (["PLAIN", "TOKEN"], True)


async def test_a_wrong_token_is_answered_and_is_the_last(asked):
    offer(asked)
    await handshake(asked)
    answer = await send(asked, WRONG)
    assert (answer.error_code, answer.auth_bytes) == (FAILED, b"")
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert asked.is_closed
    assert asked.connection.principal == ANONYMOUS


async def test_a_token_that_may_be_right_later_is_not_answered(asked):
    offer(asked)
    await handshake(asked, "TOKEN")
    assert await send(asked, b"later") is None
    assert asked.is_closed
    assert asked.connection.principal == ANONYMOUS


async def test_tokens_log_in_for_the_lifetime_of_their_credential(asked):
    login = offer(asked)
    await handshake(asked, "TOKEN")
    answer = await send(asked, b"first")
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"challenge", 0)
    assert asked.connection.principal == ANONYMOUS
    assert not login.is_done
    answer = await send(asked, b"bob")
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 5_000)
    assert asked.connection.principal == "User:bob"
    assert asked.connection.token_authenticated
