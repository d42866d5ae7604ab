"""python -m compat.cluster.peers: Kafka 3.9 and ours in one cluster, with TLS and SCRAM between the brokers.

What is made at one broker with Kafka's tools must have effect at the other, in both directions: credentials, ACLs, quotas,
delegation tokens. The rule: the brokers are no super users; the ACL for ClusterAction is what lets them work together.
"""

from __future__ import annotations

import argparse
import functools
import logging
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from compat.cluster import checks
from compat.cluster.nodes import (
    KAFKA,
    OURS,
    VERSION,
    Cluster,
    ClusterError,
    chosen_names,
    in_directory,
    wait_until,
)
from compat.kafka import free_port, release, tool_command
from compat.kit.certificates import Authority
from compat.kit.sides import PASSWORD, Side

ADMIN, BROKER, ALICE, MALLORY = "admin", "broker", "alice", "mallory"
BROKERS_PASSWORD = "between brokers"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
TOPIC = checks.TOPIC
TOOL_S = 90
CLUSTER_AUTHORIZATION_FAILED = 31
RATE = 20_000
"""A quota that throttles immediately, in bytes/s at each broker."""


class Peers:
    """The cluster, with a listener for users at each broker, and Kafka's tools as the administrator."""

    def __init__(self, directory: Path, kinds: tuple[str, ...]) -> None:
        self.directory = directory
        authority = Authority(directory / "certificates", "ca")
        key = authority.signed("broker").pem
        tls = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.pem),
            "listener.name.between.ssl.client.auth": "required",
        }
        self.cluster = Cluster(directory / "cluster", kinds, {**tls, **settings()}, prepare=self._prepare)
        self.users = {broker_id: free_port() for broker_id in self.cluster.kinds}
        self.cluster.own = {broker_id: self._addresses(broker_id) for broker_id in self.cluster.kinds}
        self.admin = self.properties("admin", login(PLAIN_MODULE, ADMIN, PASSWORD), "PLAIN")

    def _addresses(self, broker_id: int) -> dict[str, str]:
        ports = (self.cluster.ports[broker_id], self.users[broker_id], free_port())
        names = ("PLAINTEXT", "USERS", "BETWEEN")
        text = ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True))
        return {"listeners": text, "advertised.listeners": text}

    @staticmethod
    def _prepare(cluster: Cluster) -> None:
        """Make the user of the brokers, and allow it ClusterAction, with the tools that write into ZooKeeper."""
        client = KazooClient(cluster.zookeeper.address)
        client.start(30)
        client.ensure_path("/" + cluster.connect.partition("/")[2])
        client.stop()
        client.close()
        write(
            "configs", "--zookeeper", cluster.connect, "--alter", "--entity-type", "users", "--entity-name", BROKER,
            "--add-config", f"SCRAM-SHA-512=[password={BROKERS_PASSWORD}]",
        )  # fmt: skip
        write(
            "acls", "--authorizer-properties", f"zookeeper.connect={cluster.connect}", "--add", "--allow-principal",
            f"User:{BROKER}", "--operation", "ClusterAction", "--cluster",
        )  # fmt: skip

    def properties(self, name: str, jaas: str, mechanism: str) -> Path:
        """Write a file for `--command-config`; returns its path."""
        path = self.directory / f"{name}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
        )
        return path

    def tool(self, broker_id: int, name: str, *arguments: str, config: Path | None = None) -> str:
        """Run a tool at one broker; returns its output. Raises ClusterError."""
        done = self.try_tool(broker_id, name, *arguments, config=config)
        if done.returncode or "Error while executing" in done.stdout:
            raise ClusterError(
                f"{name} {' '.join(arguments)} at {self.what(broker_id)}: {done.stdout}{done.stderr}"
            )
        return done.stdout

    def try_tool(
        self, broker_id: int, name: str, *arguments: str, config: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool that may fail."""
        words = (
            "--bootstrap-server",
            f"127.0.0.1:{self.users[broker_id]}",
            "--command-config",
            str(config or self.admin),
        )
        command = tool_command(release(self.cluster.version), name, *words, *arguments)
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_S)

    def what(self, broker_id: int) -> str:
        """Return a broker's name for messages."""
        return f"broker {broker_id} ({self.cluster.kinds[broker_id]})"

    def client(
        self, broker_id: int, user: str, password: str, mechanism: str = "SCRAM-SHA-256"
    ) -> dict[str, object]:
        """Return the settings of librdkafka that begins at a broker."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.users[broker_id]}", "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password, "log_level": 0,
        }  # fmt: skip

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield a broker of Kafka's and one of ours, in both orders."""
        kafka, ours = self.cluster.of_kind(KAFKA)[0], self.cluster.of_kind(OURS)[0]
        yield kafka, ours
        yield ours, kafka

    def side(self, broker_id: int) -> Side:
        """A broker for raw requests."""
        return Side(self.what(broker_id), self.cluster.ports[broker_id], self.users[broker_id])


def login(module: str, user: str, password: str, more: str = "") -> str:
    """Return a login module with its options."""
    return f'{module} required username="{user}" password="{password}"{more};'


def settings() -> dict[str, str]:
    """Return the settings of a broker: three listeners, logins, and an authorizer of Kafka 3."""
    users = "".join(f' user_{name}="{PASSWORD}"' for name in (ADMIN, ALICE, MALLORY))
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,BETWEEN:SASL_SSL",
        "inter.broker.listener.name": "BETWEEN",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.between.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.between.scram-sha-512.sasl.jaas.config": login(SCRAM_MODULE, BROKER, BROKERS_PASSWORD),
        "listener.name.users.plain.sasl.jaas.config": f"{PLAIN_MODULE} required{users};",
        "listener.name.users.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "listener.name.users.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        # A client without a login is the program that checks everything else.
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "delegation.token.secret.key": "the same at all brokers",
        "connection.failed.authentication.delay.ms": "100",
    }


