"""The settings of a cluster on ZooKeeper, in one value for each part. Pure.

The rule: Kafka's rules about several settings together are checked here, before anything is opened; each error names
the settings and their allowed values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker as settings
from barnabas.config.keeper import is_controller, is_on_zookeeper
from barnabas.config.listeners import inter_broker_listener
from barnabas.config.setting import SettingError

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

PORT_DEFAULT = 2181
_TYPES = {"pem": "PEM", "p12": "PKCS12", "pfx": "PKCS12"}
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SELECTORS = (LEADER_SELECTOR, RACK_SELECTOR)
PROTOCOL_VERSIONS = ("0.8", "3.9")
"""The oldest and newest `inter.broker.protocol.version`, without what follows the second number."""


class StoreFile(NamedTuple):
    """A file of keys or certificates for connections to ZooKeeper."""

    setting: str
    """`zookeeper.ssl.keystore` or `zookeeper.ssl.truststore`, for messages."""
    type: str
    location: str
    password: str | None


class ZooKeeperTls(NamedTuple):
    """TLS of connections to ZooKeeper."""

    key_store: StoreFile | None
    """Private key and certificates of this broker; None for no client certificate."""
    trust_store: StoreFile | None
    """Certificates that are trusted; None for those of the system."""
    checks_host_name: bool


class ZooKeeperSasl(NamedTuple):
    """SASL login at ZooKeeper."""

    jaas: str
    """The login module in JAAS's form, as it is in the section Client of a JAAS file."""
    service: str
    """The first part of the Kerberos principals of ZooKeeper servers."""


class ZooKeeperSettings(NamedTuple):
    """Addresses, timeouts and security of connections to ZooKeeper."""

    servers: tuple[tuple[str, int], ...]
    """Host and port of each server."""
    chroot: str
    """The znode below which everything is, without a slash at its end; empty for the root."""
    session_timeout_ms: int
    connection_timeout_ms: int
    requests_in_flight_max: int
    has_acls: bool
    """True if znodes that are made can be changed by this identity alone (`zookeeper.set.acl`)."""
    digest: tuple[str, str] | None
    """User and password of ZooKeeper's scheme `digest`, None for no user."""
    tls: ZooKeeperTls | None
    sasl: ZooKeeperSasl | None = None
    """None for no login by SASL."""

    @property
    def connect(self) -> str:
        """The servers and the chroot as in `zookeeper.connect`."""
        hosts = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)
        return ",".join(hosts) + self.chroot


def zookeeper_settings(config: BrokerConfig) -> ZooKeeperSettings:
    """Read the settings of connections to ZooKeeper. Raises SettingError."""
    servers, chroot = parse_connect(config.get(settings.ZOOKEEPER_CONNECT) or "")
    session_ms = config.get(settings.ZOOKEEPER_SESSION_TIMEOUT_MS)
    connection_ms = config.get(settings.ZOOKEEPER_CONNECTION_TIMEOUT_MS)
    digest = digest_of(config.get(settings.ZOOKEEPER_DIGEST_CREDENTIALS))
    tls = _tls(config)
    jaas = config.get(settings.ZOOKEEPER_SASL_JAAS_CONFIG)
    sasl = ZooKeeperSasl(jaas, config.get(settings.ZOOKEEPER_SASL_CLIENT_USERNAME)) if jaas else None
    has_acls = config.get(settings.ZOOKEEPER_SET_ACL)
    if has_acls and digest is None and sasl is None and (tls is None or tls.key_store is None):
        raise SettingError(
            f"{settings.ZOOKEEPER_SET_ACL.name}=true needs an identity that the znodes are kept for: set "
            f"{settings.ZOOKEEPER_SASL_JAAS_CONFIG.name}, {settings.ZOOKEEPER_DIGEST_CREDENTIALS.name}=USER:PASSWORD, or a "
            f"certificate by {settings.ZOOKEEPER_SSL_KEYSTORE_LOCATION.name}"
        )
    return ZooKeeperSettings(
        servers,
        chroot,
        session_ms,
        session_ms if connection_ms is None else connection_ms,
        config.get(settings.ZOOKEEPER_MAX_IN_FLIGHT_REQUESTS),
        has_acls,
        digest,
        tls,
        sasl,
    )


