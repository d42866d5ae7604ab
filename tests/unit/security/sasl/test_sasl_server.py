"""A login admits only the requests of its stage, expires and is renewed (KIP-43, KIP-152, KIP-368)."""

import pytest

from barnabas.errors import PeerError, RequestError
from barnabas.security.sasl.mechanism import MECHANISMS, Identity, LoginFailedError, Mechanism
from barnabas.security.sasl.plain import PlainExchange
from barnabas.security.sasl.server import SaslOffer, SaslServer
from barnabas.wire.generated.errors import ErrorCode

METADATA, HANDSHAKE, VERSIONS, AUTHENTICATE = 3, 17, 18, 36
ALICE = b"\0alice\0a"
USERS = {"alice": b"a", "bob": b"b"}


class TwoMessages:
    """A mechanism of two messages, the second without an answer."""

    def __init__(self, expires_at_ms=None):
        self.identity = None
        self.count = 0
        self.expires_at_ms = expires_at_ms

    async def step(self, message):
        self.count += 1
        if self.count == 2:
            self.identity = Identity("krb", self.expires_at_ms)
            return None
        return b"more"


def server(*, max_reauth_ms=0, gssapi=False, expires_at_ms=None):
    mechanisms = {
        "PLAIN": Mechanism(lambda: PlainExchange(USERS), max_reauth_ms),
        "OTHER": Mechanism(lambda: TwoMessages(expires_at_ms), max_reauth_ms),
    }
    if gssapi:
        mechanisms["GSSAPI"] = Mechanism(TwoMessages, max_reauth_ms)
    return SaslServer(SaslOffer(mechanisms, 1000, 0))


async def logged_in(**options):
    login = server(**options)
    login.handshake("PLAIN", 1, 0)
    await login.evaluate(ALICE)
    return login, login.complete(1_000_000, 0)


@pytest.mark.parametrize("key", [METADATA, AUTHENTICATE, 0, 1, 29, 999])
@pytest.mark.parametrize("after_versions", [False, True])
def test_nothing_else_is_admitted_before_the_handshake(key, after_versions):
    login = server()
    if after_versions:
        login.admit(VERSIONS, 0)
        login.versions_answered()
    with pytest.raises(PeerError):
        login.admit(key, 0)
    assert login.has_failed


def test_versions_are_asked_once_and_before_the_handshake():
    login = server()
    login.admit(VERSIONS, 0)  # refused for its version or its words: it may be asked for again
    login.admit(VERSIONS, 0)
    login.versions_answered()
    with pytest.raises(PeerError):
        login.admit(VERSIONS, 0)


@pytest.mark.parametrize("key", [METADATA, HANDSHAKE, VERSIONS])
def test_only_tokens_are_admitted_after_the_handshake(key):
    login = server()
    login.admit(HANDSHAKE, 0)
    assert login.handshake("PLAIN", 1, 0) == ErrorCode.NONE
    login.admit(AUTHENTICATE, 0)
    with pytest.raises(RequestError) as refused:
        login.admit(key, 0)
    assert refused.value.code == ErrorCode.ILLEGAL_SASL_STATE
    assert login.has_failed


async def test_everything_is_admitted_after_a_login():
    login, lifetime_ms = await logged_in()
    assert lifetime_ms == 0
    assert login.is_done
    login.admit(METADATA, 10**12)
    assert not login.expects_token(is_known_api=False)


async def test_tokens_come_bare_after_handshake_v0():
    login = server()
    login.handshake("OTHER", 0, 0)
    for answer in (b"more", None):
        assert login.expects_token(is_known_api=True)
        assert not login.is_done
        assert await login.evaluate(b"token") == answer
        login.complete(0, 0)
    assert login.is_done
    assert login.identity == Identity("krb")
    assert not login.expects_token(is_known_api=False)


async def test_a_first_frame_that_is_no_request_is_a_token_of_gssapi():
    login = server(gssapi=True)
    assert not login.expects_token(is_known_api=True)
    assert login.expects_token(is_known_api=False)
    assert login.mechanism == "GSSAPI"
    assert await login.evaluate(b"`") == b"more"
    with pytest.raises(PeerError):
        server().expects_token(is_known_api=False)


def test_after_versions_bare_tokens_are_not_expected():
    login = server(gssapi=True)
    login.versions_answered()
    assert not login.expects_token(is_known_api=False)


def test_a_request_for_a_token_is_refused_in_kafkas_words():
    login = server()
    login.handshake("PLAIN", 1, 0)
    with pytest.raises(
        RequestError, match="Unexpected Kafka request of type DESCRIBE_CLUSTER during SASL auth"
    ):
        login.admit(60, 0)
    assert login.has_failed


async def test_a_failed_login_is_over():
    login = server()
    login.handshake("PLAIN", 1, 0)
    with pytest.raises(LoginFailedError):
        await login.evaluate(b"\0alice\0wrong")
    assert login.has_failed
    assert login.complete(0, 0) == 0
    assert login.identity is None