# --- the steps -------------------------------------------------------------------------------------------------------


def write(name: str, *arguments: str) -> None:
    """Run a tool that needs no broker. Raises ClusterError."""
    command = tool_command(release(VERSION), name, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_S)
    if done.returncode or "Error while executing" in done.stdout:
        raise ClusterError(f"{name} {' '.join(arguments)}: {done.stdout}{done.stderr}")


def brokers_are_allowed(peers: Peers) -> str:
    """The brokers replicate with only ClusterAction; both kinds list the ACL that a tool wrote."""
    note = f"{checks.membership(peers.cluster)}; {checks.creation(peers.cluster)}"
    for broker_id in next(peers.pairs()):
        listed = peers.tool(broker_id, "acls", "--list", "--cluster")
        if f"principal=User:{BROKER}" not in listed or "operation=CLUSTER_ACTION" not in listed:
            raise ClusterError(f"{peers.what(broker_id)} does not list the brokers' ACL: {listed}")
    return note


def replicated(peers: Peers) -> str:
    """Records go in and out, and to all replicas."""
    return checks.produce_and_consume(peers.cluster)


def transactions(peers: Peers) -> str:
    """Markers are sent by brokers to each other."""
    return checks.transactions(peers.cluster)


def both_ways(step: Callable[[Peers, int, int], str]) -> Callable[[Peers], str]:
    """Return a step that runs from a broker of Kafka's to one of ours, and back."""

    @functools.wraps(step)
    def done(peers: Peers) -> str:
        notes = [
            f"{peers.what(broker_id)}: {step(peers, broker_id, other)}" for broker_id, other in peers.pairs()
        ]
        return "; ".join(notes)

    return done


@both_ways
def credentials(peers: Peers, first: int, other: int) -> str:
    """A user is created, changed and removed at one broker: the other one allows, and at last refuses, the login."""
    user = f"carol-{first}"
    entity = ("--entity-type", "users", "--entity-name", user)
    seen = []
    for password in ("first", "second"):
        scram = f"SCRAM-SHA-256=[iterations=8192,password={password}]"
        peers.tool(first, "configs", "--alter", *entity, "--add-config", scram)
        is_in = functools.partial(lets_in, peers, other, user, password)
        seen.append(f"{wait_until(is_in, f'{peers.what(other)} lets {user} in'):.1f} s")
    if lets_in(peers, other, user, "first"):
        raise ClusterError(f"{peers.what(other)} lets {user} in with an old password")
    described = [peers.tool(broker_id, "configs", "--describe", *entity) for broker_id in (first, other)]
    if described[0] != described[1] or "iterations=8192" not in described[0]:
        raise ClusterError(f"the brokers describe {user} differently: {described}")
    peers.tool(other, "configs", "--alter", *entity, "--delete-config", "SCRAM-SHA-256")
    wait_until(
        lambda: not lets_in(peers, first, user, "second"), f"{peers.what(first)} lets {user} in no more"
    )
    return f"the other knows after {', '.join(seen)}"


