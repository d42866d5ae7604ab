"""OAUTHBEARER: the messages of RFC 7628, and which tokens let anybody in."""

import hmac
import json
import socket
import time
from base64 import urlsafe_b64encode

import pytest
import trio
from joserfc import jws, jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from barnabas.broker.tokens import Expected, SignedTokens, UnsecuredTokens
from barnabas.environment.real import OsThreads
from barnabas.network.jwks import UNKNOWN_KEY_SECONDS, Jwks, JwksError
from barnabas.security.sasl.mechanism import Identity, LoginFailedError
from barnabas.security.sasl.oauthbearer import INVALID_TOKEN, OAuthBearerExchange, TokenError

NOW = 1_700_000_000


async def anybody(token: str) -> Identity:
    if token == "bad":
        raise TokenError("it is bad")
    return Identity("alice", 5)


def first(token="t0ken", *, authzid="", pairs=""):
    who = f"a={authzid}" if authzid else ""
    return f"n,{who},\x01auth=Bearer {token}\x01{pairs}\x01".encode()


@pytest.mark.parametrize(
    "message",
    [first(), first(authzid="alice"), first(pairs="host=h\x01port=9092\x01"), first("a.b-c_d~e+f/g==")],
)
async def test_a_token_lets_in(message):
    exchange = OAuthBearerExchange(anybody)
    assert await exchange.step(message) == b""
    assert exchange.identity == Identity("alice", 5)


@pytest.mark.parametrize("last", [b"\x01", b"", b"again"])
async def test_a_wrong_token_is_answered_before_the_end(last):
    exchange = OAuthBearerExchange(anybody)
    assert await exchange.step(first("bad")) == b'{"status":"invalid_token"}'
    with pytest.raises(LoginFailedError) as refused:
        await exchange.step(last)
    assert refused.value.shown == (INVALID_TOKEN if last == b"\x01" else None)
    assert exchange.identity is None


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"n,,", b"n,,\x01\x01", b"y,,\x01auth=Bearer t\x01\x01", b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Bearer t\x01", first(pairs="trace=\x01"),
        b"n,,\x01auth=Bearer t t\x01\x01", b"\xff",
        first(authzid="bob"),
    ],
)  # fmt: skip
async def test_malformed_messages_are_refused(message):
    exchange = OAuthBearerExchange(anybody)
    with pytest.raises(LoginFailedError):
        await exchange.step(message)
    assert exchange.identity is None


# --- tokens -----------------------------------------------------------------------------------------------------------

EC, RSA, OTHER = (
    ECKey.generate_key("P-256", {"kid": "ec"}),
    RSAKey.generate_key(2048, {"kid": "rsa"}),
    ECKey.generate_key("P-256", {"kid": "ec"}),
)
CLAIMS = {
    "sub": "alice", "exp": NOW + 60, "iat": NOW, "iss": "https://issuer", "aud": ["kafka", "x"], "scope": "a b",
}  # fmt: skip
EXPECTED = Expected("https://issuer", ("kafka",))


@pytest.fixture
def jwks(tmp_path):
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(KeySet([EC, RSA]).as_dict(private=False)))
    return Jwks(f"file://{path}", 3600)


def checker(jwks, expected=EXPECTED, now_s=lambda: 100.0):
    return SignedTokens(jwks, expected, threads=OsThreads(), clock_ms=lambda: NOW * 1000, now_s=now_s)


def token(key=EC, algorithm="ES256", **claims):
    merged = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode({"alg": algorithm, "kid": key.kid}, merged, key, algorithms=[algorithm])


@pytest.mark.parametrize(("key", "algorithm"), [(EC, "ES256"), (RSA, "RS256"), (RSA, "PS512")])
async def test_a_signed_token_says_whose_it_is_and_until_when(jwks, key, algorithm):
    identity = await checker(jwks).check(token(key, algorithm))
    assert identity == Identity("alice", (NOW + 60) * 1000)


async def test_logins_at_the_same_time_have_the_keys_read_once(jwks, monkeypatch):
    reads, read = [], jwks.read

    def read_slowly(now_s):
        reads.append(now_s)
        time.sleep(0.05)
        read(now_s)

    monkeypatch.setattr(jwks, "read", read_slowly)
    check = checker(jwks).check
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(check, token())
    assert len(reads) == 1


