"""Logins with Kerberos, on Apache Kafka and on Barnabas in one realm: python -m compat.security.kerberos.

Stock clients log in to both. Then tokens of MIT's library are sent to both over bare sockets: valid, truncated, replayed,
late, for others, or out of sequence. The exit code is 1 if there is an unknown difference.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from barnabas.client.gssapi import CHOICE
from barnabas.network.kerberos import Context, KerberosError, Login, Tickets
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest
from compat.kafka import KafkaError, RealKafka, free_port
from compat.kafka.broker import COMMON_SETTINGS
from compat.kafka.process import LIGHT_JVM
from compat.kit import examples
from compat.kit.known import Difference, differences_of, judge
from compat.kit.sides import Side, StartError, barnabas
from compat.security import kerberos_known
from compat.security.kdc import NAME, Realm, RealmError
from compat.security.kerberos_clients import compare_clients
from tests.support.raw_client import RawClient

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SERVICE = "kafka/localhost"
RULES = "RULE:[2:$1-of-$2](job-of-.*),RULE:[1:$1](not-simple)s/-/@/,RULE:[1:$1](upper)s/upper/loud/U,DEFAULT"
CLOCK_SKEW_S = 5
LIFE_S = 3
REAUTH_MS = 600_000

JVM_OPTIONS = ("--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",)
"""Without this Kafka cannot tell a replay apart on Java 17, and refuses a login that it means clients to try again."""


class KerberosClient:
    """A client that records the responses."""

    def __init__(self, side: Side, realm: Realm, aged: Mapping[str, bytes]) -> None:
        self.seen: list[str] = []
        self.realm = realm
        self.aged = aged
        self._address = f"localhost:{side.sasl_port}"
        self.raw = RawClient(self._address)
        self.is_bare = False

    def again(self) -> None:
        """Begin a new connection."""
        self.raw.socket.close()
        self.raw = RawClient(self._address)

    def handshake(self, version: int = 1, mechanism: str = "GSSAPI") -> None:
        """Ask for a mechanism."""
        answer = self.raw.ask(SaslHandshakeRequest(mechanism=mechanism), version)
        self.is_bare = version == 0
        self.seen.append(
            "closed" if answer is None else f"handshake: {answer.error_code} {sorted(answer.mechanisms)}"
        )

    def token(self, data: bytes | None, *, is_answered: bool = True) -> bytes:
        """Send a token; returns the answer's, empty where the connection was closed."""
        if self.is_bare:
            self.raw.send_frame(data or b"")
            answered = self.raw.frame() if is_answered else b""
            self.seen.append("closed" if answered is None else "a token" if answered else "no token")
            return answered or b""
        answer = self.raw.ask(SaslAuthenticateRequest(auth_bytes=data or b""), 2)
        if answer is None:
            self.seen.append("closed")
            return b""
        has_token = "a token" if answer.auth_bytes else "no token"
        self.seen.append(
            f"{answer.error_code} {answer.error_message} {has_token} {answer.session_lifetime_ms}"
        )
        return bytes(answer.auth_bytes)

    def tickets(self, principal: str = "alice", service: str = "kafka") -> Context:
        """A new context with tickets of a user."""
        keytab = str(self.realm.keytab(principal))
        return Tickets(Login(service, f"{principal}@{NAME}", keytab)).context("localhost")

    def offered(self, context: Context) -> bytes:
        """Exchange tokens until the broker offers security layers; returns the offer."""
        answer = self.token(context.step(None))
        context.step(answer)
        return self.token(b"")

    def log_in(self, context: Context, suffix: bytes = b"") -> None:
        """Go through all of a login."""
        offer = context.unwrap(self.offered(context))
        self.seen.append(f"offer {offer.hex()}")
        self.token(context.wrap(CHOICE + suffix), is_answered=False)

    def who(self) -> None:
        """Record whether the user is authorized on the cluster."""
        answer = self.raw.ask(MetadataRequest(topics=[], include_cluster_authorized_operations=True), 8)
        self.seen.append("closed" if answer is None else f"operations {answer.cluster_authorized_operations}")


Case = Callable[[KerberosClient], None]


def right(principal: str = "alice", suffix: bytes = b"", version: int = 1) -> Case:
    """A login, and what its user may do."""

    def case(client: KerberosClient) -> None:
        if version >= 0:
            client.handshake(version)
        else:
            client.is_bare = True
        client.log_in(client.tickets(principal), suffix)
        client.who()

    return case


def first(change: Callable[[KerberosClient], bytes]) -> Case:
    """A first token."""

    def case(client: KerberosClient) -> None:
        client.handshake()
        client.token(change(client))
        client.who()

    return case