def lets_in(peers: Peers, broker_id: int, user: str, password: str) -> bool:
    """Return whether a broker accepts a login with a password."""
    errors: list[ClientError] = []
    client = AdminClient({**peers.client(broker_id, user, password), "error_cb": errors.append})
    try:
        client.list_topics(timeout=8)
    except KafkaException:
        client.poll(1)  # which calls `errors`
        if not any(error.code() == ClientError._AUTHENTICATION for error in errors):
            raise ClusterError(f"{peers.what(broker_id)} is not reached: {errors}") from None
        return False
    return True


@both_ways
def acls(peers: Peers, first: int, other: int) -> str:
    """Check that the other broker allows what kafka-acls allows at one, and that both list the same."""
    alice = peers.client(other, ALICE, PASSWORD, "PLAIN")
    rule = ("--allow-principal", f"User:{ALICE}", "--producer", "--topic", TOPIC)
    peers.tool(first, "acls", "--add", *rule)
    took = wait_until(lambda: may_write(alice), f"alice may write by {peers.what(other)}")
    # The tool ends all lines but the last with a space, in an arbitrary order.
    lists = [
        sorted(line.strip() for line in peers.tool(broker_id, "acls", "--list").splitlines())
        for broker_id in (first, other)
    ]
    if lists[0] != lists[1] or not any("operation=WRITE" in line for line in lists[0]):
        raise ClusterError(f"the brokers list different ACLs: {lists}")
    peers.tool(other, "acls", "--remove", "--force", *rule)
    wait_until(lambda: not may_write(alice), "alice may not write any more")
    return f"made here, obeyed at all after {took:.1f} s, removed at the other"


