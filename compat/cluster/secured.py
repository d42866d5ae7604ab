"""python -m compat.cluster.secured: three of ours and a ZooKeeper that wants TLS with certificates, a digest and ACLs.

The rule: forbidden actions are tried, too, and must be refused with a line that has the reason.
"""

from __future__ import annotations

import argparse
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.security import ACL

from compat.cluster import checks
from compat.cluster.nodes import OURS, VERSION, ZOOKEEPER_SHELL, Cluster, ClusterError, OurNode, in_directory
from compat.kafka import free_port, release, tool_command
from compat.kit.certificates import Authority
from compat.matrix.brokers import BrokerError

USER, PASSWORD = "kafka", "a secret"
KEY_PASSWORD = "changeit"
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Znodes that only the brokers may read, as in Apache Kafka; others are world-readable, and /consumers is writable."""
TOOL_S = 60


class Certificates:
    """A certificate authority, a server's certificate for 127.0.0.1, a client's with an encrypted key, and a stranger's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority = Authority(directory, "ca")
        self.authority = authority.pem
        self.server = authority.signed("server").pem
        self.client = authority.signed("client", password=KEY_PASSWORD).pem
        self.tool = authority.signed(
            "tool"
        ).pem  # ZooKeeper's client in a JDK 17 reads no encrypted key of today
        self.stranger = Authority(directory, "other-ca").signed("stranger").pem

    def in_pkcs12(self) -> dict[str, str]:
        """Return the broker settings for the same certificates in PKCS12, created by openssl and keytool."""
        subprocess.run(
            [
                "openssl", "pkcs12", "-export", "-in", "client.crt", "-inkey", "client.raw", "-out", "client.p12",
                "-passout", f"pass:{KEY_PASSWORD}",
            ],
            cwd=self.directory, check=True, capture_output=True,
        )  # fmt: skip
        subprocess.run(
            [
                "keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", "-keystore", "trust.jks",
                "-storepass", KEY_PASSWORD,
            ],
            cwd=self.directory, check=True, capture_output=True,
        )  # fmt: skip
        return {
            "zookeeper.ssl.keystore.location": str(self.directory / "client.p12"),
            "zookeeper.ssl.keystore.type": "PKCS12",
            "zookeeper.ssl.truststore.location": str(self.directory / "trust.jks"),
            "zookeeper.ssl.truststore.type": "JKS",  # the name that keytool's files of PKCS12 have, too
            "zookeeper.ssl.truststore.password": KEY_PASSWORD,
        }

    def of_zookeeper(self) -> dict[str, str]:
        """ZooKeeper's settings: every client needs a certificate."""
        return {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(self.server),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(self.authority),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
        }

    def of_broker(self) -> dict[str, str]:
        """A broker's settings, by Kafka's names."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keystore.location": str(self.client),
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.keystore.password": KEY_PASSWORD,
            "zookeeper.ssl.truststore.location": str(self.authority),
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.digest.credentials": f"{USER}:{PASSWORD}",
            "zookeeper.set.acl": "true",
        }

    def of_kazoo(self) -> dict[str, Any]:
        """Return kazoo's options for a connection."""
        return {
            "use_ssl": True,
            "certfile": str(self.client),
            "keyfile": str(self.client),
            "keyfile_password": KEY_PASSWORD,
            "ca": str(self.authority),
        }


def acls(cluster: Cluster, certificates: Certificates) -> str:
    """Every znode has the ACLs that Apache Kafka would give it."""
    client = KazooClient(
        cluster.connect, auth_data=[("digest", f"{USER}:{PASSWORD}")], **certificates.of_kazoo()
    )
    client.start(30)
    seen = 0

    def look(path: str) -> None:
        nonlocal seen
        acls, _ = client.get_acls(path or "/")
        own = [
            acl
            for acl in acls
            if acl.id.scheme == "digest" and acl.id.id.startswith(f"{USER}:") and acl.perms == 31
        ]
        world = [acl.perms for acl in acls if acl.id == ACL(1, _anyone()).id]
        if path == "/consumers" or path.startswith("/consumers/"):
            is_right = world == [31]
        elif path.startswith(SENSITIVE):
            is_right = len(own) == 1 and not world
        else:
            is_right = len(own) == 1 and world == [1]
        if not is_right:
            raise ClusterError(f"{path or '/'} has the ACLs {acls}")
        seen += 1
        for name in client.get_children(path or "/"):
            look(f"{path}/{name}")

    try:
        look("")
    finally:
        client.stop()
        client.close()
    return f"{seen} znodes"


def _anyone() -> Any:
    from kazoo.security import ANYONE_ID_UNSAFE

    return ANYONE_ID_UNSAFE