def last(choose: Callable[[Context], bytes]) -> Case:
    """A choice of security layer."""

    def case(client: KerberosClient) -> None:
        client.handshake()
        context = client.tickets()
        context.unwrap(client.offered(context))
        client.token(choose(context))
        client.who()

    return case


def replayed(client: KerberosClient) -> None:
    """The same first token on two connections."""
    token = client.tickets().step(None)
    for _ in range(2):
        client.handshake()
        client.token(token)
        client.again()


def out_of_sequence(context: Context) -> bytes:
    """A message after a lost one."""
    context.wrap(CHOICE)
    return context.wrap(CHOICE)


def with_data_before_the_offer(client: KerberosClient) -> None:
    """Data in place of the empty message before the offer."""
    client.handshake()
    context = client.tickets()
    context.step(client.token(context.step(None)))
    client.token(b"something")
    client.who()


def ticket_twice(client: KerberosClient) -> None:
    """A first token after the context is established."""
    client.handshake()
    context = client.tickets()
    context.step(client.token(context.step(None)))
    client.token(client.tickets().step(None))
    client.who()


def after_the_end(client: KerberosClient) -> None:
    """A token after the login."""
    right()(client)
    client.token(b"more")
    client.who()


def renewed(principal: str = "alice", mechanism: str = "GSSAPI") -> Case:
    """A second login on the same connection."""

    def case(client: KerberosClient) -> None:
        right()(client)
        client.handshake(mechanism=mechanism)
        if mechanism == "GSSAPI":
            client.log_in(client.tickets(principal))
        else:
            client.token(b"\0plain\0secret")
        client.who()

    return case


def other_request(client: KerberosClient) -> None:
    """A request in the middle of a login."""
    client.handshake()
    client.token(client.tickets().step(None))
    client.who()


def late(name: str) -> Case:
    """A first token that was made some time ago."""
    return first(lambda client: client.aged[name])


CASES: dict[str, Case] = {
    "right": right(),
    "right, bob": right("bob"),
    "an authorization id": right(suffix=b"bob@" + NAME.encode()),
    "a host principal, by a rule": right("job/night"),
    "a host principal, by default": right("job2/night"),
    "capitals": right("upper"),
    "bare tokens after handshake v0": right(version=0),
    "bare tokens without a handshake": right(version=-1),
    "a principal whose name is not simple": right("not-simple"),
    "a principal of three parts": right("alice/a/b"),
    "a ticket for another service": first(lambda client: client.tickets(service="http").step(None) or b""),
    "a token that is cut": first(lambda client: (client.tickets().step(None) or b"")[:200]),
    "a token with a byte changed": first(
        lambda client: bytes(b ^ (i == 300) for i, b in enumerate(client.tickets().step(None) or b""))
    ),
    "a token and more": first(lambda client: (client.tickets().step(None) or b"") + b"more"),
    "an empty token": first(lambda _: b""),
    "no token at all": first(lambda _: b"hello"),
    "a token of another mechanism": first(
        lambda _: bytes.fromhex("602806062b0601050502a01e301ca01a3018060a2b06010401823702020a")
    ),
    "a token that is late": late("late"),
    "an expired ticket": late("expired"),
    "a token twice": replayed,
    "a ticket when the context stands": ticket_twice,
    "data before the offer": with_data_before_the_offer,
    "a choice of integrity": last(lambda context: context.wrap(bytes((2, 0, 16, 0)))),
    "a choice of confidentiality": last(lambda context: context.wrap(bytes((4, 0, 16, 0)))),
    "a choice of nothing": last(lambda context: context.wrap(bytes((0, 0, 0, 0)))),
    "a choice of two": last(lambda context: context.wrap(bytes((3, 0, 16, 0)))),
    "a choice that is cut": last(lambda context: context.wrap(CHOICE)[:20]),
    "a choice that is empty": last(lambda context: context.wrap(b"")),
    "a choice that is not wrapped": last(lambda _: CHOICE),
    "a choice out of sequence": last(out_of_sequence),
    "no choice": last(lambda _: b""),
    "a token after the end": after_the_end,
    "a login again": renewed(),
    "a login again as somebody else": renewed("bob"),
    "a login again with another mechanism": renewed(mechanism="PLAIN"),
    "another request during a login": other_request,
    "a key that has changed": first(
        lambda client: client.tickets().step(None) or b""
    ),  # the last one: it stays changed
}