def may_write(client: Mapping[str, object]) -> bool:
    """Return whether all partitions accept records; some brokers may see a change before others."""
    errors: list[ClientError | None] = []
    producer = Producer({**client, "message.timeout.ms": 8000, "topic.metadata.refresh.interval.ms": 300})
    for partition in range(checks.PARTITIONS):
        producer.produce(
            TOPIC, b"0 x", partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
    producer.flush(20)
    return bool(errors) and not any(errors)


@both_ways
def quotas(peers: Peers, first: int, other: int) -> str:
    """A quota set at one broker is described by all, and throttles clients at each of them."""
    entity = ("--entity-type", "users", "--entity-name", ADMIN)
    peers.tool(first, "configs", "--alter", *entity, "--add-config", f"producer_byte_rate={RATE}")
    described = [peers.tool(broker_id, "configs", "--describe", *entity) for broker_id in (first, other)]
    if described[0] != described[1] or f"{RATE}.0" not in described[0]:
        raise ClusterError(f"the brokers describe quotas differently: {described}")
    throttled: set[int] = set()
    client = peers.client(other, ADMIN, PASSWORD, "PLAIN")
    producer = Producer({**client, "throttle_cb": lambda event: throttled.add(event.broker_id), "acks": 1})
    give_up = time.monotonic() + 60
    while throttled != set(peers.cluster.kinds):
        if time.monotonic() > give_up:
            raise ClusterError(f"only brokers {sorted(throttled)} throttle")
        for partition in range(checks.PARTITIONS):
            producer.produce(TOPIC, b"0 " + b"x" * 30_000, partition=partition)
        producer.flush(5)
    peers.tool(other, "configs", "--alter", *entity, "--delete-config", "producer_byte_rate")
    producer.purge()
    return f"set here, obeyed by {sorted(throttled)}"


@both_ways
def tokens(peers: Peers, broker_id: int, other: int) -> str:
    """A delegation token made at one broker lets its owner in at the other, which renews it; the first one ends it."""
    alice = peers.properties("alice", login(PLAIN_MODULE, ALICE, PASSWORD), "PLAIN")
    output = peers.tool(
        broker_id, "delegation-tokens", "--create", "--max-life-time-period", "-1", config=alice
    )
    match = re.search(r"^(\S{22})\s+(\S{88})\s", output, re.MULTILINE)
    if match is None:
        raise ClusterError(f"no token is shown: {output}")
    token_id, key = match[1], match[2]
    jaas = login(SCRAM_MODULE, token_id, key, ' tokenauth="true"')
    token = peers.properties(f"token-{broker_id}", jaas, "SCRAM-SHA-256")

    def works() -> bool:
        return not peers.try_tool(other, "topics", "--list", config=token).returncode

    wait_until(works, f"{peers.what(other)} takes the token")
    owner = ("--owner-principal", f"User:{ALICE}")
    described = [
        peers.tool(it, "delegation-tokens", "--describe", *owner, config=alice) for it in (broker_id, other)
    ]
    lines = [[line.split() for line in text.splitlines() if token_id in line] for text in described]
    if not lines[0] or lines[0] != lines[1]:
        raise ClusterError(f"the brokers describe the token differently: {described}")
    hmac = ("--hmac", key)
    peers.tool(other, "delegation-tokens", "--renew", "--renew-time-period", "3600000", *hmac, config=alice)
    peers.tool(broker_id, "delegation-tokens", "--expire", "--expiry-time-period", "-1", *hmac, config=alice)
    wait_until(lambda: not works(), f"{peers.what(other)} takes the token no more")
    return "made here, used and renewed at the other, ended here"


def cluster_action(peers: Peers) -> str:
    """Check that both kinds of broker alike refuse requests between brokers from a client that is no broker."""
    requests: dict[str, tuple[int, dict[str, object]]] = {
        "LeaderAndIsr": (5, {"ControllerId": 1, "ControllerEpoch": 99, "BrokerEpoch": -1}),
        "StopReplica": (3, {"ControllerId": 1, "ControllerEpoch": 99, "BrokerEpoch": -1}),
        "UpdateMetadata": (7, {"ControllerId": 1, "ControllerEpoch": 99, "BrokerEpoch": -1}),
        "ControlledShutdown": (3, {"BrokerId": 1, "BrokerEpoch": -1}),
        "AllocateProducerIds": (0, {"BrokerId": 1, "BrokerEpoch": -1}),
        "WriteTxnMarkers": (1, {"Markers": []}),
        "AlterPartition": (2, {"BrokerId": 1, "BrokerEpoch": -1}),
    }
    pair = next(peers.pairs())
    for api, (version, values) in requests.items():
        answers = []
        for broker_id in pair:
            with peers.side(broker_id).connect(user=MALLORY) as connection:
                answers.append(connection.ask(api, version, values))
        if answers[0] != answers[1]:
            raise ClusterError(f"{api} is refused differently: {answers}")
        code = answers[0].get("ErrorCode")
        if code not in (None, CLUSTER_AUTHORIZATION_FAILED):
            raise ClusterError(f"{api} is answered to somebody who is no broker: {answers}")
    return f"{len(requests)} APIs"


def leader_killed(peers: Peers) -> str:
    """No acknowledged record is lost when brokers are killed."""
    return checks.leader_killed(peers.cluster)


def identical_replicas(peers: Peers) -> str:
    """All replicas have the same bytes."""
    return checks.identical_replicas(peers.cluster)


STEPS: dict[str, Callable[[Peers], str]] = {
    step.__name__: step
    for step in (
        brokers_are_allowed, replicated, transactions, credentials, acls, quotas, tokens, cluster_action, leader_killed,
        identical_replicas,
    )
}  # fmt: skip
ALWAYS = "brokers_are_allowed"


def run(directory: Path, kinds: tuple[str, ...], chosen: list[str]) -> None:
    """Run steps in one cluster. Raises CertificateError, ClusterError, KafkaError."""
    peers = Peers(directory, kinds)
    with peers.cluster as cluster:
        for name in chosen:
            begun = time.monotonic()
            note = STEPS[name](peers)
            print(f"  PASS {name} ({time.monotonic() - begun:.0f} s): {note}", flush=True)
        complaints = cluster.complaints()
        if complaints:
            raise ClusterError(f"brokers have logged errors: {complaints}")


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster.peers", description=__doc__)
    parser.add_argument("--steps", default="", metavar="A,B", help=f"only these, of {', '.join(STEPS)}")
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    options = parser.parse_args(argv)
    names = chosen_names(parser, options.steps, STEPS)
    chosen = [name for name in STEPS if not names or name in (ALWAYS, *names)]
    return in_directory("peers-", options.dir, lambda directory: run(directory, (KAFKA, OURS, OURS), chosen))


if __name__ == "__main__":
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "No chroot path exists")  # the first broker makes it
    sys.exit(main(sys.argv[1:]))
