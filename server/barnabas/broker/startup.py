"""Parses and binds listeners, with errors that name the way out.

The rule: all faults of addresses are detected here, before anything is served.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.image import TOPIC
from barnabas.config import broker as settings
from barnabas.config.keeper import is_clustered
from barnabas.config.listeners import PROTOCOLS, ListenerSettings, listener_settings, mechanisms_of
from barnabas.config.topic import has_tiered_storage
from barnabas.network.transport import EVERYWHERE, UnknownHostError, host_and_port, is_loopback, url_address
from barnabas.serving.listener import Listener

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage
    from barnabas.config.loading import BrokerConfig
    from barnabas.network.transport import Network

ADVERTISED = "advertised.listeners"
METRICS = "metrics.listener"


class StartupError(Exception):
    """The broker cannot start; the text is for the operator."""


def parse_endpoint(text: str, setting: str = "listener", option: str = "--listen") -> tuple[str, str, int]:
    """`NAME://host:port` as (name, host, port); the host may be empty or an IPv6 address in brackets.

    Raises StartupError, which speaks of `setting` and `option`.
    """
    name, separator, address = text.strip().partition("://")
    where = host_and_port(address)
    if not separator or not name or where is None:
        raise StartupError(
            f"{setting} {text!r} is not of the form NAME://host:port with a port from 0 to 65535 "
            f"(on the command line: {option} HOST:PORT)"
        )
    return name.upper(), *where


def parse_metrics_address(text: str) -> tuple[str, int]:
    """`HOST:PORT` of the setting metrics.listener. Raises StartupError."""
    where = host_and_port(text.strip())
    if where is None:
        raise StartupError(f"{METRICS}={text} is not of the form HOST:PORT")
    return where


def advertised_listeners(config: BrokerConfig, network: Network) -> dict[str, tuple[str, int]]:
    """The (host, port) of `advertised.listeners` by listener name; port 0 stands for the port that is bound.

    Kafka's rules: each name is that of a listener, none is named twice, and 0.0.0.0 is no address that a client can
    connect to. An empty host is this machine's name. Raises StartupError.
    """
    names = [parse_endpoint(text)[0] for text in config.listeners()]
    controllers = config.controller_listener_names()
    advertised: dict[str, tuple[str, int]] = {}
    for text in config.get(settings.ADVERTISED_LISTENERS) or ():
        name, host, port = parse_endpoint(text, ADVERTISED, "--advertise")
        if name in controllers:
            continue
        if name not in names:
            raise StartupError(
                f"{ADVERTISED} names {name}, and there is no such listener; the listeners are {', '.join(names)}"
            )
        if name in advertised:
            raise StartupError(f"{ADVERTISED} names {name} twice")
        if host in EVERYWHERE:
            raise StartupError(
                f"{ADVERTISED}={text}: clients cannot connect to {host}; name an address or host of this machine that "
                "they can reach"
            )
        advertised[name] = (host or network.host_name(), port)
    return advertised


def advertised_endpoints(
    config: BrokerConfig, network: Network, listeners: Sequence[Listener]
) -> dict[str, tuple[str, int]]:
    """Return the advertised (host, port) of each listener that advertises an address.

    A listener that `advertised.listeners` does not name advertises its host in `listeners`, as in Kafka: certificates and
    Kerberos principals are for names, not for addresses. A listener on all interfaces advertises this machine's name if
    clients check names, and in a cluster; elsewhere nothing: each client gets the address to which it connected. In a
    cluster `advertised.listeners` names all advertised listeners. Raises StartupError.
    """
    bound = {listener.name: listener.port for listener in listeners}
    advertised = advertised_listeners(config, network)
    clustered = is_clustered(config)
    if not (advertised and clustered):
        for name, host, port in map(parse_endpoint, config.listeners()):
            if name in advertised:
                continue
            if host and host not in EVERYWHERE:
                advertised[name] = (host, port)
            elif clustered or _clients_check_names(listener_settings(config, name)):
                advertised[name] = (network.host_name(), port)
    return {name: (host, port or bound.get(name, 0)) for name, (host, port) in advertised.items()}


def _clients_check_names(listener: ListenerSettings) -> bool:
    """Return whether clients compare the name by which they connect: with a certificate, or by a Kerberos ticket."""
    return listener.has_tls or "GSSAPI" in mechanisms_of(listener)


def open_listeners(
    endpoints: Sequence[str], protocols: Mapping[str, str], network: Network
) -> list[Listener]:
    """Bind every endpoint. Raises StartupError naming the address and the cause."""
    if not endpoints:
        raise StartupError("there is no listener for clients: set listeners, or use --listen HOST:PORT")
    listeners: list[Listener] = []
    try:
        for endpoint in endpoints:
            name, host, port = parse_endpoint(endpoint)
            protocol = protocols.get(name, name)
            if protocol not in PROTOCOLS:
                raise StartupError(_not_served(endpoint, name, protocol))
            if any(listener.name == name for listener in listeners):
                raise StartupError(f"two listeners are called {name}; each needs a name of its own")
            with explained(endpoint, host, port):
                listeners.append(Listener(name, protocol, network.bind(host, port)))
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _not_served(endpoint: str, name: str, protocol: str) -> str:
    return (
        f"listener {endpoint!r}: {name} is not in listener.security.protocol.map; add {name}:PLAINTEXT to it"
        if protocol == name
        else f"listener {endpoint!r}: {protocol} is not a security protocol; there are {', '.join(PROTOCOLS)}"
    )


def bootstrap_of(listener: Listener) -> str:
    """`host:port` of a listener as a client on this machine can connect to it."""
    hosts = [host for host, _ in listener.addresses]
    all_local = len(hosts) > 1 and all(is_loopback(host) for host in hosts)
    host = "localhost" if all_local or hosts[0] in EVERYWHERE else hosts[0]
    return url_address(host, listener.port)


def open_to_others(listeners: Sequence[Listener], *, authenticates: bool) -> list[str]:
    """The bound addresses, as host:port, to which other machines may connect: of listeners that authenticate, or do not."""
    return [
        url_address(host, port)
        for listener in listeners
        if listener.channel.authenticates is authenticates
        for host, port in listener.addresses
        if not is_loopback(host)
    ]


def check_tiered_topics(config: BrokerConfig, image: ClusterImage) -> None:
    """Raise StartupError if topics have tiered storage, and the broker does not, as with Apache Kafka."""
    if config.get(settings.REMOTE_LOG_STORAGE_SYSTEM_ENABLE):
        return
    for (resource_type, name), texts in image.configs.items():
        if resource_type == TOPIC and has_tiered_storage(texts):
            raise StartupError(
                f"topic {name!r} has tiered storage. You have to delete all topics with the property "
                "remote.storage.enable=true before disabling tiered storage cluster-wide: start with "
                f"{settings.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name}=true"
            )


def exposures(listeners: Sequence[Listener], *, has_authorizer: bool) -> Iterator[str]:
    """Yield a warning for each action that other machines can take without restriction."""
    strangers = open_to_others(listeners, authenticates=False)
    if strangers:
        may = "what the ACLs allow to User:ANONYMOUS" if has_authorizer else "everything"
        yield (
            f"other machines can connect to {', '.join(strangers)}, and there is no authentication: whoever can connect "
            f"can read, write and delete {may} (--listen localhost:PORT serves this machine only)"
        )
    users = open_to_others(listeners, authenticates=True)
    if users and not has_authorizer:
        yield (
            f"other machines can connect to {', '.join(users)}, and there is no authorizer: whoever logs in can read, "
            "write and delete everything (authorizer.class.name)"
        )


def listen(listener: Listener) -> None:
    """Start to accept connections. Raises StartupError if another broker has begun to listen meanwhile."""
    for acceptor in listener.acceptors:
        host, port = acceptor.address
        with explained(f"{listener.name}://{url_address(host, port)}", host, port):
            acceptor.listen()


@contextmanager
def explained(endpoint: str, host: str, port: int) -> Iterator[None]:
    """Raise StartupError, naming `endpoint`, if an address cannot be bound or listened on."""
    try:
        yield
    except UnknownHostError as error:
        raise StartupError(
            f"cannot listen on {endpoint}: host {host!r} is not known ({error.strerror})"
        ) from error
    except OSError as error:
        raise _cannot_listen(endpoint, port, error) from error


def _cannot_listen(endpoint: str, port: int, error: OSError) -> StartupError:
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
