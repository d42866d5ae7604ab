"""SCRAM: two messages, each right and in every way wrong; replayed, out of order, with delegation tokens."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from compat.security.mechanisms.clients import Scram
from compat.security.mechanisms.scenarios import FRAMINGS, NAMES, NEWEST, RAW, Act, Login, Scenario
from compat.security.mechanisms.sides import PASSWORDS

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
NONCE = "fyko+d2lbbFgONRv9qkxdawL"


@dataclass(frozen=True)
class Client:
    """A client that logs in, and the ways in which its messages differ from right ones."""

    user: str = "alice"
    password: str = PASSWORDS["alice"]
    header: str = "n,,"
    extensions: str = ""

    def of(self, mechanism: str) -> Scram:
        """The client's side of one login."""
        return Scram(mechanism, self.user, self.password, self.header, self.extensions)


CLIENTS = {
    "right": Client(),
    "wrong password": Client(password="wonder"),
    "unknown user": Client(user="eve"),
    "user of another mechanism": Client("carol", PASSWORDS["carol"]),
    "escaped name": Client("a=3Db=2Cc", PASSWORDS["a=b,c"]),
    "name that is not escaped": Client("a=b", "x"),
    "a wrong escape": Client("=41lice", "x"),
    "her own authorization id": Client(header="n,a=alice,"),
    "another authorization id": Client(header="n,a=bob,"),
    "an empty authorization id": Client(header="n,a=,"),
    "channel binding not wanted": Client(header="y,,"),
    "channel binding wanted": Client(header="p=tls-unique,,"),
    "an extension": Client(extensions=",ext=value"),
    "two extensions": Client(extensions=",one=1,two=2"),
    "an extension without a value": Client(extensions=",one="),
    "a mandatory extension": Client(extensions=",m=x"),
    "tokenauth=false": Client(extensions=",tokenauth=false"),
    "a user as if it were a token": Client(extensions=",tokenauth=true"),
    "a long name": Client("x" * 40_000, "x"),
}
FIRSTS = {
    "nothing": b"",
    "header alone": b"n,,",
    "no header": f"n=alice,r={NONCE}".encode(),
    "no nonce": b"n,,n=alice",
    "an empty nonce": b"n,,n=alice,r=",
    "no name": f"n,,n=,r={NONCE}".encode(),
    "order of fields": f"n,,r={NONCE},n=alice".encode(),
    "m= first": f"n,,m=x,n=alice,r={NONCE}".encode(),
    "a space in the nonce": b"n,,n=alice,r=abc def",
    "no ASCII in the nonce": "n,,n=alice,r=žluť".encode(),
    "no UTF-8": b"n,,n=\xff\xfe,r=abc",
    "a zero in the name": b"n,,n=al\0ice,r=abc",
    "a line end behind": f"n,,n=alice,r={NONCE}\n".encode(),
    "a comma behind": f"n,,n=alice,r={NONCE},".encode(),
    "a final message": b"c=biws,r=abc,p=AAAA",
    "PLAIN": b"\0alice\0wonder land",
}
Final = Callable[[Scram, bytes], bytes]


def _proof(change: Callable[[bytes], bytes]) -> Final:
    def made(scram: Scram, challenge: bytes) -> bytes:
        bare = f"c={scram.binding},r={scram.server_nonce(challenge)}"
        return f"{bare},p={base64.b64encode(change(scram.proof(challenge, bare))).decode()}".encode()

    return made


FINALS: dict[str, Final] = {
    "nothing": lambda scram, challenge: b"",
    "cut short by one": lambda scram, challenge: scram.final(challenge)[:-1],
    "cut short by four": lambda scram, challenge: scram.final(challenge)[:-4],
    "without a proof": lambda scram, challenge: scram.final(challenge).split(b",p=")[0],
    "an empty proof": _proof(lambda proof: b""),
    "a short proof": _proof(lambda proof: proof[:-1]),
    "a long proof": _proof(lambda proof: proof + b"\0"),
    "zeros as a proof": _proof(lambda proof: bytes(len(proof))),
    "one bit of the proof": _proof(lambda proof: bytes((proof[0] ^ 1, *proof[1:]))),
    "the client's nonce alone": lambda scram, challenge: scram.final(challenge, nonce=scram.nonce),
    "a longer nonce": lambda scram, challenge: scram.final(
        challenge, nonce=scram.server_nonce(challenge) + "x"
    ),
    "a nonce of its own": lambda scram, challenge: scram.final(challenge, nonce=NONCE),
    "the end of the nonce changed": lambda scram, challenge: scram.final(
        challenge, nonce=scram.server_nonce(challenge)[:-1] + "~"
    ),
    "another binding": lambda scram, challenge: scram.final(challenge, binding="eSws"),
    "an empty binding": lambda scram, challenge: scram.final(challenge, binding=""),
    "a binding that is no base64": lambda scram, challenge: scram.final(challenge, binding="===="),
    "an extension": lambda scram, challenge: scram.final(challenge, extensions=",ext=value"),
    "no UTF-8": lambda scram, challenge: b"\xff\xfe",
    "the first message again": lambda scram, challenge: scram.first(),
    "the challenge": lambda scram, challenge: challenge,
    "something behind": lambda scram, challenge: scram.final(challenge) + b",x=1",
}


