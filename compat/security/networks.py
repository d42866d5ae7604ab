"""Networks as hosts of ACLs, on Apache Kafka 4.4 and on Barnabas as 4.4: python -m compat.security.networks.

First Kafka's own class says of many hosts whether each is a network and which clients are in it (`--write` keeps that as
`tests/golden/acl-networks.tsv`, which `make test` reads); then both brokers are given ACLs for networks, asked for them,
and used by a client with an address in some of them. The exit code is 1 when an answer differs. Needs a JDK.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from barnabas.security.acls import host_of
from barnabas.security.networks import check_host, is_within
from compat.kafka import KafkaError, release
from compat.kafka.process import java_command
from compat.kit.compare import Step, run
from compat.kit.known import judge
from compat.kit.sides import StartError, both
from compat.kit.wire import Values

VERSION = "4.4"
GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "acl-networks.tsv"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
CLIENTS = [
    *("10.0.0.0", "10.0.0.1", "10.1.2.3", "10.255.255.255", "11.0.0.0", "9.255.255.255", "127.0.0.1", "128.0.0.0"),
    *("192.168.1.127", "192.168.1.128", "255.255.255.255", "::ffff:10.0.0.1", "::1", "::2", "::a00:1", "fe80::1"),
    *("2001:db8::", "2001:db8::1", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::", "2001:db7:ffff::"),
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
]  # fmt: skip
ADDRESSES = {
    32: ("10.0.0.0", "10.1.2.3", "192.168.1.128", "0.0.0.0", "255.255.255.255", "010.000.000.001"),
    128: ("2001:db8::", "2001:DB8::1", "::", "::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::10.0.0.0"),
}
LENGTHS = {32: (0, 1, 7, 8, 9, 24, 25, 31, 32, 33), 128: (0, 1, 31, 32, 33, 64, 96, 127, 128, 129)}
ODD = [
    *("1.2.3.4/", "1.2.3.4/-1", "1.2.3.4/+8", "1.2.3.4/032", "1.2.3.4/08", "1.2.3/8", "1.2.3.4.5/8", "256.0.0.0/8"),
    *("1.2.3.4/8/8", " 1.2.3.4/8", "1.2.3.4 /8", "1.2.3.4/ 8", "1.2.3.4/8 ", "1234.0.0.1/8", "1..2.3/8", "/8", "/"),
    *("a/8", "*/8", "host/8", "http://x/8", "1.2.3.4:80/8", "2001:db8::/", "2001:db8::/-1", "2001:db8::/+32"),
    *("2001:db8::/032", "2001:db8::/0x8", "2001:db8::/32/32", "2001:db8::1::/32", "g::/8", "1:2/8", "12345::/16"),
    *("[2001:db8::]/32", "[2001:db8::/32", "2001:db8::]/32", "::ffff:10.0.0.0/104", "::ffff:a00:0/104"),
    *("fe80::1%1/64", "fe80::1%no-such-interface/64", "1:2:3:4:5:6:7:8/64", "1:2:3:4:5:6:7:8:9/64", ":/8", "::/1e1"),
]  # fmt: skip
TOPIC, LITERAL, WRITE, DESCRIBE, DENY, ALLOW, ANY = 2, 3, 4, 8, 2, 3, 1


def hosts() -> list[str]:
    """Return the hosts that are tried."""
    pairs = [
        (address, length) for bits in (32, 128) for address, length in product(ADDRESSES[bits], LENGTHS[bits])
    ]
    return [f"{address}/{length}" for address, length in pairs] + ODD


def kafkas_marks() -> list[str]:
    """Return what Kafka's class says of each host. Raises KafkaError."""
    asked = "\n".join(["\t".join(map(host_of, CLIENTS)), *hosts()]) + "\n"
    command = java_command(release(VERSION), str(Path(__file__).with_name("Networks.java")))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise KafkaError(f"Networks.java with Kafka {VERSION}: {done.stderr[-2000:]}")
    return done.stdout.splitlines()


def our_marks(host: str) -> str:
    """Return what Barnabas says of a host, in the same way."""
    try:
        check_host(host)
        is_taken = True
    except ValueError:
        is_taken = False
    within = [is_within(host_of(client), host) for client in CLIENTS]
    return "".join("+" if mark else "-" for mark in (is_taken, *within))


# --- brokers ----------------------------------------------------------------------------------------------------