def shell(cluster: Cluster, certificates: Certificates, *lines: str) -> str:
    """Run Kafka's own zookeeper-shell over TLS; returns its output."""
    settings = cluster.directory / "shell.properties"
    properties = {**certificates.of_broker(), "zookeeper.ssl.keystore.location": str(certificates.tool)}
    del properties["zookeeper.ssl.keystore.password"]
    settings.write_text(
        "".join(
            f"{name}={value}\n"
            for name, value in properties.items()
            if name.startswith(("zookeeper.ssl.", "zookeeper.clientCnxnSocket"))
        )
    )
    command = tool_command(
        release(VERSION), ZOOKEEPER_SHELL, "-server", cluster.connect, "-zk-tls-config-file", str(settings)
    )
    done = subprocess.run(
        command,
        input="\n".join((*lines, "quit", "")),
        capture_output=True,
        text=True,
        check=False,
        timeout=TOOL_S,
    )
    return done.stdout + done.stderr


def strangers(cluster: Cluster, certificates: Certificates) -> str:
    """Without the digest Kafka's zookeeper-shell can read public znodes; it can write only with the digest."""
    topic = f"/brokers/topics/{checks.TOPIC}"
    without = shell(
        cluster,
        certificates,
        f"get {topic}",
        f"set {topic} spoiled",
        "get /config/brokers",
        "create /consumers/old x",
    )
    if "spoiled" in str(cluster.read(topic)) or '"partitions"' not in without:
        raise ClusterError(f"without a digest: {without[-1500:]}")
    if (
        len(re.findall("NoAuth|Insufficient permission", without)) != 2
        or "Created /consumers/old" not in without
    ):
        raise ClusterError(f"without a digest: {without[-1500:]}")
    allowed = shell(
        cluster,
        certificates,
        f"addauth digest {USER}:{PASSWORD.replace(' ', chr(92) + ' ')}",
        "get /cluster/id",
    )
    if '"id"' not in allowed:
        raise ClusterError(f"with the digest: {allowed[-1500:]}")
    return "may read, may not write; /consumers is open"


def refusals(cluster: Cluster, certificates: Certificates) -> str:
    """A broker without TLS, of another authority, or with another digest does not start, and reports the reason."""
    usual = {**cluster.settings, **certificates.of_broker()}
    wrong: dict[str, tuple[dict[str, str], str]] = {
        "no TLS": ({"zookeeper.ssl.client.enable": "false"}, "could not be reached"),
        "a stranger's certificate": (
            {
                "zookeeper.ssl.keystore.location": str(certificates.stranger),
                "zookeeper.ssl.keystore.password": "",
            },
            "could not be reached",
        ),
        "another authority": (
            {"zookeeper.ssl.truststore.location": str(certificates.directory / "other-ca.pem")},
            "certificate verify failed",
        ),
        "a wrong key password": (
            {"zookeeper.ssl.keystore.password": "wrong"},
            "TLS to ZooKeeper cannot be set up",
        ),
        "another identity": (
            {
                # A certificate is an identity too, and the znodes are kept for all that their creator has.
                "zookeeper.ssl.keystore.location": str(certificates.tool),
                "zookeeper.ssl.keystore.password": "",
                "zookeeper.digest.credentials": "somebody:else",
            },
            "zookeeper",
        ),
    }
    notes = []
    for what, (changes, reason) in wrong.items():
        settings = {name: value for name, value in {**usual, **changes, "broker.id": "9"}.items() if value}
        settings["zookeeper.connection.timeout.ms"] = "4000"
        node = OurNode(9, free_port(), cluster.directory / f"refused-{len(notes)}", settings, cluster.connect)
        try:
            node.start()
        except BrokerError as error:
            if reason.lower() not in str(error).lower() or "Traceback" in str(error):
                raise ClusterError(f"{what}: {error}") from error
            notes.append(what)
        else:
            node.kill()
            raise ClusterError(f"{what}: the broker starts")
    return ", ".join(notes)


def run(directory: Path) -> None:
    """Run all checks. Raises ClusterError, KafkaError."""
    certificates = Certificates(directory / "certificates")
    steps: Mapping[str, Callable[[Cluster], str]] = {
        "membership": checks.membership,
        "creation": checks.creation,
        "produce_and_consume": checks.produce_and_consume,
        "acls": lambda cluster: acls(cluster, certificates),
        "strangers": lambda cluster: strangers(cluster, certificates),
        "refusals": lambda cluster: refusals(cluster, certificates),
        "leader_killed": checks.leader_killed,
        "identical_replicas": checks.identical_replicas,
    }
    with Cluster(
        directory / "cluster", (OURS,) * 3, certificates.of_broker(), own={3: certificates.in_pkcs12()},
        zookeeper_tls=certificates.of_zookeeper(), kazoo=certificates.of_kazoo(),
    ) as cluster:  # fmt: skip
        for name, step in steps.items():
            print(f"  PASS {name}: {step(cluster)}", flush=True)
        complaints = cluster.complaints()
        if complaints:
            raise ClusterError(f"brokers have logged errors: {complaints}")


def main(argv: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster.secured", description=__doc__)
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    options = parser.parse_args(argv)
    return in_directory("secured-", options.dir, run)


if __name__ == "__main__":
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "No chroot path exists")  # the first broker makes it
    sys.exit(main(sys.argv[1:]))
