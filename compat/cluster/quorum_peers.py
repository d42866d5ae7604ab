"""python -m compat.cluster.quorum_peers: the checks of `peers` in a quorum of Kafka 4.

Brokers of Kafka's and ours log in at each other by SCRAM, and at the controllers by SCRAM or PLAIN, both over TLS; the
first credentials and nothing else are in the bootstrap records of the controllers (`kafka-storage format --add-scram`).
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
from typing import Any

from compat.cluster import peers
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

CONTROLLER = "controller"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MECHANISMS = ("SCRAM-SHA-512", "PLAIN")
"""Mechanisms with which brokers log in at the controllers."""


class QuorumPeers(Peers):
    """Controllers of Kafka's, and brokers with a listener for users and one for each other."""

    def __init__(
        self,
        directory: Path,
        kinds: tuple[str, ...],
        *,
        mechanism: str = MECHANISMS[0],
        controllers: int = 1,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        authority = Authority(directory / "certificates", "ca")
        tls = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.signed("node").pem),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.pem),
        }
        common = {**tls, **_common(mechanism), **(settings or {})}
        self.cluster: QuorumCluster = QuorumCluster(
            directory / "cluster",
            kinds,
            version=VERSION,
            controllers=controllers,
            settings={
                **common,
                **peers.settings(),
                **_of_brokers(mechanism),
                "authorizer.class.name": AUTHORIZER,
            },
            controller_settings={**common, **_of_controllers(mechanism)},
            has_admin=True,
            format_arguments=_users(),
            prepare=self._allow_brokers,
        )
        ids = range(FIRST_BROKER, FIRST_BROKER + len(kinds))
        self.users = {broker_id: free_port() for broker_id in ids}
        self.cluster.own = {broker_id: self._addresses(broker_id) for broker_id in ids}
        self.admin = self.properties("admin", login(PLAIN_MODULE, ADMIN, PASSWORD), "PLAIN")

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


def _login(mechanism: str, user: str) -> dict[str, str]:
    """Return the login of a node at the controllers' listener, and the users that may log in there."""
    more = "".join(f' user_{name}="{BROKERS_PASSWORD}"' for name in (BROKER, CONTROLLER))
    module, more = (PLAIN_MODULE, more) if mechanism == "PLAIN" else (SCRAM_MODULE, "")
    jaas = login(module, user, BROKERS_PASSWORD, more)
    return {f"listener.name.controller.{mechanism.lower()}.sasl.jaas.config": jaas}


def _common(mechanism: str) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,BETWEEN:SASL_SSL"
        ",CONTROLLER:SASL_SSL,ADMIN:PLAINTEXT",
        "sasl.mechanism.controller.protocol": mechanism,
        "listener.name.controller.sasl.enabled.mechanisms": mechanism,
        "delegation.token.secret.key": "the same at all brokers",
    }


def _of_controllers(mechanism: str) -> dict[str, str]:
    return {
        **_login(mechanism, CONTROLLER),
        "controller.listener.names": "CONTROLLER,ADMIN",
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN};User:ANONYMOUS;User:{CONTROLLER}",
    }


def _of_brokers(mechanism: str) -> dict[str, str]:
    return {**_login(mechanism, BROKER), **_common(mechanism)}


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


STEPS = {
    step.__name__: step
    for step in (
        peers.brokers_are_allowed, peers.replicated, peers.transactions, peers.credentials, peers.acls, peers.quotas,
        peers.tokens, refused_to_strangers, forwarded_as_the_user, peers.leader_killed, peers.identical_replicas,
    )
}  # fmt: skip


def run(directory: Path, options: argparse.Namespace) -> None:
    """Run the steps in one cluster. Raises CertificateError, ClusterError, KafkaError."""
    names = [name for name in options.checks.split(",") if name]
    these = QuorumPeers(
        directory, (KAFKA, OURS, OURS), mechanism=options.mechanism, controllers=options.controllers
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
        "--mechanism", choices=MECHANISMS, default=MECHANISMS[0], help="login at the controllers"
    )
    parser.add_argument("--keep", action="store_true", help="run the next step after one that fails")
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    options = parser.parse_args(argv)
    print(f"Kafka {VERSION}, {options.controllers} controllers, logins by {options.mechanism}", flush=True)
    return in_directory("quorum-peers-", options.dir, lambda directory: run(directory, options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
