"""A registry at an address: what `barnabas serve --registry` and `barnabas registry` start.

The rule: who reaches it without a login can change every schema, so an address beyond this machine needs one, or a plain
word that there is none.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from barnabas.network.sockets import BACKLOG
from barnabas.network.transport import host_and_port, is_loopback
from barnabas.network.visitors import AddressError, Visitor, Visitors, bind, url_of
from barnabas.registry.formats import check_installed
from barnabas.registry.http import Answering
from barnabas.registry.parsing import Parsing
from barnabas.registry.reading import Reading
from barnabas.registry.registering import Registering
from barnabas.registry.removing import Removing
from barnabas.registry.routes import Registry
from barnabas.registry.setting import Setting
from barnabas.registry.store import TOPIC_NAME, Store

if TYPE_CHECKING:
    from socket import socket

    from barnabas.client import ClientSettings, Endpoint
    from barnabas.registry.access import Logins

DEFAULT_ADDRESS = "localhost:8081"
CONNECTIONS_MAX = 256
HANDSHAKE_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a registry, and the way in which it is served."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    is_open: bool = False
    """True where it may be reached from elsewhere without a login."""


def address_of(text: str, *, certificate: str = "", key: str = "", is_open: bool = False) -> Address:
    """Read `HOST:PORT`; with a certificate, TLS is spoken. Raises AddressError."""
    where = host_and_port(text.strip())
    if where is None:
        raise AddressError(f"the address of the registry, {text!r}, is not of the form HOST:PORT")
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key or None, "")
        except OSError as error:
            raise AddressError(f"the registry's certificate {certificate!r}: {error}") from None
    return Address(*where, context, is_open)


def _bind(address: Address, *, has_login: bool) -> list[socket]:
    """Bind an address, port 0 for a free one. Raises AddressError."""
    unguarded = (
        "whoever reaches the registry on {} could change every schema: have users log in, or use an address of this "
        "machine alone (localhost)"
    )
    is_guarded = has_login or address.is_open
    return bind(address.host, address.port, "the registry", unguarded="" if is_guarded else unguarded)


async def serve(
    address: Address,
    bootstrap: Sequence[Endpoint],
    settings: ClientSettings,
    logins: Logins | None = None,
    topic: str = TOPIC_NAME,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a registry that a Kafka keeps, until cancelled; reports its URL once it has read all that is there.

    With `logins`, users log in to the broker. Raises AddressError, RegistryError, ClientError; ModuleNotFoundError
    without the libraries for schemas.
    """
    check_installed()
    sockets = _bind(address, has_login=logins is not None)
    try:
        store = Store(bootstrap, settings, topic)
        parsing = Parsing()
        registry = Registry(
            store, Reading(store.state, parsing), Registering(store, parsing), Removing(store), Setting(store)
        )
        addresses = {sock.getsockname()[0] for sock in sockets}
        answering = Answering(registry, logins, addresses, is_local=all(map(is_loopback, addresses)))

        async def answer(visitor: Visitor) -> None:
            if address.tls is not None:
                await _secure(visitor, address.tls)
            await answering.serve(visitor)

        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            for sock in sockets:
                sock.listen(BACKLOG)
            nursery.start_soon(Visitors("the registry", CONNECTIONS_MAX, answer).serve, sockets)
            task_status.started(url_of(sockets, "http" if address.tls is None else "https"))
    finally:
        for sock in sockets:
            sock.close()


async def _secure(visitor: Visitor, context: ssl.SSLContext) -> None:
    """Speak TLS with a visitor. Raises BrokenResourceError for one that does not."""
    stream = trio.SSLStream(visitor.stream, context, server_side=True, https_compatible=True)
    with trio.move_on_after(HANDSHAKE_SECONDS_MAX) as limit:
        await stream.do_handshake()
    if limit.cancelled_caught:
        raise trio.BrokenResourceError("no TLS handshake in time")
    visitor.stream = stream
