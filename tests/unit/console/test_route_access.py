"""Routes over access, settings and topics, of a cluster that answers as a test says."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.admin import Acl, OffsetAt, PartitionInfo, Principal, Quota, Token, TopicInfo
from tests.support.console_cluster import REFUSED, REFUSED_TEXT, Cluster, refused, shown

ACL = Acl("topic", "orders", "literal", "User:ann", "*", "read", "allow")


async def test_acls_are_changed_only_with_their_principal_named() -> None:
    other = Acl("group", "a", "prefixed", "User:bob", "h", "all", "deny")
    cluster = Cluster(acls=[ACL, other], create_acls={ACL: None}, delete_acls={ACL: None})
    answer = await shown(cluster, "/api/acls", sort="resource")
    assert [row["resource_name"] for row in answer["rows"]] == ["a", "orders"]
    assert answer["words"]["permission"] == ("deny", "allow")
    assert "any" not in answer["words"]["operation"] + answer["words"]["resource_type"]
    assert answer["words"]["pattern_type"] == ("literal", "prefixed")
    assert (await shown(cluster, "/api/acls", filter="BOB"))["total"] == 1
    body = ACL._asdict()
    assert await cluster.ask("POST", "/api/acls", body) == (204, None)
    assert cluster.asked[-1] == ("create_acls", [ACL])
    assert (await cluster.ask("DELETE", "/api/acls", body))[0] == 409
    assert await cluster.ask("DELETE", "/api/acls", {**body, "confirm": "User:ann"}) == (204, None)
    assert cluster.asked[-1] == ("delete_acls", ACL)
    cluster.answers["delete_acls"] = {}
    assert await refused(cluster, "DELETE", "/api/acls", {**body, "confirm": "User:ann"}) == (
        404,
        "there is no such ACL",
    )
    for name, word in (
        ("operation", "any"),
        ("permission", "any"),
        ("pattern_type", "match"),
        ("resource_type", "any"),
    ):
        status, text = await refused(cluster, "POST", "/api/acls", {**body, name: word})
        assert (status, text.startswith(f"{name}: one of ")) == (400, True)


async def test_users_quotas_and_tokens_are_shown_without_secrets() -> None:
    ann, nobody = Principal("User", "ann"), Principal("", "")
    cluster = Cluster(
        users={"ann": {"SCRAM-SHA-512": 8192}, "bob": REFUSED},
        quotas=[Quota((("user", None),), {"producer_byte_rate": 1.0})],
        tokens=[Token("t", ann, nobody, (ann,), 1, 2, 3, b"secret")],
    )
    answer = await shown(cluster, "/api/users")
    assert answer["users"] == [
        {"name": "ann", "mechanisms": {"SCRAM-SHA-512": 8192}, "error": None},
        {"name": "bob", "mechanisms": {}, "error": REFUSED_TEXT},
    ]
    assert (await shown(cluster, "/api/quotas"))["quotas"] == [
        {"entity": {"user": None}, "values": {"producer_byte_rate": 1.0}}
    ]
    (token,) = (await shown(cluster, "/api/tokens"))["tokens"]
    assert "secret" not in str(token)
    assert (token["owner"], token["renewers"], token["max_at_ms"]) == ("User:ann", ["User:ann"], 3)


TOPIC = TopicInfo("t", "", False, tuple(PartitionInfo(number, 1, 0, (1,), (1,), ()) for number in range(4)))


@pytest.mark.parametrize("offset", [-1, 21, True, "5", 1.5])
async def test_a_cut_is_an_offset_up_to_the_end(offset: Any) -> None:
    cluster = Cluster(topics={"t": TOPIC}, offsets=lambda times: {at: OffsetAt(20, -1, 0) for at in times})
    status, text = await refused(
        cluster, "POST", "/api/topics/t/trim", {"before": {"0": offset}, "check": True}
    )
    assert (status, text) == (400, "before: partition 0 ends at 20; give an offset up to that")
    cluster.answers["topics"] = {"t": REFUSED}
    assert (await cluster.ask("POST", "/api/topics/t/trim", {}))[0] == 403