def parse_connect(text: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return servers and chroot of HOST[:PORT],HOST[:PORT].../CHROOT; the default port is 2181.

    Raises SettingError.
    """
    name = settings.ZOOKEEPER_CONNECT.name
    addresses, slash, path = text.strip().partition("/")
    chroot = (slash + path).rstrip("/")
    if "//" in chroot or any(part in (".", "..") for part in chroot.split("/")):
        raise SettingError(f"{name}={text}: {chroot} is not the path of a znode")
    servers = []
    for address in addresses.split(","):
        host, port = _host_and_port(address.strip())
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise SettingError(
                f"{name}={text}: {address.strip()!r} is not of the form HOST:PORT; expected is "
                "HOST:PORT,HOST:PORT,... with /CHROOT at its end if the cluster has a path of its own"
            )
        servers.append((host, int(port)))
    return tuple(servers), chroot


def _host_and_port(address: str) -> tuple[str, str]:
    if address.startswith("["):
        host, _, port = address[1:].partition("]")
        return host, port.removeprefix(":") or str(PORT_DEFAULT)
    host, _, port = address.partition(":")
    return host, port or str(PORT_DEFAULT)


def digest_of(text: str | None) -> tuple[str, str] | None:
    """Return the user and the password of a setting. Raises SettingError."""
    if not text:
        return None
    user, colon, password = text.partition(":")
    if not colon or not user or not password:
        raise SettingError(
            f"{settings.ZOOKEEPER_DIGEST_CREDENTIALS.name}=...: it is not of the form USER:PASSWORD"
        )
    return user, password


def _tls(config: BrokerConfig) -> ZooKeeperTls | None:
    if not config.get(settings.ZOOKEEPER_SSL_CLIENT_ENABLE):
        return None
    algorithm = config.get(settings.ZOOKEEPER_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM)
    return ZooKeeperTls(
        _store(
            config.get(settings.ZOOKEEPER_SSL_KEYSTORE_LOCATION),
            config.get(settings.ZOOKEEPER_SSL_KEYSTORE_TYPE),
            config.get(settings.ZOOKEEPER_SSL_KEYSTORE_PASSWORD),
            settings.ZOOKEEPER_SSL_KEYSTORE_LOCATION.name,
        ),
        _store(
            config.get(settings.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION),
            config.get(settings.ZOOKEEPER_SSL_TRUSTSTORE_TYPE),
            config.get(settings.ZOOKEEPER_SSL_TRUSTSTORE_PASSWORD),
            settings.ZOOKEEPER_SSL_TRUSTSTORE_LOCATION.name,
        ),
        algorithm.upper() == "HTTPS",
    )


def _store(location: str | None, type_: str | None, password: str | None, name: str) -> StoreFile | None:
    """Return a store; its default type is that of its file's suffix, as in ZooKeeper."""
    if not location:
        return None
    if not type_:
        type_ = _TYPES.get(location.rpartition(".")[2].lower(), "JKS")
    return StoreFile(name.removesuffix(".location"), type_, location, password)


def reads_from_rack(config: BrokerConfig) -> bool:
    """Return whether consumers are sent to a replica in their own rack (KIP-392)."""
    return config.get(settings.REPLICA_SELECTOR_CLASS) == RACK_SELECTOR


def check_cluster(config: BrokerConfig) -> None:
    """See that the settings of a node in a cluster go together, as Kafka does at its start. Raises SettingError."""
    if is_controller(config):
        from barnabas.config.controller import controller_settings  # not needed by a broker

        controller_settings(config)
        return
    if is_on_zookeeper(config):
        zookeeper_settings(config)
        _check_id(config)
        _check_protocol(config)
    else:
        from barnabas.config.quorum_broker import quorum_settings  # not needed by a broker that is alone

        quorum_settings(config)
    _check_peers(config)
    selector = config.get(settings.REPLICA_SELECTOR_CLASS)
    if selector and selector not in SELECTORS:
        raise SettingError(
            f"{settings.REPLICA_SELECTOR_CLASS.name}={selector}: there is no such selector here; there are "
            + " and ".join(SELECTORS)
        )
    wait = config.get(settings.REPLICA_FETCH_WAIT_MAX_MS)
    for limit in (settings.REPLICA_SOCKET_TIMEOUT_MS, settings.REPLICA_LAG_TIME_MAX_MS):
        if wait > config.get(limit):
            raise SettingError(
                f"{settings.REPLICA_FETCH_WAIT_MAX_MS.name}={wait}: it must not be above {limit.name}="
                f"{config.get(limit)}, or followers that wait for records fall out of sync"
            )


def _check_id(config: BrokerConfig) -> None:
    generated = config.get(settings.BROKER_ID_GENERATION_ENABLE)
    reserved = config.get(settings.RESERVED_BROKER_MAX_ID)
    name = settings.BROKER_ID.name
    if not config.is_node_id_set:
        if not generated:
            raise SettingError(
                f"{name} is not set, and {settings.BROKER_ID_GENERATION_ENABLE.name}=false: give the broker a number "
                f"that no other one has, from 0 on"
            )
    elif generated and config.get(settings.BROKER_ID) > reserved:
        raise SettingError(
            f"{name}={config.get(settings.BROKER_ID)}: numbers above {settings.RESERVED_BROKER_MAX_ID.name}={reserved} "
            "are for brokers without one; choose a smaller one, raise that limit, or set "
            f"{settings.BROKER_ID_GENERATION_ENABLE.name}=false"
        )


def _check_peers(config: BrokerConfig) -> None:
    name = settings.INTER_BROKER_LISTENER_NAME.name
    if config.get(settings.INTER_BROKER_LISTENER_NAME) and config.is_set("security.inter.broker.protocol"):
        raise SettingError(f"only one of {name} and security.inter.broker.protocol can be set")
    listener = inter_broker_listener(config)
    addresses = config.get(settings.ADVERTISED_LISTENERS) or config.listeners()
    names = [address.partition("://")[0].strip().upper() for address in addresses]
    if listener not in names:
        raise SettingError(
            f"{name}={listener}: other brokers connect to this one by the listener of that name, and there is none "
            f"that is advertised; there are {', '.join(names) or 'none'}"
        )


def _check_protocol(config: BrokerConfig) -> None:
    version = config.get(settings.INTER_BROKER_PROTOCOL_VERSION)
    first = tuple(int(part) if part.isdecimal() else -1 for part in version.partition("-")[0].split(".")[:2])
    low, high = (tuple(map(int, text.split("."))) for text in PROTOCOL_VERSIONS)
    if -1 in first or not low <= first <= high:
        raise SettingError(
            f"{settings.INTER_BROKER_PROTOCOL_VERSION.name}={version}: a version from {PROTOCOL_VERSIONS[0]} to "
            f"{PROTOCOL_VERSIONS[1]} is possible with ZooKeeper"
        )
