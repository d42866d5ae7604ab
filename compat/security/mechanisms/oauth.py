"""OAUTHBEARER: tokens with a signature, tokens without one, and messages that are none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from compat.security.mechanisms.clients import bearer, claims, hmac_token, signed_token, unsecured_token
from compat.security.mechanisms.scenarios import FRAMINGS, NAMES, NEWEST, RAW, Act, Scenario
from compat.security.mechanisms.sides import Keys

KID = {"alg": "RS256", "kid": "one"}
Made = Callable[[Keys], bytes]


def _signed(**changes: object) -> Made:
    return lambda keys: bearer(signed_token(keys.token_key, claims(**changes)))


def _headed(header: dict[str, object]) -> Made:
    return lambda keys: bearer(signed_token(keys.token_key, claims(), header))


def _in(seconds: int) -> int:
    return int(time.time()) + seconds


SIGNED: dict[str, Made] = {
    "right": _signed(),
    "several audiences": _signed(aud=["other", "kafka"]),
    "a scope": _signed(scope="one two"),
    "scopes in a list": _signed(scope=["one", "two"]),
    "no scope": _signed(scope=""),
    "another claim": _signed(more={"a": [1, 2]}),
    "a user with spaces": _signed(sub="  alice  "),
    "without iat": _signed(iat=None),
    "expired": lambda keys: _signed(exp=_in(-3600), iat=_in(-7200))(keys),
    "expired within the skew": lambda keys: _signed(exp=_in(-10), iat=_in(-7200))(keys),
    "not good yet": lambda keys: _signed(nbf=_in(3600))(keys),
    "not good yet within the skew": lambda keys: _signed(nbf=_in(10))(keys),
    "issued later": lambda keys: _signed(iat=_in(3600), exp=_in(7200))(keys),
    "good before it was issued": lambda keys: _signed(iat=_in(60), exp=_in(30))(keys),
    "exp is text": _signed(exp="tomorrow"),
    "exp with a fraction": lambda keys: _signed(exp=time.time() + 3600.5)(keys),
    "exp of zero": _signed(exp=0),
    "without exp": _signed(exp=None),
    "another issuer": _signed(iss="https://other.example"),
    "without an issuer": _signed(iss=None),
    "another audience": _signed(aud="other"),
    "without an audience": _signed(aud=None),
    "without a user": _signed(sub=None),
    "an empty user": _signed(sub=""),
    "a user of spaces": _signed(sub="   "),
    "a user that is a number": _signed(sub=7),
    "another hash": _headed({"alg": "RS384", "kid": "one"}),
    "PS256": _headed({"alg": "PS256", "kid": "one"}),
    "without kid": _headed({"alg": "RS256"}),
    "an unknown kid": _headed({"alg": "RS256", "kid": "nobody"}),
    "another key": lambda keys: bearer(signed_token(keys.other_key, claims())),
    "another key that says so": lambda keys: bearer(
        signed_token(keys.other_key, claims(), {"alg": "RS256", "kid": "two"})
    ),
    "a MAC with the public key": lambda keys: bearer(
        hmac_token(claims(), keys.token_key.as_pem(private=False))
    ),
    "no signature": lambda keys: bearer(unsecured_token(claims())),
    "the signature is gone": lambda keys: bearer(
        signed_token(keys.token_key, claims()).rpartition(".")[0] + "."
    ),
    "the signature is cut": lambda keys: bearer(signed_token(keys.token_key, claims())[:-8]),
    "claims of another token": lambda keys: bearer(
        ".".join(
            signed_token(keys.token_key, claims(sub=user)).split(".")[part]
            for part, user in enumerate(("alice", "bob", "alice"))
        )
    ),
    "her own authorization id": lambda keys: bearer(
        signed_token(keys.token_key, claims()), header="n,a=alice,"
    ),
    "another authorization id": lambda keys: bearer(
        signed_token(keys.token_key, claims()), header="n,a=bob,"
    ),
    "an extension": lambda keys: bearer(signed_token(keys.token_key, claims()), more="\x01traceId=123"),
    "an extension with digits in its name": lambda keys: bearer(
        signed_token(keys.token_key, claims()), more="\x01trace1=123"
    ),
    "an extension without a value": lambda keys: bearer(
        signed_token(keys.token_key, claims()), more="\x01traceId="
    ),
    "auth twice": lambda keys: bearer(signed_token(keys.token_key, claims()), more="\x01auth=Bearer abc"),
}
UNSECURED: dict[str, Made] = {
    "right": lambda keys: bearer(unsecured_token(claims())),
    "without iat": lambda keys: bearer(unsecured_token(claims(iat=None))),
    "with a scope": lambda keys: bearer(unsecured_token(claims(scope="a b"))),
    "expired": lambda keys: bearer(unsecured_token(claims(exp=_in(-60), iat=_in(-120)))),
    "issued later": lambda keys: bearer(unsecured_token(claims(iat=_in(60)))),
    "without exp": lambda keys: bearer(unsecured_token(claims(exp=None))),
    "exp is text": lambda keys: bearer(unsecured_token(claims(exp="tomorrow"))),
    "without a user": lambda keys: bearer(unsecured_token(claims(sub=None))),
    "an empty user": lambda keys: bearer(unsecured_token(claims(sub=""))),
    "with a signature": _signed(),
    "another algorithm": lambda keys: bearer(unsecured_token(claims(), {"alg": "HS256"})),
    "no algorithm": lambda keys: bearer(unsecured_token(claims(), {})),
    "another authorization id": lambda keys: bearer(unsecured_token(claims()), header="n,a=bob,"),
}
MESSAGES: dict[str, bytes] = {
    "nothing": b"",
    "the goodbye": b"\x01",
    "header alone": b"n,,",
    "no token": b"n,,\x01auth=Bearer \x01\x01",
    "another scheme": b"n,,\x01auth=Basic abc\x01\x01",
    "bearer in small letters": b"n,,\x01auth=bearer abc\x01\x01",
    "no JWT": b"n,,\x01auth=Bearer abc\x01\x01",
    "two parts": b"n,,\x01auth=Bearer abc.def\x01\x01",
    "parts that are no JSON": b"n,,\x01auth=Bearer abc.def.ghi\x01\x01",
    "four parts": b"n,,\x01auth=Bearer a.b.c.d\x01\x01",
    "a JWE": b"n,,\x01auth=Bearer a.b.c.d.e\x01\x01",
    "no auth": b"n,,\x01host=here\x01\x01",
    "no end": b"n,,\x01auth=Bearer abc.def.ghi\x01",
    "no header": b"auth=Bearer abc.def.ghi\x01\x01",
    "channel binding": b"p=tls-unique,,\x01auth=Bearer abc.def.ghi\x01\x01",
    "no UTF-8": b"n,,\x01auth=Bearer \xff\x01\x01",
    "PLAIN": b"\0alice\0wonder land",
    "a long token": b"n,,\x01auth=Bearer " + b"a" * 200_000 + b".b.c\x01\x01",
    "many keys": b"n,,\x01" + b"".join(b"k%c=v\x01" % (97 + number % 26) for number in range(2000)) + b"\x01",
}


def with_message(message: Made, listener: str, framing: int, act: Act) -> None:
    """Log in with this message; a refused client says goodbye, as RFC 7628 wants it."""
    login = act.login("OAUTHBEARER", framing, listener)
    answer = login.token("token", message(act.side.keys))
    if answer:
        login.token("goodbye", b"\x01")
        login.talk.ends()
        return
    login.talk.works()
    login.talk.principal()


def after_refusal(message: Made, framing: int, act: Act) -> None:
    """Something else than the goodbye after a refusal."""
    login = act.login("OAUTHBEARER", framing)
    login.token("token", bearer("abc.def.ghi"))
    login.token("then", message(act.side.keys))
    login.talk.ends()


def scenarios() -> Iterator[Scenario]:
    """All of them."""
    for framing in FRAMINGS:
        name = f"OAUTHBEARER {NAMES[framing]}"
        for what in ("right", "expired", "another key"):
            yield Scenario(f"{name}: {what}", partial(with_message, SIGNED[what], "LOGIN", framing))
        yield Scenario(
            f"{name}: a right token after a refusal", partial(after_refusal, SIGNED["right"], framing)
        )
        yield Scenario(f"{name}: nothing after a refusal", partial(after_refusal, lambda keys: b"", framing))
    for framing in (RAW, NEWEST):
        name = f"OAUTHBEARER {NAMES[framing]}"
        for what, maker in SIGNED.items():
            if what not in ("right", "expired", "another key"):
                yield Scenario(f"{name}: {what}", partial(with_message, maker, "LOGIN", framing))
        for what, message in MESSAGES.items():
            act = partial(_given, message)
            yield Scenario(f"{name}: {what}", partial(with_message, act, "LOGIN", framing))
    for what, maker in UNSECURED.items():
        yield Scenario(f"unsecured: {what}", partial(with_message, maker, "UNSECURED", NEWEST))
    for what, message in MESSAGES.items():
        yield Scenario(
            f"unsecured: {what}", partial(with_message, partial(_given, message), "UNSECURED", NEWEST)
        )


def _given(message: bytes, _: Keys) -> bytes:
    return message
