"""A registry at an address: what `barnabas serve --registry` and `barnabas registry` start.

The rule: who reaches it without a login can change every schema, so an address beyond this machine needs one, or a plain
word that there is none.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

import trio

from barnabas.network.sockets import BACKLOG, bind_sockets
from barnabas.network.transport import EVERYWHERE
from barnabas.network.visitors import Visitor, Visitors
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


class AddressError(Exception):
    """The registry cannot be served where it was to be; the text is for who started it."""


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
    host, colon, port = text.strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
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
    return Address(host.removeprefix("[").removesuffix("]"), int(port), context, is_open)


def bind(address: Address, *, has_login: bool) -> list[socket]:
    """Bind an address, port 0 for a free one. Raises AddressError."""
    try:
        sockets = bind_sockets(address.host, address.port)
    except OSError as error:
        reason = error.strerror or error
        raise AddressError(f"cannot serve the registry on {address.host}:{address.port}: {reason}") from error
    if not has_login and not address.is_open and not _is_local(sockets):
        for sock in sockets:
            sock.close()
        raise AddressError(
            f"whoever reaches the registry on {address.host}:{address.port} could change every schema: have users log in, "
            "or use an address of this machine alone (localhost)"
        )
    return sockets


def url_of(address: Address, sockets: Sequence[socket]) -> str:
    """Return where the registry is, once its sockets are bound."""
    host, port = sockets[0].getsockname()[:2]
    host = "localhost" if host in EVERYWHERE else host
    scheme = "http" if address.tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _is_local(sockets: Sequence[socket]) -> bool:
    return all(ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback for sock in sockets)


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
    sockets = bind(address, has_login=logins is not None)
    try:
        store = Store(bootstrap, settings, topic)
        parsing = Parsing()
        registry = Registry(
            store, Reading(store.state, parsing), Registering(store, parsing), Removing(store), Setting(store)
        )
        addresses = {sock.getsockname()[0] for sock in sockets}
        answering = Answering(registry, logins, addresses, is_local=_is_local(sockets))

        async def answer(visitor: Visitor) -> None:
            if address.tls is not None:
                await _secure(visitor, address.tls)
            await answering.serve(visitor)

        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            for sock in sockets:
                sock.listen(BACKLOG)
            nursery.start_soon(Visitors("the registry", CONNECTIONS_MAX, answer).serve, sockets)
            task_status.started(url_of(address, sockets))
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
