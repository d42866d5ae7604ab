"""Logging in again where logins end (KIP-368): in time, too late, too soon, as another user, by another mechanism."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from compat.security.mechanisms.clients import Scram, bearer, claims, signed_token
from compat.security.mechanisms.scenarios import FRAMINGS, NAMES, NEWEST, RAW, Act, Login, Scenario
from compat.security.mechanisms.scram import exchange
from compat.security.mechanisms.sides import LIFETIME_MS, PASSWORDS

LISTENER = "AGAIN"
INTERVAL_S = 1.2
"""A client may begin to log in again only a second after the last time (Kafka's limit)."""
EXPIRED_S = LIFETIME_MS / 1000 + 0.5


def log_in(login: Login, mechanism: str, user: str = "alice", who: str = "") -> None:
    """All messages of a login."""
    if mechanism == "PLAIN":
        login.plain(user, label=f"{who}token")
    elif mechanism == "OAUTHBEARER":
        token = signed_token(login.talk.side.keys.token_key, claims(sub=user))
        login.token(f"{who}token", bearer(token))
    else:
        exchange(login, Scram(mechanism, user, PASSWORDS[user]), who=who)


def begun(act: Act, mechanism: str, framing: int) -> Login:
    """A connection that has logged in for the first time."""
    login = act.login(mechanism, framing, LISTENER)
    log_in(login, mechanism)
    return login


def in_time(mechanism: str, framing: int, act: Act) -> None:
    """The same again, three times."""
    login = begun(act, mechanism, framing)
    for number in range(3):
        login.talk.works()
        time.sleep(INTERVAL_S)
        login.handshake(mechanism, f"handshake {number}")
        log_in(login, mechanism, who=f"{number} ")
    login.talk.works()
    login.talk.principal()


def somebody_else(mechanism: str, framing: int, act: Act) -> None:
    """As another user, with the right password."""
    login = begun(act, mechanism, framing)
    login.handshake(mechanism, "handshake again")
    log_in(login, mechanism, "bob", "again ")
    login.talk.works()
    login.talk.ends()


def other_mechanism(mechanism: str, other: str, framing: int, act: Act) -> None:
    """By another mechanism, as the same user."""
    login = begun(act, mechanism, framing)
    login.handshake(other, "handshake again")
    log_in(login, other, who="again ")
    login.talk.ends()


def unknown_mechanism(framing: int, act: Act) -> None:
    """By a mechanism that is not there."""
    login = begun(act, "PLAIN", framing)
    login.handshake("GSSAPI", "handshake again")
    login.talk.ends()


def wrong(framing: int, act: Act) -> None:
    """With a wrong password."""
    login = begun(act, "PLAIN", framing)
    login.handshake("PLAIN", "handshake again")
    login.plain(password="wrong", label="token again")
    login.talk.ends()


def too_soon(framing: int, act: Act) -> None:
    """Twice in a second."""
    login = begun(act, "PLAIN", framing)
    for number in range(2):
        login.handshake("PLAIN", f"handshake {number}")
        login.plain(label=f"token {number}")
    login.talk.works()


def expired(framing: int, act: Act) -> None:
    """A request after the end."""
    login = begun(act, "PLAIN", framing)
    login.talk.works()
    time.sleep(EXPIRED_S)
    login.talk.works()
    login.talk.ends()


def expired_idle(framing: int, act: Act) -> None:
    """Nothing after the end."""
    login = begun(act, "PLAIN", framing)
    time.sleep(EXPIRED_S)
    login.talk.ends()


def late(framing: int, act: Act) -> None:
    """Again after the end."""
    login = begun(act, "PLAIN", framing)
    time.sleep(EXPIRED_S)
    login.handshake("PLAIN", "handshake again")
    login.plain(label="token again")
    login.talk.works()


def other_framing(first: int, second: int, act: Act) -> None:
    """Again with the other kind of handshake."""
    login = begun(act, "PLAIN", first)
    again = Login(login.talk, second)
    again.handshake("PLAIN", "handshake again")
    again.plain(label="token again")
    again.talk.works()


def request_between(framing: int, api: str, act: Act) -> None:
    """A request between the handshake and the token of a second login."""
    login = begun(act, "PLAIN", framing)
    login.handshake("PLAIN", "handshake again")
    values = (
        {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"} if api == "ApiVersions" else {"Key": "g"}
    )
    login.talk.ask(api, api, 3 if api == "ApiVersions" else 1, values)
    login.talk.ends()


def versions_before(act: Act) -> None:
    """ApiVersions before the second handshake: it is an ordinary request."""
    login = begun(act, "PLAIN", NEWEST)
    login.talk.ask("ApiVersions", "ApiVersions", 3, {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"})
    login.handshake("PLAIN", "handshake again")
    login.plain(label="token again")
    login.talk.works()


def token_alone(framing: int, act: Act) -> None:
    """A token without a handshake before it."""
    login = begun(act, "PLAIN", framing)
    login.talk.ask("token alone", "SaslAuthenticate", NEWEST, {"AuthBytes": b"\0alice\0wonder land"})
    login.talk.works()


def short_token(act: Act) -> None:
    """A token of OAUTHBEARER that ends before the login would."""
    login = act.login("OAUTHBEARER", NEWEST, LISTENER)
    token = signed_token(
        login.talk.side.keys.token_key, claims(exp=int(time.time()) - 5, iat=int(time.time()) - 60)
    )
    login.token("token", bearer(token))
    login.talk.works()
    login.talk.ends()


def with_delegation_token(act: Act) -> None:
    """First with a password, then with a delegation token of the same user."""
    import base64

    mechanism = "SCRAM-SHA-256"
    login = begun(act, mechanism, NEWEST)
    login.handshake(mechanism, "handshake again")
    token_id, key = login.talk.side.token
    scram = Scram(mechanism, token_id, base64.b64encode(key).decode(), extensions=",tokenauth=true")
    challenge = login.token("first", scram.first(), shown=lambda _: "a challenge")
    if challenge is not None:
        login.token("final", scram.final(challenge), shown=scram.shown_end)
    login.talk.works()
    login.talk.principal()


def scenarios() -> Iterator[Scenario]:
    """All of them."""
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"):
        for framing in FRAMINGS if mechanism == "PLAIN" else (RAW, NEWEST):
            name = f"again {mechanism} {NAMES[framing]}"
            yield Scenario(f"{name}: in time", partial(in_time, mechanism, framing))
            yield Scenario(f"{name}: as somebody else", partial(somebody_else, mechanism, framing))
    for framing in FRAMINGS:
        name = f"again {NAMES[framing]}"
        for first, other in (
            ("PLAIN", "SCRAM-SHA-256"),
            ("SCRAM-SHA-256", "SCRAM-SHA-512"),
            ("SCRAM-SHA-512", "PLAIN"),
        ):
            yield Scenario(f"{name}: {first}, then {other}", partial(other_mechanism, first, other, framing))
        yield Scenario(f"{name}: a mechanism that is not there", partial(unknown_mechanism, framing))
        yield Scenario(f"{name}: a wrong password", partial(wrong, framing))
        yield Scenario(f"{name}: too soon", partial(too_soon, framing))
        yield Scenario(f"{name}: after the end", partial(expired, framing))
        yield Scenario(f"{name}: nothing after the end", partial(expired_idle, framing))
        yield Scenario(f"{name}: again after the end", partial(late, framing))
        yield Scenario(f"{name}: a token alone", partial(token_alone, framing))
        for api in ("ApiVersions", "FindCoordinator"):
            yield Scenario(f"{name}: {api} between", partial(request_between, framing, api))
    yield Scenario("again: bare, then framed", partial(other_framing, RAW, NEWEST))
    yield Scenario("again: framed, then bare", partial(other_framing, NEWEST, RAW))
    yield Scenario("again: ApiVersions before", versions_before)
    yield Scenario("again: a token that has ended", short_token)
    yield Scenario("again: with a delegation token", with_delegation_token)
