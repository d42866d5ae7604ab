"""python -m compat.cluster.quorum_peers: the checks of `peers` in a quorum of Kafka 4.

Brokers of Kafka's and ours log in at each other by SCRAM over TLS, and at the controllers by SCRAM or PLAIN, with TLS or
without, or by certificates alone; the first credentials and nothing else are in the bootstrap records of the controllers
(`kafka-storage format --add-scram`). Controllers log in at each other by PLAIN where brokers use SCRAM: no credential is
known to a controller before the first election.
The rule: the brokers are no super users; an ACL for ClusterAction is what lets them register, forward and replicate, and
one for Create what lets them make internal topics: these they ask of the controller as themselves.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from compat.cluster import peers, quorum
from compat.cluster.nodes import KAFKA, OURS, ClusterError, in_directory, wait_until
from compat.cluster.peers import (
    ADMIN,
    ALICE,
    BROKER,
    BROKERS_PASSWORD,
    CLUSTER_AUTHORIZATION_FAILED,
    MALLORY,
    PLAIN_MODULE,
    SCRAM_MODULE,
    Peers,
    login,
)
from compat.cluster.quorum_nodes import FIRST_BROKER, VERSION, QuorumCluster
from compat.kafka import free_port, release, tool_command
from compat.kit.certificates import Authority
from compat.kit.sides import PASSWORD
from compat.kit.wire import WireError
from compat.metadata.quorum import BARNABAS, environment

CONTROLLER = "controller"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SCRAM, PLAIN = "SCRAM-SHA-512", "PLAIN"


class Entrance(NamedTuple):
    """Security of the controllers' listener: its protocol, and the mechanism with which brokers log in there."""

    protocol: str
    mechanism: str = ""

    @property
    def of_controllers(self) -> str:
        """The mechanism of logins between controllers."""
        return PLAIN if self.mechanism == SCRAM else self.mechanism


ENTRANCES = {
    "scram-tls": Entrance("SASL_SSL", SCRAM),
    "plain-tls": Entrance("SASL_SSL", PLAIN),
    "plain": Entrance("SASL_PLAINTEXT", PLAIN),
    "certificates": Entrance("SSL"),
}
"""Ways to the controllers."""


class QuorumPeers(Peers):
    """Controllers of Kafka's, and brokers with a listener for users and another for brokers."""

    def __init__(
        self,
        directory: Path,
        kinds: tuple[str, ...],
        *,
        entrance: Entrance = ENTRANCES["scram-tls"],
        controllers: int = 1,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.entrance = entrance
        self.authority = Authority(directory / "certificates", "ca")
        self.certificates = {
            user: str(self.authority.signed(user).pem) for user in ("node", BROKER, CONTROLLER)
        }
        common = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificates["node"],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.pem),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,BETWEEN:SASL_SSL"
            f",CONTROLLER:{entrance.protocol},ADMIN:PLAINTEXT",
            "delegation.token.secret.key": "the same at all brokers",
            "authorizer.class.name": AUTHORIZER,
            **(settings or {}),
        }
        self.cluster: QuorumCluster = QuorumCluster(
            directory / "cluster",
            kinds,
            version=VERSION,
            controllers=controllers,
            settings={**peers.settings(), **common, **self._login(BROKER, entrance.mechanism)},
            controller_settings={
                **common,
                **self._login(CONTROLLER, entrance.of_controllers),
                "controller.listener.names": "CONTROLLER,ADMIN",
                "super.users": f"User:{ADMIN};User:ANONYMOUS;User:{CONTROLLER}",
            },
            has_admin=True,
            format_arguments=_users(),
            prepare=self._allow_brokers,
        )
        ids = range(FIRST_BROKER, FIRST_BROKER + len(kinds))
        self.users = {broker_id: free_port() for broker_id in ids}
        self.cluster.own = {broker_id: self._addresses(broker_id) for broker_id in ids}
        self.admin = self.properties("admin", login(PLAIN_MODULE, ADMIN, PASSWORD), "PLAIN")

    def _login(self, user: str, mechanism: str) -> dict[str, str]:
        """Return the login of a node at the controllers' listener, and which logins it takes there."""
        prefix = "listener.name.controller."
        if not mechanism:
            return {
                f"{prefix}ssl.keystore.location": self.certificates[user],
                f"{prefix}ssl.client.auth": "required",
                f"{prefix}ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            }
        users = {BROKER, CONTROLLER} if self.entrance.mechanism == PLAIN else {CONTROLLER}
        more = "".join(f' user_{name}="{BROKERS_PASSWORD}"' for name in sorted(users))
        return {
            "sasl.mechanism.controller.protocol": mechanism,
            f"{prefix}sasl.enabled.mechanisms": ",".join({self.entrance.mechanism: 0, mechanism: 0}),
            f"{prefix}plain.sasl.jaas.config": login(PLAIN_MODULE, user, BROKERS_PASSWORD, more),
            f"{prefix}scram-sha-512.sasl.jaas.config": login(SCRAM_MODULE, user, BROKERS_PASSWORD),
        }

    def command_settings(self, user: str, password: str = BROKERS_PASSWORD) -> list[str]:
        """Return the options with which `barnabas metadata` goes to the controllers' listener as a user."""
        protocol, mechanism = self.entrance
        settings = {"security.protocol": protocol, "ssl.ca.location": str(self.authority.pem)}
        if mechanism:
            settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        elif user:
            settings["ssl.certificate.location"] = self.certificates[user]
        return [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]

    @staticmethod
    def _allow_brokers(cluster: QuorumCluster) -> None:
        """Allow the brokers ClusterAction and Create, by kafka-acls at a controller."""
        command = tool_command(
            release(cluster.version), "acls", "--bootstrap-controller", cluster.quorum.admin_addresses, "--add",
            "--allow-principal", f"User:{BROKER}", "--operation", "ClusterAction", "--operation", "Create",
            "--cluster",
        )  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=peers.TOOL_S)
        if done.returncode or "CLUSTER_ACTION" not in done.stdout:
            raise ClusterError(f"the brokers are not allowed ClusterAction: {done.stdout}{done.stderr}")