def exchange(login: Login, scram: Scram, final: Final | None = None, who: str = "") -> tuple[bytes, bytes]:
    """Both messages; returns the challenge and the final message, empty if it did not come to that."""
    challenge = login.token(f"{who}first", scram.first(), shown=scram.shown_challenge)
    if challenge is None:
        return b"", b""
    message = (final or Scram.final)(scram, challenge)
    login.token(f"{who}final", message, shown=scram.shown_end)
    return challenge, message


def with_client(mechanism: str, client: Client, framing: int, act: Act) -> None:
    """Log in as this client does."""
    login = act.login(mechanism, framing)
    exchange(login, client.of(mechanism))
    login.talk.works()
    login.talk.ends()


def with_first(mechanism: str, message: bytes, framing: int, act: Act) -> None:
    """Begin with this message."""
    login = act.login(mechanism, framing)
    login.token("first", message)
    login.talk.ends()


def with_final(mechanism: str, final: Final, framing: int, act: Act) -> None:
    """End with this message."""
    login = act.login(mechanism, framing)
    exchange(login, CLIENTS["right"].of(mechanism), final)
    login.talk.works()
    login.talk.ends()


def replayed(mechanism: str, framing: int, act: Act) -> None:
    """Both messages of a login on another connection: the server's nonce is another."""
    scram = CLIENTS["right"].of(mechanism)
    login = act.login(mechanism, framing)
    _, final = exchange(login, scram)
    other = act.login(mechanism, framing, who="replayed")
    exchange(other, scram, lambda scram, challenge: final)
    other.talk.works()
    other.talk.ends()


def twice(mechanism: str, framing: int, act: Act) -> None:
    """A message more than there are."""
    scram = CLIENTS["right"].of(mechanism)
    login = act.login(mechanism, framing)
    _, final = exchange(login, scram)
    login.token("final again", final)
    login.talk.ends()


def final_first(mechanism: str, framing: int, act: Act) -> None:
    """A final message of another login, before any first one."""
    scram = CLIENTS["right"].of(mechanism)
    login = act.login(mechanism, framing)
    _, final = exchange(login, scram)
    other = act.login(mechanism, framing, who="another connection")
    other.token("final", final)
    other.talk.ends()


def other_mechanism(mechanism: str, framing: int, act: Act) -> None:
    """The messages of the other hash."""
    login = act.login(mechanism, framing)
    other = MECHANISMS[1 - MECHANISMS.index(mechanism)]
    exchange(login, CLIENTS["right"].of(other))
    login.talk.works()


def with_token(mechanism: str, framing: int, what: str, act: Act) -> None:
    """Log in with a delegation token, or with something like it."""
    token_id, key = act.side.token
    password = base64.b64encode(key).decode()
    user, password, extensions = {
        "right": (token_id, password, ",tokenauth=true"),
        "in capitals": (token_id, password, ",tokenauth=TRUE"),
        "wrong key": (token_id, password[:-4] + "AAA=", ",tokenauth=true"),
        "unknown": ("AAAAAAAAAAAAAAAAAAAAAA", password, ",tokenauth=true"),
        "not said": (token_id, password, ""),
    }[what]
    login = act.login(mechanism, framing)
    scram = Scram(mechanism, user, password, extensions=extensions)
    challenge = login.token("first", scram.first(), shown=lambda data: _of_token(scram, data))
    if challenge is not None:
        login.token("final", scram.final(challenge), shown=scram.shown_end)
    login.talk.works()
    login.talk.principal()


def _of_token(scram: Scram, challenge: bytes) -> object:
    shown = scram.shown_challenge(challenge)
    if isinstance(shown, dict):
        shown["s"] = "a salt"  # the server's own for tokens
    return shown


def scenarios() -> Iterator[Scenario]:
    """All of them."""
    for mechanism in MECHANISMS:
        for framing in FRAMINGS:
            name = f"{mechanism} {NAMES[framing]}"
            for what in ("right", "wrong password", "unknown user"):
                yield Scenario(f"{name}: {what}", partial(with_client, mechanism, CLIENTS[what], framing))
            yield Scenario(f"{name}: replayed", partial(replayed, mechanism, framing))
            yield Scenario(f"{name}: a message too many", partial(twice, mechanism, framing))
        for framing in (RAW, NEWEST):
            name = f"{mechanism} {NAMES[framing]}"
            for what, client in list(CLIENTS.items())[3:]:
                yield Scenario(f"{name}: {what}", partial(with_client, mechanism, client, framing))
            for what, message in FIRSTS.items():
                yield Scenario(f"{name}: first: {what}", partial(with_first, mechanism, message, framing))
            for what, final in FINALS.items():
                yield Scenario(f"{name}: final: {what}", partial(with_final, mechanism, final, framing))
            yield Scenario(f"{name}: the final message first", partial(final_first, mechanism, framing))
            yield Scenario(f"{name}: the other hash", partial(other_mechanism, mechanism, framing))
            for what in ("right", "in capitals", "wrong key", "unknown", "not said"):
                yield Scenario(f"{name}: token: {what}", partial(with_token, mechanism, framing, what))
