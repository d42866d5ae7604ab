"""GSSAPI: the messages of RFC 4752 around a security context; its tokens are the library's affair."""

import pytest

from barnabas.security.principals import KerberosNames
from barnabas.security.sasl.gssapi import OFFER, GssapiExchange, GssError
from barnabas.security.sasl.mechanism import Identity, LoginFailedError

NAMES = KerberosNames(["DEFAULT"], "REALM")
LAYERS = bytes((1, 1, 0, 0))


class Context:
    """A context that stands after one token; what is wrapped has a W before it."""

    initiator = "alice@REALM"

    def __init__(self, answer=b"proof", initiator="alice@REALM"):
        self.is_established = False
        self.answer = answer
        self.initiator = initiator

    def step(self, token):
        if token != b"ticket":
            raise GssError("no such ticket", is_transient=token == b"replay")
        self.is_established = True
        return self.answer

    def wrap(self, data):
        return b"W" + data

    def unwrap(self, token):
        if token[:1] != b"W":
            raise GssError("not wrapped")
        return token[1:]


async def at_once(work):
    return work()


def exchange(**options):
    return GssapiExchange(lambda: Context(**options), NAMES.name_of, at_once)


async def offered(**options):
    login = exchange(**options)
    assert await login.step(b"ticket") == b"proof"
    assert await login.step(b"") == b"W" + OFFER
    return login


async def test_a_client_that_chooses_no_layer_is_logged_in():
    login = await offered()
    assert login.identity is None
    assert await login.step(b"W\1\0\0\0") is None
    assert login.identity == Identity("alice")


async def test_the_offer_has_no_layer_and_the_size_that_java_sends():
    assert OFFER == LAYERS


async def test_without_mutual_authentication_the_offer_comes_at_once():
    login = exchange(answer=None)
    assert await login.step(b"ticket") == b"W" + OFFER
    assert await login.step(b"W\1\0\0\0") is None
    assert login.identity == Identity("alice")


async def test_an_authorization_id_changes_nothing():
    login = await offered()
    await login.step(b"W\1\0\0\0bob")
    assert login.identity == Identity("alice")


@pytest.mark.parametrize("choice", [b"W\2\0\0\0", b"W\4\0\0\0", b"W\0\0\0\0", b"W\1", b"W", b"\1\0\0\0", b""])
async def test_any_other_choice_fails(choice):
    login = await offered()
    with pytest.raises(LoginFailedError) as failed:
        await login.step(choice)
    assert failed.value.shown is None
    assert login.identity is None


async def test_a_message_where_an_empty_one_is_due_fails():
    login = exchange()
    await login.step(b"ticket")
    with pytest.raises(LoginFailedError, match="empty message"):
        await login.step(b"W\1\0\0\0")


@pytest.mark.parametrize("token", [b"wrong", b"replay"])
async def test_what_may_succeed_next_time_is_told_apart(token):
    with pytest.raises(LoginFailedError, match="no such ticket") as failed:
        await exchange().step(token)
    assert failed.value.is_transient == (token == b"replay")


async def test_nothing_follows_a_failure_or_the_end():
    login = exchange()
    with pytest.raises(LoginFailedError):
        await login.step(b"wrong")
    with pytest.raises(LoginFailedError, match="after the end"):
        await login.step(b"ticket")
    login = await offered()
    await login.step(b"W\1\0\0\0")
    with pytest.raises(LoginFailedError, match="after the end"):
        await login.step(b"W\1\0\0\0")


async def test_a_principal_that_no_rule_names_is_not_let_in():
    login = await offered(initiator="alice@ELSEWHERE")
    with pytest.raises(LoginFailedError, match="alice@ELSEWHERE"):
        await login.step(b"W\1\0\0\0")
    assert login.identity is None