def _users() -> list[str]:
    arguments = []
    for user in (BROKER, CONTROLLER):
        arguments += [
            "--add-scram",
            f"SCRAM-SHA-512=[name={user},iterations=4096,password={BROKERS_PASSWORD}]",
        ]
    return arguments


def controllers_killed(these: Peers) -> str:
    """The leading controller is killed twice under load."""
    return quorum.controllers_killed(these.cluster)


def refused_to_strangers(these: Peers) -> str:
    """Check that both kinds of broker alike refuse requests between brokers from a client that is no broker."""
    requests: dict[str, tuple[int, dict[str, Any]]] = {
        "WriteTxnMarkers": (1, {"Markers": []}),
        "AddPartitionsToTxn": (5, {"Transactions": []}),
        "InitializeShareGroupState": (0, {"GroupId": "g", "Topics": []}),
        "ReadShareGroupState": (0, {"GroupId": "g", "Topics": []}),
        "WriteShareGroupState": (0, {"GroupId": "g", "Topics": []}),
        "DeleteShareGroupState": (0, {"GroupId": "g", "Topics": []}),
        "ReadShareGroupStateSummary": (0, {"GroupId": "g", "Topics": []}),
        "UnregisterBroker": (0, {"BrokerId": FIRST_BROKER}),
        "DescribeQuorum": (2, {"Topics": [{"TopicName": "t", "Partitions": [{"PartitionIndex": 0}]}]}),
        "AllocateProducerIds": (0, {"BrokerId": 1, "BrokerEpoch": -1}),
        "AlterPartition": (3, {"BrokerId": 1, "BrokerEpoch": -1}),
        "Envelope": (0, {"RequestData": b"", "RequestPrincipal": b"", "ClientHostAddress": bytes(4)}),
    }
    for api, (version, values) in requests.items():
        answers = [_asked(these, broker_id, api, version, values) for broker_id in next(these.pairs())]
        if answers[0] != answers[1]:
            raise ClusterError(f"{api} is refused differently: {answers}")
        if not isinstance(answers[0], str) and answers[0].get("ErrorCode") not in (
            None,
            CLUSTER_AUTHORIZATION_FAILED,
        ):
            raise ClusterError(f"{api} is answered to a client that is no broker: {answers}")
    return f"{len(requests)} APIs"


def _asked(
    these: Peers, broker_id: int, api: str, version: int, values: dict[str, Any]
) -> dict[str, Any] | str:
    try:
        with these.side(broker_id).connect(user=MALLORY) as connection:
            answer = connection.ask(api, version, values)
    except WireError as error:
        return str(error)
    return {name: value for name, value in answer.items() if name != "ErrorMessage"}


