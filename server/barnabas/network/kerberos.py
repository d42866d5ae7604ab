"""Kerberos by MIT's library (the package `gssapi`): accepting logins with a keytab, and logging in with one.

The rule: no other module imports the package, and nothing here runs in the event loop: all of it may wait for files, and
logging in for a key distribution centre. Errors have the library's text and an explanation for operators.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import trio

PACKAGE = (
    "Kerberos needs the Python package gssapi: pip install 'barnabas[kerberos]' "
    "(it is compiled; Debian: apt-get install gcc python3-dev libkrb5-dev)"
)

# Codes of Kerberos, RFC 4120 section 7.5.9, and of MIT's library, counted from the first of its table.
_TABLE = -1765328384
_OTHER_NAME = "see sasl.kerberos.service.name, and the host name by which the broker is reached"
_HINTS = {
    6: "the key distribution centre does not know the principal that logs in",
    7: f"the service has another name: {_OTHER_NAME}",
    31: "the keytab has another key: it may be old, or of another service",
    32: "the ticket has expired",
    35: f"the ticket is for another service: {_OTHER_NAME}",
    37: "clocks differ by more than clockskew in krb5.conf",
    44: "the keytab does not have this version of the service's key",
    144: f"the ticket is for another service: {_OTHER_NAME}",
    156: "no key distribution centre answers: see the realm in krb5.conf",
}
_TRANSIENT = frozenset((21, 33, 34))
"""Client and ticket that are not yet valid, replay: Kafka closes the connection, and clients try again."""

TEXT_CHARS_MAX = 500
_NOTHING = "Success"
"""The library's text for codes that it has no words for, and for none."""

_caches = itertools.count(1)


class KerberosError(Exception):
    """Kerberos has refused an operation; the text names it and, if known, the reason.

    `is_transient`: the next attempt may succeed.
    """

    def __init__(self, reason: str, *, is_transient: bool = False) -> None:
        super().__init__(reason)
        self.is_transient = is_transient


def library() -> Any:
    """Return the package. Raises KerberosError where it is not installed."""
    try:
        import gssapi
    except ImportError as error:
        raise KerberosError(PACKAGE if error.name == "gssapi" else f"{PACKAGE}: {error}") from error
    return gssapi


