"""Networks as hosts of ACLs: as Kafka 4.4 says, host by host and client by client (`compat/security/networks.py`)."""

from pathlib import Path

import pytest

from barnabas.security.acls import NO_ACLS, Permission
from barnabas.security.authorizer import Operation, Requester
from barnabas.security.networks import check_host, is_within
from barnabas.security.standard_authorizer import StandardAuthorizer

from .test_acls import DENY, PREFIXED, TOPIC, acl

GOLDEN = Path(__file__).parents[2] / "golden" / "acl-networks.tsv"
HEAD, *ROWS = [line.split("\t") for line in GOLDEN.read_text().splitlines()]
CLIENTS = HEAD[1:]


def taken(host):
    try:
        check_host(host)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(("host", "marks"), ROWS, ids=[host for host, _ in ROWS])
def test_a_host_is_a_network_of_the_clients_that_kafka_says(host, marks):
    assert (
        "".join("+" if mark else "-" for mark in (taken(host), *(is_within(net, host) for net in CLIENTS)))
        == marks
    )


def test_hosts_that_are_no_networks_are_not_looked_at():
    for host in ("*", "10.0.0.1", "not a host", "10.0.0.0\\8"):
        check_host(host)
        assert not is_within("10.0.0.1", host)
    with pytest.raises(ValueError, match="empty"):
        check_host("")


@pytest.mark.parametrize(
    "host", ["::/٣٢", "٠.0.0.0/8", "10.0.0.0/" + "8" * 5_000, "2001:db8::/" + "0" * 5_000]
)
def test_numbers_of_other_scripts_and_of_any_length_are_refused(host):
    with pytest.raises(ValueError, match="Invalid CIDR notation") as refused:
        check_host(host)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("client", "is_inside"), [("fe80:0:0:0:0:0:0:1%eth0", True), ("a socket", False), ("", False)]
)
def test_the_zone_of_a_client_is_not_looked_at(client, is_inside):
    assert is_within(client, "fe80::/10") is is_inside


def allows(client, *acls, knows_networks=True, on_any=False):
    held = NO_ACLS.changed(acls)
    authorizer = StandardAuthorizer(lambda: held, knows_networks=knows_networks)
    requester = Requester("User:alice", client)
    if on_any:
        return authorizer.allows_on_any(requester, Operation.READ, TOPIC)
    return authorizer.allows(requester, Operation.READ, TOPIC, "t")


@pytest.mark.parametrize("on_any", [False, True])
@pytest.mark.parametrize("kind", [{}, {"pattern": PREFIXED}, {"name": "*"}])
@pytest.mark.parametrize(
    ("client", "inside", "outside"),
    [("10.0.0.1", "10.0.0.0/8", "11.0.0.0/8"), ("2001:db8:0:0:0:0:0:1", "2001:db8::/32", "2001:db9::/32")],
)
def test_a_network_allows_and_denies_those_who_are_in_it(client, inside, outside, kind, on_any):
    def mine(host, permission=Permission.ALLOW):
        return acl(**{"name": "t", **kind}, principal="User:alice", host=host, permission=permission)

    assert allows(client, mine(inside), on_any=on_any)
    assert not allows(client, mine(outside), on_any=on_any)
    assert not allows(client, mine("*"), mine(inside, DENY), on_any=on_any)
    assert allows(client, mine("*"), mine(outside, DENY), on_any=on_any)
    assert not allows(client, mine(inside), mine(client, DENY), on_any=on_any)
    assert allows(client, mine(client), mine(f"{client}/999", DENY), on_any=on_any), (
        "what is none denies nobody"
    )
    without = {"knows_networks": False, "on_any": on_any}
    assert not allows(client, mine(inside), **without), "releases before 4.4 compare texts"
    assert allows(client, mine("*"), mine(inside, DENY), **without)