def forwarded_as_the_user(these: Peers) -> str:
    """Topics that alice may create, by an ACL and by each broker; the controller sees her and not the broker."""
    allowed = ("--allow-principal", f"User:{ALICE}", "--operation", "Create", "--topic", "alices-")
    prefixed = ("--resource-pattern-type", "prefixed")
    alice = these.properties("alice", login(PLAIN_MODULE, ALICE, PASSWORD), "PLAIN")
    for broker_id, other in these.pairs():
        create = ("topics", "--create", "--topic", f"alices-{broker_id}", "--replication-factor", "2")
        refused = these.try_tool(broker_id, *create, config=alice)
        if "Authorization" not in refused.stdout + refused.stderr:
            raise ClusterError(f"alice is not refused: {refused.stdout}{refused.stderr}")
        these.tool(other, "acls", "--add", *allowed, *prefixed)
        wait_until(
            lambda broker_id=broker_id, create=create: (
                not these.try_tool(broker_id, *create, config=alice).returncode
            ),
            f"alice creates a topic by {these.what(broker_id)}",
        )
        these.tool(broker_id, "acls", "--remove", "--force", *allowed, *prefixed)
    return "refused, allowed, made"


def metadata_shown(these: Peers) -> str:
    """`barnabas metadata show` by the controllers' listener prints the same as without security; strangers are refused."""
    assert isinstance(these, QuorumPeers)
    controllers = these.cluster.quorum
    shown = _metadata("--bootstrap-controller", controllers.addresses, *these.command_settings(BROKER))
    plain = _metadata("--bootstrap-controller", controllers.admin_addresses)
    if shown.returncode or shown.stdout != plain.stdout:
        raise ClusterError(f"metadata is shown differently: {shown.stdout}{shown.stderr}, {plain.stdout}")
    stranger = these.command_settings("" if not these.entrance.mechanism else BROKER, "wrong")
    refused = _metadata("--bootstrap-controller", controllers.addresses, *stranger)
    if not refused.returncode or "Traceback" in refused.stderr or not refused.stderr.strip():
        raise ClusterError(f"a stranger is not refused: {refused.stdout}{refused.stderr}")
    return f"{len(shown.stdout.splitlines())} lines; a stranger: {refused.stderr.strip()}"


def _metadata(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `barnabas metadata show` for stable contents."""
    command = [
        *BARNABAS,
        "metadata",
        "show",
        "voters",
        "brokers",
        "topics",
        "acls",
        "features",
        "users",
        *arguments,
    ]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=peers.TOOL_S
    )


STEPS = {
    step.__name__: step
    for step in (
        peers.brokers_are_allowed, peers.replicated, peers.transactions, peers.credentials, peers.acls, peers.quotas,
        peers.tokens, refused_to_strangers, forwarded_as_the_user, metadata_shown, controllers_killed, peers.leader_killed,
        peers.identical_replicas,
    )
}  # fmt: skip


def run(directory: Path, options: argparse.Namespace) -> None:
    """Run the steps in one cluster. Raises CertificateError, ClusterError, KafkaError."""
    names = [name for name in options.checks.split(",") if name]
    these = QuorumPeers(
        directory, (KAFKA, OURS, OURS), entrance=ENTRANCES[options.entrance], controllers=options.controllers
    )
    failures = []
    with these.cluster as cluster:
        for name, step in STEPS.items():
            if names and name not in (peers.ALWAYS, *names):
                continue
            begun = time.monotonic()
            try:
                note, verdict = step(these), "PASS"
            except ClusterError as error:
                note, verdict = str(error), "FAIL"
            except Exception:
                note, verdict = traceback.format_exc(), "FAIL"
            failures += [name] if verdict == "FAIL" else []
            print(f"  {verdict} {name} ({time.monotonic() - begun:.0f} s): {note}", flush=True)
            if verdict == "FAIL" and not options.keep:
                break
        complaints = cluster.complaints()
    if failures:
        raise ClusterError(f"these fail: {', '.join(failures)}")
    if complaints:
        raise ClusterError(f"brokers have logged errors: {complaints}")


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster.quorum_peers", description=__doc__)
    parser.add_argument("--checks", default="", metavar="A,B", help=f"only these, of {', '.join(STEPS)}")
    parser.add_argument("--controllers", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--entrance", choices=ENTRANCES, default="scram-tls", help="security of the controllers' listener"
    )
    parser.add_argument("--keep", action="store_true", help="run the next step after one that fails")
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    options = parser.parse_args(argv)
    print(f"Kafka {VERSION}, {options.controllers} controllers, entrance {options.entrance}", flush=True)
    return in_directory("quorum-peers-", options.dir, lambda directory: run(directory, options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