def settings(realm: Realm, port: int, sasl_port: int, controller_port: int = 0) -> dict[str, str]:
    """Return the settings of a broker with logins at `sasl_port`; of a Kafka with a `controller_port`."""
    addresses = f"PLAINTEXT://127.0.0.1:{port},USERS://localhost:{sasl_port}"
    own = f",CONTROLLER://127.0.0.1:{controller_port}" if controller_port else ""
    keytab = realm.directory / "service.keytab"
    return {
        "listeners": addresses + own,
        "advertised.listeners": addresses,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI,PLAIN",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        "listener.name.users.gssapi.sasl.jaas.config": f"{MODULE} required useKeyTab=true storeKey=true "
        f'keyTab="{keytab}" principal="{SERVICE}@{NAME}";',
        "listener.name.users.plain.sasl.jaas.config": f'{PLAIN} required user_plain="secret";',
        "connections.max.reauth.ms": str(REAUTH_MS),
        "connection.failed.authentication.delay.ms": "20",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:alice;User:job-of-night;User:LOUD",
        "allow.everyone.if.no.acl.found": "false",
    }


@contextmanager
def both(version: str, realm: Realm) -> Iterator[tuple[Side, Side]]:
    """(Apache Kafka, Barnabas), running. Raises KafkaError, StartError."""
    realm.keytab(SERVICE).rename(realm.directory / "service.keytab")
    data = realm.directory / "kafka"
    data.mkdir()
    port, sasl_port, controller_port = free_port(), free_port(), free_port()
    (data / "controller.port").write_text(str(controller_port))
    lines = settings(realm, port, sasl_port, controller_port)
    options = LIGHT_JVM + JVM_OPTIONS + realm.java_options
    with RealKafka(version, port, data=data, settings=lines, jvm_options=options) as kafka:
        ours, sasl_ours, properties = free_port(), free_port(), realm.directory / "server.properties"
        lines = {
            **COMMON_SETTINGS,
            "broker.id": "1",
            "log.dirs": str(realm.directory / "barnabas"),
            **settings(realm, ours, sasl_ours),
        }
        lines.pop("inter.broker.listener.name")
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        with barnabas(properties):
            yield Side("Kafka", kafka.port, sasl_port), Side("Barnabas", ours, sasl_ours)


def age(realm: Realm) -> dict[str, bytes]:
    """Make tokens, and wait until they are older than the allowed clock skew; returns them by name."""
    realm.add("short", life_s=LIFE_S)
    keytab = str(realm.keytab("short"))
    short = Tickets(Login("kafka", f"short@{NAME}", keytab)).context("localhost").step(None) or b""
    keytab = str(realm.keytab("alice"))
    late = Tickets(Login("kafka", f"alice@{NAME}", keytab)).context("localhost").step(None) or b""
    time.sleep(2 * CLOCK_SKEW_S + LIFE_S)
    return {"late": late, "expired": short}


def seen(case: Case, side: Side, realm: Realm, aged: Mapping[str, bytes]) -> list[str]:
    """The answers of a side in one case."""
    client = KerberosClient(side, realm, aged)
    try:
        case(client)
    except (OSError, KerberosError) as error:
        client.seen.append(f"{type(error).__name__}: {error}")
    finally:
        client.raw.socket.close()
    return client.seen


def compare_tokens(sides: tuple[Side, Side], realm: Realm, names: Collection[str]) -> list[Difference]:
    """Run cases on both sides; returns where they differ."""
    realm.keytab("http/localhost")
    aged = age(realm)
    differences: list[Difference] = []
    for name, case in CASES.items():
        if name not in names:
            continue
        if name == "a key that has changed":
            realm.change_key(SERVICE)
        theirs, ours = (seen(case, side, realm, aged) for side in sides)
        differences += differences_of(name, theirs, ours)
        if theirs == ours:
            print(f"same: {name}: {theirs[-1]}")
        else:
            print(f"other answers: {name}:\n  Kafka    {theirs}\n  Barnabas {ours}")
    return differences


def main() -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.security.kerberos", description=__doc__)
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument("--tokens-only", action="store_true", help="no stock clients")
    parser.add_argument("--case", action="append", metavar="NAME", help="of tokens; all")
    examples.add_option(parser)
    options = parser.parse_args()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="kerberos-") as name,
            Realm(Path(name), clock_skew_s=CLOCK_SKEW_S) as realm,
        ):
            os.environ.update(realm.environment)
            with both(options.version, realm) as sides:
                bad = 0 if options.tokens_only else compare_clients(options.version, sides, realm)
                differences = compare_tokens(sides, realm, options.case or CASES)
    except (KafkaError, StartError, RealmError, KerberosError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    rows = kerberos_known.of(of_kafka_3=options.version.startswith("3"))
    if options.keep_examples:
        examples.keep("kerberos", differences, rows)
    bad += judge(differences, rows, complete=not options.case)
    print(f"{len(options.case or CASES)} cases, {len(differences)} differences, {bad} things not as known")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