# --- logging in again (KIP-368) ---------------------------------------------------------------------------------------


async def test_a_login_without_an_end_cannot_be_renewed():
    login, _ = await logged_in()
    assert login.handshake("PLAIN", 1, 5000) == ErrorCode.ILLEGAL_SASL_STATE
    assert login.is_done


async def test_a_login_that_expires_must_be_renewed():
    login, lifetime_ms = await logged_in(max_reauth_ms=60_000)
    assert lifetime_ms == 60_000
    login.admit(METADATA, 59_999)
    with pytest.raises(PeerError, match="expired"):
        login.admit(METADATA, 60_000)
    login.admit(HANDSHAKE, 60_000)
    assert login.handshake("PLAIN", 1, 60_000) == ErrorCode.NONE
    with pytest.raises(RequestError):
        login.admit(METADATA, 60_000)


async def test_a_renewed_login_lasts_as_long_as_the_first():
    login, _ = await logged_in(max_reauth_ms=60_000)
    login.handshake("PLAIN", 1, 50_000)
    await login.evaluate(ALICE)
    assert login.complete(0, 50_000) == 60_000
    login.admit(METADATA, 109_999)


@pytest.mark.parametrize(
    ("expires_at_ms", "max_reauth_ms", "lifetime_ms"),
    [(1_030_000, 0, 30_000), (1_030_000, 10_000, 10_000), (1_030_000, 60_000, 30_000), (900_000, 60_000, 0)],
)
async def test_a_login_ends_with_its_credential(expires_at_ms, max_reauth_ms, lifetime_ms):
    login = server(max_reauth_ms=max_reauth_ms, expires_at_ms=expires_at_ms)
    login.handshake("OTHER", 1, 0)
    await login.evaluate(b"1")
    await login.evaluate(b"2")
    assert login.complete(1_000_000, 500) == lifetime_ms
    with pytest.raises(PeerError):
        login.admit(METADATA, 500 + lifetime_ms)


async def test_a_client_renews_at_most_once_a_second():
    login, _ = await logged_in(max_reauth_ms=60_000)
    login.handshake("PLAIN", 1, 1_000)
    await login.evaluate(ALICE)
    login.complete(0, 1_000)
    assert login.handshake("PLAIN", 1, 1_999) == ErrorCode.ILLEGAL_SASL_STATE
    assert login.is_done
    assert login.handshake("PLAIN", 1, 2_000) == ErrorCode.NONE


async def test_a_client_stays_who_it_is():
    login, _ = await logged_in(max_reauth_ms=60_000)
    login.handshake("PLAIN", 1, 1_000)
    with pytest.raises(LoginFailedError) as refused:
        await login.evaluate(b"\0bob\0b")
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert login.shown_reason(refused.value) == text
    assert login.has_failed


async def test_the_mechanism_stays_what_it_is():
    login, _ = await logged_in(max_reauth_ms=60_000)
    assert login.handshake("OTHER", 1, 1_000) == ErrorCode.NONE
    with pytest.raises(LoginFailedError) as refused:
        await login.evaluate(b"1")
    text = "SASL mechanism 'OTHER' requested by client is not supported for re-authentication of mechanism 'PLAIN'"
    assert refused.value.shown == text


class Known:
    """A mechanism with a login in every message by that name."""

    def __init__(self):
        self.identity = None

    async def step(self, message):
        self.identity = Identity(message.decode("utf-8", "surrogatepass"))
        return b""


@pytest.mark.parametrize("character", ["\n", "\r", "\t", "\0", "\x1b", "\x7f", "\x9f", "\u2028", "\ud800"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_control_character_in_a_name_fails_every_mechanism(mechanism, character):
    login = SaslServer(SaslOffer({mechanism: Mechanism(Known)}, 1000, 0))
    login.handshake(mechanism, 1, 0)
    with pytest.raises(LoginFailedError, match="control character"):
        await login.evaluate(f"alice{character}User:root".encode("utf-8", "surrogatepass"))
    assert login.has_failed
    assert login.identity is None


@pytest.mark.parametrize("name", ["alice", "zoë", "a b", "名前", "a@B.C", "=,+"])
async def test_other_names_are_taken_as_they_are(name):
    login = SaslServer(SaslOffer({"PLAIN": Mechanism(Known)}, 1000, 0))
    login.handshake("PLAIN", 1, 0)
    await login.evaluate(name.encode())
    login.complete(0, 0)
    assert login.identity == Identity(name)


@pytest.mark.parametrize("version", [0, 1])
async def test_after_a_login_no_bare_token_is_expected(version):
    login = server()
    login.handshake("PLAIN", version, 0)
    await login.evaluate(ALICE)
    login.complete(0, 0)
    assert login.is_done
    assert not login.expects_token(is_known_api=False)


def test_mechanism_not_offered_ends_the_login_in_each_version():
    for version in (0, 1):
        login = server()
        assert login.handshake("SCRAM-SHA-256", version, 0) == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert login.has_failed
        assert login.mechanism == ""