def default_realm() -> str:
    """Return the default realm of krb5.conf, empty without one. Raises KerberosError without the package."""
    gssapi = library()
    try:
        # The library adds the realm to a name that has none.
        name = gssapi.Name("x", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError:
        return ""
    return str(name).partition("@")[2]


def _translated(error: Any) -> KerberosError:
    code = (error.min_code & 0xFFFFFFFF) - (_TABLE & 0xFFFFFFFF)
    statuses = error.get_all_statuses(error.min_code, False) if error.min_code else []
    statuses = [status for status in statuses if status != _NOTHING] or error.get_all_statuses(
        error.maj_code, True
    )
    # some of it was sent by a client
    text = "".join(
        character if character.isprintable() else "?" for character in "; ".join(statuses)[:TEXT_CHARS_MAX]
    )
    hint = _HINTS.get(code)
    return KerberosError(f"{text} ({hint})" if hint else text, is_transient=code in _TRANSIENT)


# --- accepting --------------------------------------------------------------------------------------------------------


class Acceptor:
    """The key of a service, which checks tickets for it. The keytab is read again for each ticket."""

    def __init__(self, principal: str, keytab: str | None) -> None:
        """Load the key of `principal`; without a `keytab` from the library's default one. Raises KerberosError."""
        self._gssapi = gssapi = library()
        try:
            self._credentials = gssapi.Credentials(
                name=gssapi.Name(principal, gssapi.NameType.kerberos_principal),
                usage="accept",
                mechs=[gssapi.MechType.kerberos],
                store={"keytab": keytab} if keytab else None,
            )
        except gssapi.exceptions.GSSError as error:
            raise _translated(error) from error

    def context(self) -> Context:
        """Return the context of a new login."""
        return Context(self._gssapi, self._gssapi.SecurityContext(creds=self._credentials, usage="accept"))


class Context:
    """A security context of either side. All failures raise KerberosError."""

    def __init__(self, gssapi: Any, context: Any) -> None:
        self._gssapi = gssapi
        self._context = context
        # A token that tells the peer of an error is of no use to SASL: the error itself counts.
        context.__DEFER_STEP_ERRORS__ = False

    @property
    def is_established(self) -> bool:
        """True if the negotiation of the context is complete."""
        return bool(self._context.complete)

    @property
    def initiator(self) -> str:
        """The principal of the client."""
        return str(self._context.initiator_name)

    @property
    def is_mutual(self) -> bool:
        """True if the service has proved its identity."""
        return bool(self._context.actual_flags & self._gssapi.RequirementFlag.mutual_authentication)

    def step(self, token: bytes | None) -> bytes | None:
        """Take the peer's token, None for the first step, and return the answer, None for none."""
        try:
            answer: bytes | None = self._context.step(token)
        except self._gssapi.exceptions.GSSError as error:
            raise _translated(error) from error
        return answer

    def wrap(self, data: bytes) -> bytes:
        """Return data with a checksum, not encrypted."""
        try:
            return bytes(self._context.wrap(data, False).message)
        except self._gssapi.exceptions.GSSError as error:
            raise _translated(error) from error

    def unwrap(self, token: bytes) -> bytes:
        """Return the data of a message after checking its checksum and place in the sequence."""
        own = bytes(bytearray(token))  # the library writes into its argument
        try:
            return bytes(self._context.unwrap(own).message)
        except self._gssapi.exceptions.GSSError as error:
            raise _translated(error) from error


# --- logging in -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials of a client of services."""

    service: str
    """The first part of the services' principals (`sasl.kerberos.service.name`)."""
    principal: str | None = None
    """Principal that logs in; None for the only one that the tickets are for."""
    keytab: str | None = None
    """The file with the principal's key; None to use tickets of an outside ticket cache."""
    ticket_cache: str | None = None
    """Cache of these tickets; None for the library's default."""


class Tickets:
    """Tickets for services. With a keytab they are requested on demand, and again after half of their lifetime."""

    def __init__(self, login: Login) -> None:
        """Read the keytab, if it is set; no server is contacted yet. Raises KerberosError."""
        self.login = login
        self.limiter = trio.CapacityLimiter(1)
        """For the thread of a login's first step: one at a time asks the key distribution centre."""
        self._gssapi = library()
        self._store: dict[str, str] | None = None
        if login.keytab is not None:
            if login.principal is not None:
                Acceptor(login.principal, login.keytab)
            self._store = {
                "client_keytab": login.keytab,
                "ccache": f"MEMORY:barnabas-{next(_caches)}",
            }
        elif login.ticket_cache is not None:
            self._store = {"ccache": login.ticket_cache}

    def context(self, host: str) -> Context:
        """Return the context of a login to the service on a host. Raises KerberosError."""
        gssapi, flags = self._gssapi, self._gssapi.RequirementFlag
        try:
            principal = self.login.principal
            credentials = gssapi.Credentials(
                name=gssapi.Name(principal, gssapi.NameType.kerberos_principal)
                if principal is not None
                else None,
                usage="initiate",
                mechs=[gssapi.MechType.kerberos],
                store=self._store,
            )
            service = gssapi.Name(f"{self.login.service}@{host}", gssapi.NameType.hostbased_service)
            return Context(
                gssapi,
                gssapi.SecurityContext(
                    name=service,
                    creds=credentials,
                    usage="initiate",
                    mech=gssapi.MechType.kerberos,
                    flags=flags.mutual_authentication
                    | flags.integrity
                    | flags.replay_detection
                    | flags.out_of_sequence_detection,
                ),
            )
        except gssapi.exceptions.GSSError as error:
            raise _translated(error) from error
