"""A ZooKeeper that requires a login by SASL, with Apache Kafka 3.9 and Barnabas: python -m compat.security.zookeeper.

First with passwords (DIGEST-MD5), at Apache ZooKeeper and at Barnabas' own; then with Kerberos, by which the brokers then
also log in to each other. Both restrict their znodes to logged-in users (zookeeper.set.acl), and replicate from each other.
The exit code is 1 if a check fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from kazoo.client import KazooClient

from compat.kafka import KafkaError, RealKafka, ZooKeeperServer, free_port, release
from compat.kafka.broker import COMMON_SETTINGS
from compat.kafka.process import LIGHT_JVM
from compat.kit.ending import end_servers_at_sigterm
from compat.kit.sides import StartError, barnabas
from compat.security.kdc import NAME, Realm, RealmError

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
SERVICE = "kafka/localhost"
SEEN_WITHIN_S = 60
KEPT = ("/brokers/ids/1", "/brokers/ids/2", "/brokers/topics/shared", "/config/topics/shared", "/controller")
RECORDS = 50


def module(realm: Realm, principal: str) -> str:
    """A login module of Kerberos with a keytab."""
    keytab = realm.keytab(principal)
    return (
        f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{NAME}";'
    )


def between_by_kerberos(realm: Realm) -> dict[str, str]:
    """Settings of brokers that log in to each other with Kerberos."""
    return {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": module(realm, SERVICE),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:kafka",
    }


def acls_of(zookeeper: KazooClient) -> dict[str, set[str]]:
    """Rights on the znodes, as `permissions scheme:id`."""
    by_path: dict[str, set[str]] = {}
    for path in KEPT:
        acls, _ = zookeeper.get_acls(path)
        by_path[path] = {f"{acl.perms} {acl.id.scheme}:{acl.id.id}" for acl in acls}
    return by_path


def until(what: str, is_so: Callable[[], bool]) -> bool:
    """Wait until a condition holds; prints and returns whether it does."""
    give_up = time.monotonic() + SEEN_WITHIN_S
    while not is_so():
        if time.monotonic() > give_up:
            print(f"not so: {what}")
            return False
        time.sleep(0.2)
    print(f"so: {what}")
    return True


def see(label: str, bootstrap: list[str], zookeeper: str, client: dict[str, object]) -> Iterator[bool]:
    """Make a topic on both brokers, fill it, and look at what ZooKeeper has."""
    options = {"bootstrap_servers": bootstrap, **client}
    admin = KafkaAdminClient(**options)
    admin.create_topics([NewTopic("shared", num_partitions=4, replication_factor=2)])

    def partitions() -> list[dict[str, object]]:
        topics: list[dict[str, list[dict[str, object]]]] = admin.describe_topics(["shared"])
        return topics[0]["partitions"]

    def leaders() -> set[object]:
        return {partition.get("leader_id", partition.get("leader")) for partition in partitions()}

    yield until(f"{label}: both lead partitions", lambda: leaders() == {1, 2})
    producer = KafkaProducer(**options, acks="all")
    sent = [producer.send("shared", b"%d" % n, partition=n % 4) for n in range(RECORDS)]
    yield until(f"{label}: {RECORDS} records on both", lambda: all(ack.get(30) is not None for ack in sent))
    producer.close()

    def are_in_sync() -> bool:
        return all(len(part.get("isr_nodes", part.get("isr", []))) == 2 for part in partitions())  # type: ignore[arg-type]

    yield until(f"{label}: both in sync", are_in_sync)
    admin.close()
    nobody = KazooClient(zookeeper)
    nobody.start()
    acls = acls_of(nobody)
    nobody.stop()
    nobody.close()
    name = f"kafka@{NAME}" if client else "kafka"
    others = {path: acl for path, acl in acls.items() if acl != {f"31 sasl:{name}", "1 world:anyone"}}
    print(f"{'not so' if others else 'so'}: {label}: znodes are kept for sasl:{name} {others or ''}")
    yield not others


@contextmanager
def apache_zookeeper(directory: Path, options: tuple[str, ...] = ()) -> Iterator[str]:
    """Start Apache ZooKeeper with the JAAS file of a directory; gives its HOST:PORT."""
    server = ZooKeeperServer(
        release("3.9"), directory / "zookeeper", jaas=directory / "server.jaas", jvm_options=options
    )
    server.start()
    try:
        yield f"localhost:{server.port}"
    finally:
        server.stop()


@contextmanager
def own_zookeeper(directory: Path, _options: tuple[str, ...] = ()) -> Iterator[str]:
    """Start `barnabas zookeeper` with the JAAS file of a directory; gives its HOST:PORT."""
    command = [sys.executable, "-m", "barnabas", "zookeeper", "--listen", "localhost:0"]
    command += ["--data", str(directory / "zookeeper"), "--jaas", str(directory / "server.jaas")]
    end_servers_at_sigterm()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if "zookeeper.connect=" not in line:
                raise StartError("barnabas zookeeper does not start")
            yield line.partition("zookeeper.connect=")[2].split()[0]
        finally:
            server.terminate()


def cluster(
    label: str,
    directory: Path,
    server: str,
    login: str,
    settings: dict[str, str],
    client: dict[str, object],
    options: tuple[str, ...] = (),
    started: Callable[[Path, tuple[str, ...]], AbstractContextManager[str]] = apache_zookeeper,
) -> bool:
    """Run one cluster; `server` and `login` are modules of ZooKeeper and of the brokers towards it."""
    directory.mkdir()
    (directory / "server.jaas").write_text(f"Server {{\n  {server}\n}};\n")
    (directory / "client.jaas").write_text(f"Client {{\n  {login}\n}};\n")
    with started(directory, options) as zookeeper:
        has_sasl = "security.inter.broker.protocol" in settings

        def lines(port: int, sasl_port: int) -> dict[str, str]:
            addresses = (
                f"PLAINTEXT://localhost:{port}" + f",SASL_PLAINTEXT://localhost:{sasl_port}" * has_sasl
            )
            return {
                **COMMON_SETTINGS, **settings, "listeners": addresses, "advertised.listeners": addresses,
                "zookeeper.connect": zookeeper, "zookeeper.set.acl": "true",
                "offsets.topic.num.partitions": "1",
            }  # fmt: skip

        theirs, ours = (free_port(), free_port()), (free_port(), free_port())
        jaas = f"-Djava.security.auth.login.config={directory / 'client.jaas'}"
        kafka = RealKafka(
            "3.9", theirs[0], data=directory / "kafka", settings=lines(*theirs), mode="zookeeper",
            zookeeper=zookeeper, jvm_options=(*LIGHT_JVM, *options, jaas),
        )  # fmt: skip
        own = {"broker.id": "2", "log.dirs": str(directory / "barnabas"), "zookeeper.sasl.jaas.config": login}
        properties = directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in (lines(*ours) | own).items()))
        bootstrap = [f"localhost:{ports[has_sasl]}" for ports in (theirs, ours)]
        with kafka, barnabas(properties):
            return all([*see(label, bootstrap, zookeeper, client)])


def main() -> int:
    """Run all clusters; returns the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="sasl-") as name:
            directory = Path(name)
            digest = f'{DIGEST} required username="kafka" password="a secret";'
            is_right = cluster(
                "password", directory / "digest", f'{DIGEST} required user_kafka="a secret";', digest, {}, {}
            )
            is_right &= cluster(
                "password, own ZooKeeper", directory / "own", f'{DIGEST} required user_kafka="a secret";', digest, {}, {},
                started=own_zookeeper,
            )  # fmt: skip
            with Realm(directory / "realm") as realm:
                os.environ.update(realm.environment)
                os.environ["KRB5CCNAME"] = str(realm.tickets(SERVICE))
                client = {
                    "security_protocol": "SASL_PLAINTEXT",
                    "sasl_mechanism": "GSSAPI",
                    "sasl_kerberos_service_name": "kafka",
                }
                is_right &= cluster(
                    "Kerberos",
                    directory / "kerberos",
                    module(realm, "zookeeper/localhost"),
                    module(realm, "kafka"),
                    between_by_kerberos(realm),
                    client,
                    realm.java_options,
                )
    except (KafkaError, StartError, RealmError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
