"""Tokens: each limit of their times to the second, each claim by itself, and when keys are read anew."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import pytest
import trio
from joserfc import jwt
from joserfc.jwk import ECKey

from barnabas.broker.tokens import Expected, SignedTokens, UnsecuredTokens, _json_part, identity_of
from barnabas.network.jwks import JwksError
from barnabas.security.sasl.mechanism import Identity
from barnabas.security.sasl.oauthbearer import TokenError

NOW = 1_000_000
GOOD = {"sub": "ann", "exp": NOW + 100}


def outcome(claims: dict[str, Any], **expected: Any) -> str:
    """Return what is wrong with claims, or the owner of the token."""
    try:
        return identity_of(claims, Expected(**{"skew_s": 0.0, **expected}), NOW * 1000).name
    except TokenError as error:
        return str(error)


@pytest.mark.parametrize(
    ("claims", "expected", "reason"),
    [
        ({"exp": NOW}, {}, "a token has expired"),
        ({"exp": NOW + 1}, {}, "ann"),
        ({"exp": NOW - 30}, {"skew_s": 30.0}, "a token has expired"),
        ({"exp": NOW - 29}, {"skew_s": 30.0}, "ann"),
        ({"nbf": NOW}, {}, "ann"),
        ({"nbf": NOW + 1}, {}, "a token is not valid yet"),
        ({"nbf": NOW + 30}, {"skew_s": 30.0}, "ann"),
        ({"nbf": NOW + 31}, {"skew_s": 30.0}, "a token is not valid yet"),
        ({"iat": NOW + 50}, {}, "ann"),
        ({"iat": NOW + 50}, {"issued_in_past": True}, "a token is not valid yet"),
        ({"iat": NOW}, {"issued_in_past": True}, "ann"),
        ({"nbf": NOW + 50, "iat": NOW - 1}, {"issued_in_past": True}, "a token is not valid yet"),
        ({"nbf": NOW + 5, "exp": NOW + 5}, {"skew_s": 30.0}, "ann"),
        ({"nbf": NOW + 6, "exp": NOW + 5}, {"skew_s": 30.0}, "a token expires before it is valid"),
        ({"iat": NOW + 6, "exp": NOW + 5}, {"skew_s": 30.0}, "a token expires before it is valid"),
        ({"exp": None}, {}, "a token's claim exp is no time"),
        ({"exp": True}, {}, "a token's claim exp is no time"),
        ({"exp": "5"}, {}, "a token's claim exp is no time"),
        ({"nbf": -1}, {}, "a token's claim nbf is no time"),
        ({"nbf": 0}, {}, "ann"),
        ({"exp": 2**43}, {}, "a token's claim exp is no time"),
        ({"exp": 2**43 - 1}, {}, "ann"),
        ({"iss": "x"}, {}, "ann"),
        ({}, {"issuer": "x"}, "a token is of another issuer"),
        ({"iss": "y"}, {"issuer": "x"}, "a token is of another issuer"),
        ({"iss": "x"}, {"issuer": "x"}, "ann"),
        ({}, {"audience": ("a", "b")}, "a token is for another audience"),
        ({"aud": "b"}, {"audience": ("a", "b")}, "ann"),
        ({"aud": ["c", "a"]}, {"audience": ("a", "b")}, "ann"),
        ({"aud": ["c", 1]}, {"audience": ("a", "b")}, "a token is for another audience"),
        ({"scope": "r w"}, {"required_scope": ("w", "r")}, "ann"),
        ({"scope": ["r"]}, {"required_scope": ("w", "r")}, "a token lacks a scope"),
        ({}, {"required_scope": ("r",)}, "a token lacks a scope"),
        ({"scp": "r"}, {"required_scope": ("r",), "scope_claim": "scp"}, "ann"),
        ({"sub": ""}, {}, "a token has no claim sub"),
        ({"sub": " "}, {}, "a token has no claim sub"),
        ({"sub": 5}, {}, "a token has no claim sub"),
        ({"sub": " bob "}, {}, "bob"),
        ({"sub": "a\x00b"}, {}, "a token's claim sub has a control character"),
        ({"name": "eve"}, {"subject_claim": "name"}, "eve"),
        ({}, {"subject_claim": "name"}, "a token has no claim name"),
    ],
    ids=str,
)
def test_each_claim_counts_by_itself(claims: dict[str, Any], expected: dict[str, Any], reason: str) -> None:
    assert outcome({**GOOD, **claims}, **expected) == reason


def test_a_login_lasts_as_long_as_the_token() -> None:
    assert identity_of({**GOOD, "exp": NOW + 0.5}, Expected(), NOW * 1000) == Identity(
        "ann", NOW * 1000 + 500
    )


def encoded(text: str | bytes) -> str:
    return urlsafe_b64encode(text.encode() if isinstance(text, str) else text).decode().rstrip("=")


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("a.b", "form of a JWT"),
        ("a.b.c.d", "form of a JWT"),
        (f"{encoded('{}')}.{'x' * 65536}.c", "form of a JWT"),
        ("!.b.c", "no JSON in base64"),
        (f"{encoded('[1')}.b.c", "no JSON in base64"),
        (f"{encoded(b'[' * 30_000)}.b.c", "no JSON in base64"),
        (f"{encoded('[]')}.b.c", "no JSON object"),
        (f"""{encoded('{"a": 1, "a": 1}')}.b.c""", "a member twice"),
    ],
)
def test_what_is_no_part_of_a_token_is_refused(token: str, reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        _json_part(token, 0, 3)


def test_parts_of_any_length_are_read() -> None:
    for text in ('{"a":1}', '{"a":12}', '{"a":123}', '{"a":1234}'):
        assert _json_part(f"x.{encoded(text)}.y", 1, 3) == {"a": int(text[5:-1])}


async def test_an_unsecured_token_has_no_signature_and_says_so() -> None:
    checker = UnsecuredTokens(Expected(), clock_ms=lambda: NOW * 1000)
    claims = encoded(f'{{"sub": "ann", "exp": {NOW + 1}}}')
    assert (await checker.check(f"""{encoded('{"alg": "none"}')}.{claims}.""")).name == "ann"
    for header, end in (('{"alg": "none"}', "x"), ('{"alg": "RS256"}', ""), ("{}", "")):
        with pytest.raises(TokenError):
            await checker.check(f"{encoded(header)}.{claims}.{end}")


# --- keys -------------------------------------------------------------------------------------------------------------


KEYS = {key_id: ECKey.generate_key("P-256", {"kid": key_id}) for key_id in ("k", "other")}


def signed(key_id: str, *, is_named: bool = True, **claims: Any) -> str:
    header = {"alg": "ES256", **({"kid": key_id} if is_named else {})}
    return jwt.encode(header, {**GOOD, "iat": NOW, **claims}, KEYS[key_id], algorithms=["ES256"])


class Keys:
    """Keys that are read when they are due, or when one lacks."""

    def __init__(self, *key_ids: str) -> None:
        self.found = key_ids
        self.keys: Any = None
        self.reads: list[float] = []
        self.asked: list[tuple[float, bool]] = []
        self.due = False
        self.fails = False

    def is_due(self, now_s: float, *, lacks_key: bool) -> bool:
        self.asked.append((now_s, lacks_key))
        return self.due or lacks_key

    def read(self, now_s: float) -> None:
        self.reads.append(now_s)
        if self.fails:
            raise JwksError("gone")
        self.keys = {"keys": [KEYS[key_id].as_dict(private=False) for key_id in self.found]}


class Threads:
    """Runs work at once, but lets others in before."""

    async def run(self, work: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return work()


def checker_of(keys: Keys) -> SignedTokens:
    return SignedTokens(keys, Expected(), threads=Threads(), clock_ms=lambda: NOW * 1000, now_s=lambda: 7.0)  # type: ignore[arg-type]


async def test_keys_are_read_at_the_first_token_and_when_due_or_absent() -> None:
    keys = Keys("k")
    checker = checker_of(keys)
    unnamed = signed("k", is_named=False)
    assert (await checker.check(unnamed)).name == "ann"
    assert (keys.reads, keys.asked) == ([7.0], [])
    for token in (signed("k"), unnamed):
        assert (await checker.check(token)).name == "ann"
    assert (keys.reads, keys.asked) == ([7.0], [(7.0, False)] * 2)
    keys.asked.clear()
    with pytest.raises(TokenError, match="signature cannot be checked"):
        await checker.check(signed("other"))
    assert len(keys.reads) == 2
    assert keys.asked == [(7.0, True)] * 2, "and once more, for whoever has waited"
    keys.due = True
    await checker.check(signed("k"))
    assert len(keys.reads) == 3


async def test_waiting_logins_find_the_keys_that_the_first_has_read() -> None:
    keys = Keys("k")
    checker = checker_of(keys)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(checker.check, signed("k"))
    assert len(keys.reads) == 1


async def test_keys_that_cannot_be_read_anew_stay_those_before() -> None:
    keys = Keys("k")
    checker = checker_of(keys)
    keys.fails = True
    with pytest.raises(TokenError, match="there are no keys"):
        await checker.check(signed("k"))
    keys.fails = False
    await checker.check(signed("k"))
    keys.fails = keys.due = True
    assert (await checker.check(signed("k"))).name == "ann"
    with pytest.raises(TokenError, match="signature cannot be checked"):
        await checker.check(signed("other"))


@pytest.mark.parametrize(
    ("scopes", "is_good"),
    [
        (None, True), ("r", True), ("", False), (" ", False), (["r", "w"], True), (["r", " r"], False), (["r", ""], False),
        (["r", 5], False), (5, False), ([], True),
    ],
    ids=str,
)  # fmt: skip
def test_scopes_are_different_texts(scopes: Any, is_good: bool) -> None:
    from barnabas.broker.tokens import _check_scopes

    if is_good:
        _check_scopes(scopes)
    else:
        with pytest.raises(TokenError, match="a scope"):
            _check_scopes(scopes)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"iat": None}, "claim iat is no time"),
        ({"scope": ["r", "r"]}, "a scope"),
        ({"exp": NOW - 100}, "has expired"),
    ],
)
async def test_claims_of_a_signed_token_are_checked(claims: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenError, match=message):
        await checker_of(Keys("k")).check(signed("k", **claims))


async def test_algorithm_and_members_of_a_signed_token_are_checked() -> None:
    checker, body = checker_of(Keys("k")), encoded('{"sub": "ann"}')
    for header in ('{"alg": "HS256"}', "{}", '{"alg": "none"}'):
        with pytest.raises(TokenError, match="signed with"):
            await checker.check(f"{encoded(header)}.{body}.x")
    with pytest.raises(TokenError, match="a member twice"):
        await checker.check(f"""{encoded('{"alg": "ES256"}')}.{encoded('{"a": 1, "a": 2}')}.x""")