RULES: dict[str, list[tuple[int, str]]] = {
    "allowed by its network": [(ALLOW, "127.0.0.0/8")],
    "allowed by another network": [(ALLOW, "10.0.0.0/8")],
    "denied by its network": [(ALLOW, "*"), (DENY, "127.0.0.0/8")],
    "denied by its address as a network": [(ALLOW, "*"), (DENY, "127.0.0.1/32")],
    "denied by another network": [(ALLOW, "*"), (DENY, "128.0.0.0/8")],
    "denied by any address of IPv4": [(ALLOW, "*"), (DENY, "0.0.0.0/0")],
    "denied by any address of IPv6": [(ALLOW, "*"), (DENY, "::/0")],
    "denied by a network with bits of a host": [(ALLOW, "*"), (DENY, "127.1.2.3/8")],
    "allowed by its network, denied by its address": [(ALLOW, "127.0.0.0/8"), (DENY, "127.0.0.1")],
    "allowed by its address, denied by what is none": [(ALLOW, "127.0.0.1"), (DENY, "127.0.0.0/33")],
    "allowed by no host": [(ALLOW, "")],
}
"""ACLs of a topic each, by what they mean for a client at 127.0.0.1."""


def _creation(name: str, permission: int, host: str) -> Values:
    return {
        "ResourceType": TOPIC, "ResourceName": name, "ResourcePatternType": LITERAL, "Principal": "User:ANONYMOUS",
        "Host": host, "Operation": DESCRIBE if permission == DENY else WRITE, "PermissionType": permission,
    }  # fmt: skip


def steps() -> Iterator[Step]:
    """Yield all that is asked: ACLs of each host, those there are by host, and topics with ACLs for networks."""
    asked = [
        _creation(f"host-{number}", ALLOW, host) for number, host in enumerate([*hosts(), "", "*", "1.2.3.4"])
    ]
    yield Step("create for each host", "CreateAcls", 3, {"Creations": asked})
    anything = {
        "ResourceTypeFilter": ANY, "ResourceNameFilter": None, "PatternTypeFilter": ANY, "PrincipalFilter": None,
        "Operation": ANY, "PermissionType": ANY,
    }  # fmt: skip
    for host in (
        None,
        "10.0.0.0/8",
        "10.1.2.3/8",
        "10.0.0.1",
        "10.0.0.0/33",
        "2001:db8::/32",
        "2001:DB8::1/32",
        "",
    ):
        request = {**anything, "HostFilter": host}
        yield Step(f"described by {host!r}", "DescribeAcls", 3, request)
    yield Step(
        "deleted by 10.0.0.0/8", "DeleteAcls", 3, {"Filters": [{**anything, "HostFilter": "10.0.0.0/8"}]}
    )
    yield Step("described at last", "DescribeAcls", 3, {**anything, "HostFilter": None})
    names = {label: label.replace(" ", "-").replace(",", "") for label in RULES}
    topics = [{"Name": name, "NumPartitions": 1, "ReplicationFactor": 1} for name in names.values()]
    yield Step("create topics", "CreateTopics", 4, {"Topics": topics, "timeoutMs": 9000})
    for label, rules in RULES.items():
        asked = [_creation(names[label], *rule) for rule in rules]
        yield Step(f"{label}: create", "CreateAcls", 3, {"Creations": asked})
        described = {"Topics": [{"Name": names[label]}], "ResponsePartitionLimit": 9}
        yield Step(f"{label}: described", "DescribeTopicPartitions", 0, described, settles=True)


def main() -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.security.networks", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep what Kafka's class says for the tests")
    options = parser.parse_args()
    tried = hosts()
    rows = list(zip(tried, kafkas_marks(), strict=True))
    if options.write:
        lines = ["\t".join(["", *map(host_of, CLIENTS)]), *(f"{host}\t{marks}" for host, marks in rows)]
        GOLDEN.write_text("\n".join(lines) + "\n")
    differing = [(host, marks, our_marks(host)) for host, marks in rows if marks != our_marks(host)]
    for host, theirs, ours in differing:
        print(f"differs: {host!r}: Kafka {theirs}, Barnabas {ours}")
    with both(SETTINGS, VERSION) as (kafka, barnabas):
        differences = run(steps(), kafka, barnabas, ())
    bad = judge(differences, ()) + len(differing)
    print(f"{len(tried)} hosts, {len(list(steps()))} requests, {bad} differences")
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KafkaError, StartError) as error:
        sys.exit(f"error: {error}")
