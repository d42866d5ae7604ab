"""PLAIN and SCRAM as the server plays them: the examples of the RFCs, and what must not let anybody in."""

import hmac
from base64 import b64decode, b64encode

import pytest

from barnabas.client.sasl import exchange
from barnabas.client.settings import SaslCredentials
from barnabas.security import scram
from barnabas.security.sasl.mechanism import LoginFailedError
from barnabas.security.sasl.plain import PlainExchange
from barnabas.security.sasl.scram import ScramExchange
from barnabas.security.tokens import Token

USERS = {"alice": b"wonder", "zo\u00eb": "\u00fcber".encode(), "empty": b""}

# --- PLAIN ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (b"\0alice\0wonder", "alice"),
        (b"alice\0alice\0wonder", "alice"),
        ("\0zo\u00eb\0\u00fcber".encode(), "zo\u00eb"),
    ],
)
async def test_plain_lets_in_who_knows_the_password(message, name):
    exchange = PlainExchange(USERS)
    assert await exchange.step(message) == b""
    assert exchange.identity is not None
    assert exchange.identity.name == name


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wonder", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0\xff", "Authentication failed: Invalid username or password"),
        (b"\0alice\0wonder\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 100, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0\0wonder", "Authentication failed: username not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0wonder",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
async def test_plain_refuses_with_the_words_of_kafka(message, shown):
    exchange = PlainExchange(USERS)
    with pytest.raises(LoginFailedError) as refused:
        await exchange.step(message)
    assert refused.value.shown == shown
    assert exchange.identity is None


# --- SCRAM ------------------------------------------------------------------------------------------------------------

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


class Known:
    """Credentials of one user and one token for both mechanisms."""

    def __init__(self, user="user", password="pencil"):
        self.user = user
        self.by_mechanism = {
            name: scram.credential(mechanism, password, SALT, 4096)
            for name, mechanism in scram.MECHANISMS.items()
        }

    def scram(self, mechanism, user):
        return self.by_mechanism[mechanism] if user == self.user else None

    def token(self, token_id):
        return Token("id1", "User:owner", "User:owner", (), 0, 77, 99) if token_id == "id1" else None

    async def token_scram(self, mechanism, token_id):
        return self.by_mechanism[mechanism] if token_id == "id1" else None


def begun(mechanism="SCRAM-SHA-256", nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", credentials=None):
    return ScramExchange(mechanism, credentials or Known(), nonce=lambda: nonce, secret=b"s")


NONCE = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=" + NONCE + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=" + NONCE + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


async def test_scram_answers_the_example_of_rfc_7677():
    exchange = begun()
    assert await exchange.step(FIRST) == CHALLENGE
    assert exchange.identity is None
    assert await exchange.step(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.identity is not None
    assert exchange.identity.name == "user"
    assert not exchange.identity.is_by_token


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["user", "a,b=c", "zo\u00eb"])
async def test_scram_and_our_client_agree(mechanism, user):
    server = begun(mechanism, credentials=Known(user, "pass, word=\u00fc"))
    client = exchange(SaslCredentials(mechanism, user, "pass, word=\u00fc"), b"0123456789abcdef")
    final = client.send(await server.step(next(client)))
    answer = await server.step(final)
    with pytest.raises(StopIteration):
        client.send(answer)
    assert server.identity is not None
    assert server.identity.name == user


@pytest.mark.parametrize(
    "first",
    [
        b"", b"\0", b"n,,", b"n,,n=user", b"n,,r=x,n=user", b"p=tls-unique,,n=user,r=abc", b"y,,n=user,r=abc",
        b"n,,n=,r=abc", b"n,,n=user,r=", b"n,,n=us=er,r=abc", b"n,a=other,n=user,r=abc", b"n,,m=x,n=user,r=abc",
        b"n,,n=user,r=abc,m=ext", b"n,,n=user,r=a bc", b"\xff\xfe", b"n,,n=us\0er,r=abc",
    ],
)  # fmt: skip
async def test_scram_refuses_a_malformed_first_message(first):
    server = begun()
    with pytest.raises(LoginFailedError):
        await server.step(first)
    with pytest.raises(LoginFailedError):
        await server.step(FINAL)
    assert server.identity is None


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace(NONCE, b"rOprNGfwEbeRWgbNEkqO"),
        FINAL.replace(NONCE, NONCE[20:]),
        FINAL.replace(NONCE, b"x" + NONCE),
        FINAL.replace(NONCE, NONCE + b"x"),
        FINAL.replace(b"biws", b"eSws"),
        FINAL.replace(b"biws", b"biw"),
        FINAL.replace(b"dHzb", b"AHzb"),
        FINAL[:-4],
        FINAL.rpartition(b",")[0],
        FINAL.rpartition(b"p=")[0] + b"p=",
        FINAL.rpartition(b"p=")[0] + b"p=" + b64encode(bytes(64)),
        FIRST,
        b"",
    ],
)
async def test_scram_refuses_a_final_message_of_another_exchange(final):
    server = begun()
    await server.step(FIRST)
    with pytest.raises(LoginFailedError) as refused:
        await server.step(final)
    assert refused.value.shown is None
    with pytest.raises(LoginFailedError):  # nor the right one after it
        await server.step(FINAL)
    assert server.identity is None


async def test_a_recorded_exchange_does_not_let_in_again():
    server = begun(nonce="another")
    await server.step(FIRST)
    with pytest.raises(LoginFailedError):
        await server.step(FINAL)


@pytest.mark.parametrize("first", [b"n,,n=nobody,r=abc", b"n,,n=nothing,r=abc,tokenauth=true"])
async def test_unknown_user_gets_a_challenge_that_stays_the_same(first):
    (challenge,) = {await begun().step(first) for _ in range(3)}
    assert challenge.startswith(b"r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=")
    assert challenge.endswith(b",i=4096")
    server = begun()
    await server.step(first)
    with pytest.raises(LoginFailedError) as refused:
        await server.step(b"c=biws,r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=" + b64encode(bytes(32)))
    assert refused.value.shown is None


async def test_a_token_lets_in_as_its_owner_until_it_expires():
    server = begun()
    bare = b"n=id1,r=abc,tokenauth=true"
    challenge = await server.step(b"n,," + bare)
    nonce = challenge.split(b",")[0]
    mechanism = scram.MECHANISMS["SCRAM-SHA-256"]
    key = scram.client_key(mechanism, scram.salted_password(mechanism, "pencil", SALT, 4096))
    signed = b",".join((bare, challenge, b"c=biws", nonce))
    signature = hmac.digest(scram.stored_key(mechanism, key), signed, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
    await server.step(b"c=biws," + nonce + b",p=" + proof)
    identity = server.identity
    assert identity is not None
    assert (identity.name, identity.expires_at_ms, identity.is_by_token) == ("owner", 77, True)
