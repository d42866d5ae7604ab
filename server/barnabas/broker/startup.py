"""Parsing and binding listeners, with errors that say what to do.

The rule: everything that can be wrong with an address is found here, before anything is served.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping, Sequence

from barnabas.broker.listener import BACKLOG, Listener

SERVED_PROTOCOLS = ("PLAINTEXT",)
METRICS = "metrics.listener"


class StartupError(Exception):
    """The broker cannot start; the text is for the person who started it."""


def parse_endpoint(text: str) -> tuple[str, str, int]:
    """`NAME://host:port` as (name, host, port); the host may be empty or an IPv6 address in brackets."""
    name, separator, address = text.strip().partition("://")
    where = _host_and_port(address)
    if not separator or not name or where is None:
        raise StartupError(
            f"listener {text!r} is not of the form NAME://host:port with a port from 0 to 65535 "
            "(on the command line: --listen HOST:PORT)"
        )
    return name.upper(), *where


def parse_metrics_address(text: str) -> tuple[str, int]:
    """`HOST:PORT` of the setting metrics.listener. Raises StartupError."""
    where = _host_and_port(text.strip())
    if where is None:
        raise StartupError(f"{METRICS}={text} is not of the form HOST:PORT")
    return where


def _host_and_port(address: str) -> tuple[str, int] | None:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def open_listeners(endpoints: Sequence[str], protocols: Mapping[str, str]) -> list[Listener]:
    """Bind every endpoint. Raises StartupError naming the address and the cause."""
    listeners: list[Listener] = []
    try:
        for endpoint in endpoints:
            name, host, port = parse_endpoint(endpoint)
            protocol = protocols.get(name, name)
            if protocol not in SERVED_PROTOCOLS:
                raise StartupError(
                    f"listener {endpoint!r} uses {protocol}; only {', '.join(SERVED_PROTOCOLS)} is served "
                    "(docs/reference/not-implemented.md)"
                )
            if any(known.name == name for known in listeners):
                raise StartupError(f"two listeners are called {name}; each needs a name of its own")
            listeners.append(Listener(name, protocol, bind(endpoint, host, port)))
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def bind(endpoint: str, host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on all addresses of a host. Raises StartupError, which speaks of `endpoint`."""
    if host in ("", "0.0.0.0", "::"):
        return [_bind_everywhere(endpoint, host, port)]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise StartupError(
            f"cannot listen on {endpoint}: host {host!r} is not known ({error.strerror})"
        ) from error
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        if sockets and port == 0:
            # All addresses of one name share the port that the first was given.
            address = (address[0], sockets[0].getsockname()[1], *address[2:])
        try:
            sockets.append(_listening(family, address))
        except OSError as error:
            failure = error
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                break
    if failure is not None and (
        not sockets or failure.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    ):
        for sock in sockets:
            sock.close()
        raise _cannot_bind(endpoint, port, failure) from failure
    return sockets


def _bind_everywhere(endpoint: str, host: str, port: int) -> socket.socket:
    """One socket for all interfaces, IPv4 and IPv6 where the machine has both."""
    try:
        if host != "0.0.0.0" and socket.has_dualstack_ipv6():
            sock = socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG, reuse_port=False
            )
        else:
            sock = socket.create_server(("", port), backlog=BACKLOG)
    except OSError as error:
        raise _cannot_bind(endpoint, port, error) from error
    sock.setblocking(False)
    return sock


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _cannot_bind(endpoint: str, port: int, error: OSError) -> StartupError:
    if error.errno == errno.EADDRINUSE:
        option = "--metrics" if endpoint.startswith(METRICS) else "--listen"
        return StartupError(
            f"cannot listen on {endpoint}: port {port} is in use, perhaps by another broker; "
            f"stop it or choose another port with {option} HOST:PORT"
        )
    if error.errno == errno.EACCES:
        return StartupError(
            f"cannot listen on {endpoint}: no permission for port {port}; choose one above 1023"
        )
    return StartupError(f"cannot listen on {endpoint}: {error.strerror or error}")
