"""State that sessions begin with: the broker's time, delegation tokens, and a realm of Kerberos if one can be had."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.network.kerberos import Context, KerberosError, Login, Tickets, library
from compat.fuzz import logins
from compat.security.kdc import NAME, Realm, RealmError

SERVICE, HOST = "kafka", "localhost"
KEPT_TOKENS_MAX = 50
MODULE = "com.sun.security.auth.module.Krb5LoginModule"


@dataclass(frozen=True)
class TokenPair:
    """A delegation token: its id, and its HMAC in base64, which is the password."""

    token_id: str
    password: str


class Kerberos:
    """A realm with alice and the broker in it, and this process too. Lifecycle: made by `kerberos`, then `close`."""

    def __init__(self, realm: Realm, stack: ExitStack) -> None:
        self._stack = stack
        self.broker_keytab = realm.keytab(f"{SERVICE}/{HOST}")
        self.environment = realm.environment
        self._tickets = Tickets(Login(SERVICE, logins.USER, str(realm.keytab(logins.USER))))
        self.answered: list[bytes] = []
        """First tokens that the broker has seen: it takes none of them again."""

    def begin(self) -> Context:
        """Return the client's side of a new login of alice's."""
        return self._tickets.context(HOST)

    def keep(self, token: bytes) -> None:
        """Store a first token that the broker has accepted."""
        if len(self.answered) < KEPT_TOKENS_MAX:
            self.answered.append(token)

    def settings(self) -> dict[str, str]:
        """Settings of the broker."""
        jaas = (
            f'{MODULE} required useKeyTab=true storeKey=true keyTab="{self.broker_keytab}" '
            f'principal="{SERVICE}/{HOST}@{NAME}";'
        )
        return {
            "sasl.kerberos.service.name": SERVICE,
            **{
                f"listener.name.{name}.gssapi.sasl.jaas.config": jaas
                for name in ("sasl_plaintext", "sasl_ssl")
            },
        }

    def close(self) -> None:
        """End the realm."""
        self._stack.close()


def kerberos(directory: Path) -> Kerberos | None:
    """Start a realm; None where there is no key distribution centre, or no package for Kerberos."""
    with ExitStack() as stack:
        try:
            library()
            realm = stack.enter_context(Realm(directory))
        except (KerberosError, RealmError):
            return None
        os.environ.update(realm.environment)
        return Kerberos(realm, stack.pop_all())
    return None


@dataclass
class Held:
    """The credentials of a session. `now_s` is the broker's time in s since 1970."""

    now_s: int
    token: TokenPair | None = None
    """Lets alice in, as a token."""
    ended: TokenPair | None = None
    """Let alice in, and has expired."""
    kerberos: Kerberos | None = None
    secrets: list[bytes] = field(default_factory=list)
    """Passwords of tokens, which must stay secret."""


class KerberosLogin:
    """A login with Kerberos, valid except for random changes."""

    def __init__(self, rng: random.Random, held: Kerberos | None) -> None:
        self._rng = rng
        self._held = held
        self._context: Context | None = None
        self._first = b""

    def token(self, answered: bytes) -> tuple[bytes, bool]:
        """Return the next token, and whether it completes a valid login; `answered` is the broker's token, b"" at first."""
        rng = self._rng
        if self._held is None or (self._context is None and rng.random() < 0.4):
            return logins.gssapi(rng), False
        try:
            return self._next(answered, self._held)
        except KerberosError:
            return logins.gssapi(rng), False

    def _next(self, answered: bytes, held: Kerberos) -> tuple[bytes, bool]:
        rng = self._rng
        if self._context is None:
            if held.answered and rng.random() < 0.1:
                return rng.choice(held.answered), False
            self._context = held.begin()
            self._first = self._context.step(None) or b""
            return (logins.damaged(rng, self._first) if rng.random() < 0.5 else self._first), False
        if not self._context.is_established:
            self._context.step(answered)
            held.keep(self._first)
            return (b"" if rng.random() < 0.8 else logins.gssapi(rng)), False
        self._context.unwrap(answered)
        choice, is_right = rng.choice(
            (
                (b"\x01\0\0\0", True),
                (b"\x01\0\0\0bob", True),
                (b"\x05\xff\xff\xff", True),
                (b"\x02\0\0\0", False),
                (b"\x04\0\1\0", False),
                (b"\0\0\0\0", False),
                (b"\x01", False),
                (b"", False),
                (b"\x02" * 70_000, False),
            )
        )
        wrapped = self._context.wrap(choice)
        if is_right and rng.random() < 0.7:
            damaged = logins.damaged(rng, wrapped)
            return damaged, is_rotated(damaged, wrapped)
        return wrapped, is_right


def is_rotated(damaged: bytes, wrapped: bytes) -> bool:
    """Return whether a wrap token is equal but for a rotation by its whole length, which is not signed (RFC 4121, RRC)."""
    header, length = 16, len(wrapped) - 16
    if len(damaged) != len(wrapped) or damaged[:6] + damaged[8:] != wrapped[:6] + wrapped[8:]:
        return False
    rotations = [int.from_bytes(token[6:8], "big") % length for token in (damaged, wrapped)]
    return len(damaged) > header and rotations[0] == rotations[1]
