"""A scenario: a name, and the messages to a broker; and the first steps of each login."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from compat.kit.wire import Values
from compat.security.mechanisms.sides import PASSWORDS, Secured
from compat.security.mechanisms.talk import Notes, Shown, Talk

RAW = -1
"""Bare tokens after SaslHandshake v0; other framings are versions of SaslAuthenticate."""
FRAMINGS = (RAW, 0, 1, 2)
NEWEST = 2
NAMES = {RAW: "bare", 0: "v0", 1: "v1", 2: "v2"}


@dataclass
class Act:
    """One scenario with one broker."""

    side: Secured
    notes: Notes = field(default_factory=dict)
    _talks: list[Talk] = field(default_factory=list)

    def talk(self, listener: str = "LOGIN", *, context: ssl.SSLContext | None = None, who: str = "") -> Talk:
        """A new connection."""
        talk = Talk(self.side, listener, self.notes, context=context, who=who)
        self._talks.append(talk)
        return talk

    def login(self, mechanism: str, framing: int = NEWEST, listener: str = "LOGIN", who: str = "") -> Login:
        """A new connection that has said which mechanism it will use."""
        login = Login(self.talk(listener, who=who), framing)
        login.handshake(mechanism)
        return login

    def close(self) -> None:
        """Close all connections."""
        for talk in self._talks:
            talk.close()


@dataclass(frozen=True)
class Scenario:
    """A scenario; all that comes of it is in the notes of `Act`."""

    name: str
    act: Callable[[Act], None]


@dataclass
class Login:
    """A connection that logs in, with tokens in one of the framings."""

    talk: Talk
    framing: int

    def handshake(self, mechanism: str, label: str = "handshake") -> Values | None:
        """Say which mechanism will be used."""
        return self.talk.ask(
            label, "SaslHandshake", 0 if self.framing == RAW else 1, {"Mechanism": mechanism}
        )

    def token(self, label: str, token: bytes, *, shown: Shown | None = None) -> bytes | None:
        """Send a token; returns the answer's, None if there is none."""
        if self.framing == RAW:
            return self.talk.send_token(label, token, shown=shown)
        answer = self.talk.ask(label, "SaslAuthenticate", self.framing, {"AuthBytes": token}, shown=shown)
        return None if answer is None or answer["ErrorCode"] else answer["AuthBytes"]

    def plain(self, user: str = "alice", password: str = "", label: str = "token") -> bytes | None:
        """Send the token of PLAIN."""
        return self.token(label, plain_token(user, password or PASSWORDS[user]))


def plain_token(user: str, password: str, authorization_id: str = "") -> bytes:
    """Return the message of PLAIN."""
    return f"{authorization_id}\0{user}\0{password}".encode()
