"""PLAIN: the one message, right and in every way wrong."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from compat.security.mechanisms.scenarios import FRAMINGS, NAMES, NEWEST, Act, Scenario

RIGHT = b"\0alice\0wonder land"
RECEIVE_SIZE_MAX = 524_288
"""`sasl.server.max.receive.size` of both, which is not set."""
TOKENS = {
    "right": RIGHT,
    "right with her own authorization id": b"alice" + RIGHT,
    "another authorization id": b"bob" + RIGHT,
    "wrong password": b"\0alice\0wonder",
    "wrong password, longer": RIGHT + b" and more",
    "password of another user": b"\0alice\0builder",
    "unknown user": b"\0eve\0wonder land",
    "user in other letters": b"\0Alice\0wonder land",
    "no user": b"\0\0wonder land",
    "no password": b"\0alice\0",
    "nothing": b"",
    "one zero": b"\0",
    "two zeros": b"\0\0",
    "three zeros": b"\0\0\0",
    "cut short by one": RIGHT[:-1],
    "cut after the user": b"\0alice",
    "without the first field": RIGHT[1:],
    "a fourth field": RIGHT + b"\0x",
    "fields without end": b"\0" * 1000,
    "no UTF-8": b"\0alice\0\xff\xfe",
    "no UTF-8 in the user": b"\0\xff\0wonder land",
    "long password": b"\0alice\0" + b"x" * 100_000,
    "long user": b"\0" + b"x" * 40_000 + b"\0secret",
}


def with_token(token: bytes, framing: int, act: Act) -> None:
    """Log in with this token, and ask for something."""
    login = act.login("PLAIN", framing)
    login.token("token", token)
    login.talk.works()
    login.talk.ends()


def sizes(framing: int, size: int, act: Act) -> None:
    """A frame of exactly this size."""
    login = act.login("PLAIN", framing)
    overhead = 0 if framing < 0 else len(login.talk.request("SaslAuthenticate", framing, {"AuthBytes": b""}))
    if framing == NEWEST:
        overhead += 2  # the length of the token is three bytes long instead of one
    token = b"\0alice\0" + b"x" * (size - overhead - 7)
    login.token(f"a frame of {size}", token)
    login.talk.ends()


def again(framing: int, act: Act) -> None:
    """The token a second time, on the same connection and on another one."""
    login = act.login("PLAIN", framing)
    login.plain()
    login.plain(label="token again")
    login.talk.ends()
    other = act.login("PLAIN", framing, who="another connection")
    other.plain()
    other.talk.works()


def after_failure(framing: int, act: Act) -> None:
    """The right token behind a wrong one, without waiting for the answer."""
    login = act.login("PLAIN", framing)
    login.token("wrong", TOKENS["wrong password"])
    login.token("right", RIGHT)


def scenarios() -> Iterator[Scenario]:
    """All of them."""
    for framing in FRAMINGS:
        name = f"PLAIN {NAMES[framing]}"
        for what, token in TOKENS.items():
            yield Scenario(f"{name}: {what}", partial(with_token, token, framing))
        yield Scenario(f"{name}: again", partial(again, framing))
        yield Scenario(f"{name}: after a failure", partial(after_failure, framing))
        for size in (RECEIVE_SIZE_MAX, RECEIVE_SIZE_MAX + 1):
            yield Scenario(f"{name}: a frame of {size}", partial(sizes, framing, size))