def part(value):
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_a_token_that_is_not_signed_by_the_key_lets_nobody_in(jwks):
    header, claims, signature = token().split(".")
    start = f"{part({'alg': 'HS256', 'kid': 'ec'})}.{claims}"
    mac = hmac.digest(EC.as_pem(private=False), start.encode(), "sha256")
    forged = f"{start}.{urlsafe_b64encode(mac).rstrip(b'=').decode()}"  # as if the public key were a secret
    other_claims = part({**CLAIMS, "sub": "root"})
    for wrong in (
        token(OTHER), forged, f"{part({'alg': 'none'})}.{claims}.", f"{header}.{other_claims}.{signature}",
        f"{header}.{claims}.", f"{header}.{claims}", "..", "", "a.b.c", f"{header}.{claims}.{signature}.", "[" * 9000,
        f"{part({'alg': 'ES256', 'jwk': OTHER.as_dict(private=False)})}.{token(OTHER).split('.', 1)[1]}",
    ):  # fmt: skip
        with pytest.raises(TokenError):
            await checker(jwks).check(wrong)


@pytest.mark.parametrize("kid", ["ec", "unknown"])
async def test_no_url_is_fetched_that_a_client_has_chosen(jwks, kid):
    """`jku` and `x5u` name where keys are; a broker that obeys them lets in all, and asks any host it is told to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/keys"
        for header in ({"jku": url}, {"x5u": url}, {"jku": url, "jwk": OTHER.as_dict(private=False)}):
            chosen = jwt.encode({"alg": "ES256", "kid": kid, **header}, CLAIMS, OTHER, algorithms=["ES256"])
            with pytest.raises(TokenError):
                await checker(jwks).check(chosen)
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has connected
            server.accept()


async def test_a_new_key_is_found_but_not_looked_for_all_the_time(jwks, tmp_path):
    now = [100.0]
    check = checker(jwks, now_s=lambda: now[0])
    await check.check(token())
    fresh = ECKey.generate_key("P-256", {"kid": "new"})
    (tmp_path / "jwks.json").write_text(json.dumps(KeySet([fresh]).as_dict(private=False)))
    with pytest.raises(TokenError):
        await check.check(token(fresh))
    now[0] += UNKNOWN_KEY_SECONDS + 1
    assert (await check.check(token(fresh))).name == "alice"
    (tmp_path / "jwks.json").unlink()  # the keys before stay
    now[0] += 4000
    assert (await check.check(token(fresh))).name == "alice"


async def test_keys_that_cannot_be_used_do_not_matter_beside_others(tmp_path):
    path = tmp_path / "jwks.json"
    odd = [{"kty": "of tomorrow", "kid": "odd"}, {"kid": "no type"}, "no key", {"kty": "RSA", "n": 5}]
    path.write_text(json.dumps({"keys": [*odd, *KeySet([EC]).as_dict(private=False)["keys"]]}))
    assert (await checker(Jwks(f"file://{path}", 3600)).check(token())).name == "alice"


@pytest.mark.parametrize("url", ["ftp://x/y", "/etc/keys", "", "data:,x"])
def test_keys_are_behind_urls_of_known_kinds(url):
    with pytest.raises(JwksError):
        Jwks(url, 1)


@pytest.mark.parametrize("claim", [*CLAIMS, "scope", "nbf", "email", "other", "nested"])
async def test_a_claim_that_comes_twice_lets_nobody_in(jwks, claim):
    once = json.dumps({**CLAIMS, **dict.fromkeys(("email", "other"), "x"), "nested": {"a": 1}})
    value = json.dumps(CLAIMS.get(claim, 1))
    again = {"nested": once.replace('{"a": 1}', '{"a": 1, "a": 1}')}.get(
        claim, f"{once[:-1]}, {json.dumps(claim)}: {value}, {json.dumps(claim)}: {value}}}"
    )
    unsecured = UnsecuredTokens(Expected(), clock_ms=lambda: NOW * 1000)
    header = '{"alg": "none", "alg": "none"}'
    assert (await checker(jwks).check(signed(once))).name == "alice"
    with pytest.raises(TokenError, match="twice"):
        await checker(jwks).check(signed(again))
    with pytest.raises(TokenError, match="twice"):
        await unsecured.check(f"{part({'alg': 'none'})}.{encoded(again)}.")
    with pytest.raises(TokenError, match="twice"):
        await unsecured.check(f"{encoded(header)}.{part(CLAIMS)}.")


def encoded(text):
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def signed(text):
    """A token with this text as claims, with a signature that is right."""
    header = {"alg": "ES256", "kid": EC.kid}
    return jws.serialize_compact(header, text.encode(), EC, algorithms=["ES256"])
