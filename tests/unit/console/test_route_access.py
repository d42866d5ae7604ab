"""Routes over access, settings and topics, of a cluster that answers as a test says."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.admin import (
    Acl,
    ConfigChange,
    ConfigEntry,
    NewTopic,
    OffsetAt,
    PartitionInfo,
    Principal,
    Quota,
    Resource,
    Token,
    TopicInfo,
)
from tests.support.console_cluster import AWAY, REFUSED, REFUSED_TEXT, Cluster, refused, shown

ACL = Acl("topic", "orders", "literal", "User:ann", "*", "read", "allow")


async def test_acls_are_listed_made_and_deleted_by_who_has_named_the_principal() -> None:
    other = Acl("group", "a", "prefixed", "User:bob", "h", "all", "deny")
    cluster = Cluster(acls=[ACL, other], create_acls={ACL: None}, delete_acls={ACL: None})
    found = await shown(cluster, "/api/acls", sort="resource")
    assert [row["resource_name"] for row in found["rows"]] == ["a", "orders"]
    assert found["words"]["permission"] == ("deny", "allow")
    assert "any" not in found["words"]["operation"] + found["words"]["resource_type"]
    assert found["words"]["pattern_type"] == ("literal", "prefixed")
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
    found = await shown(cluster, "/api/users")
    assert found["users"] == [
        {"name": "ann", "mechanisms": {"SCRAM-SHA-512": 8192}, "error": None},
        {"name": "bob", "mechanisms": {}, "error": REFUSED_TEXT},
    ]
    assert (await shown(cluster, "/api/quotas"))["quotas"] == [
        {"entity": {"user": None}, "values": {"producer_byte_rate": 1.0}}
    ]
    (token,) = (await shown(cluster, "/api/tokens"))["tokens"]
    assert "secret" not in str(token)
    assert (token["owner"], token["renewers"], token["max_at_ms"]) == ("User:ann", ["User:ann"], 3)


async def test_passwords_and_quotas_are_changed_as_the_body_says() -> None:
    cluster = Cluster(set_password=None, delete_password=None, alter_quotas=None)
    assert await cluster.ask("PUT", "/api/users/ann", {"password": "x"}) == (204, None)
    assert await cluster.ask("PUT", "/api/users/ann", {"password": "x", "mechanism": "SCRAM-SHA-256"}) == (
        204,
        None,
    )
    assert (await cluster.ask("DELETE", "/api/users/ann", {}))[0] == 409
    assert await cluster.ask("DELETE", "/api/users/ann", {"confirm": "ann"}) == (204, None)
    change = {"entity": {"user": "ann", "client-id": None}, "values": {"a": 1, "b": 2.5, "c": None}}
    assert await cluster.ask("POST", "/api/quotas", change) == (204, None)
    assert cluster.asked == [
        ("set_password", "ann", "x", {"mechanism": "SCRAM-SHA-512"}),
        ("set_password", "ann", "x", {"mechanism": "SCRAM-SHA-256"}),
        ("delete_password", "ann", "SCRAM-SHA-512"),
        ("alter_quotas", {"user": "ann", "client-id": None}, {"a": 1.0, "b": 2.5, "c": None}),
    ]
    for path, body, text in (
        ("/api/users/ann", {"password": ""}, "password: it is empty"),
        (
            "/api/users/ann",
            {"password": "x", "mechanism": "PLAIN"},
            "mechanism: one of SCRAM-SHA-256, SCRAM-SHA-512 expected",
        ),
        ("/api/quotas", {**change, "entity": {}}, "entity: user, client-id or ip"),
        ("/api/quotas", {**change, "entity": {"user": 1}}, "entity: user, client-id or ip"),
        ("/api/quotas", {**change, "values": {"a": True}}, "values: a is a number, or null to remove it"),
        ("/api/quotas", {**change, "values": {"a": "1"}}, "values: a is a number, or null to remove it"),
    ):
        status, said = await refused(cluster, "PUT" if "users" in path else "POST", path, body)
        assert (status, said.startswith(text)) == (400, True), said


# --- the cluster and its settings ----------------------------------------------------------------------------------


async def test_settings_are_shown_in_order_and_changed_as_the_body_says() -> None:
    entries = [
        ConfigEntry("b", "1", "topic", False, True, "doc", (("b", "1", "topic"),)),
        ConfigEntry("a", None, "default", True, False, "", ()),
    ]
    resource = Resource("broker", "7")
    cluster = Cluster(describe_configs={resource: entries}, alter_configs={resource: None})
    found = (await shown(cluster, "/api/brokers/7/settings"))["settings"]
    assert [one["name"] for one in found] == ["a", "b"]
    assert found[1] == {
        "name": "b", "value": "1", "source": "topic", "sensitive": False, "read_only": True, "documentation": "doc",
        "synonyms": [{"name": "b", "value": "1", "source": "topic"}],
    }  # fmt: skip
    body = {"set": {"x": "1"}, "remove": ["y"]}
    assert await cluster.ask("PATCH", "/api/brokers/7/settings", body) == (204, None)
    assert await cluster.ask("PATCH", "/api/brokers/7/settings", {**body, "check": True}) == (204, None)
    changes = {resource: [ConfigChange("x", 0, "1"), ConfigChange("y", 1, None)]}
    assert cluster.asked[1:] == [("alter_configs", changes, {"only_check": one}) for one in (False, True)]
    for wrong in ({}, {"set": {"x": 1}}, {"remove": [1]}):
        assert (await cluster.ask("PATCH", "/api/brokers/7/settings", wrong))[0] == 400
    assert await refused(cluster, "GET", "/api/brokers/x/settings") == (400, "a broker is a number")
    cluster.answers |= {"describe_configs": {resource: REFUSED}, "alter_configs": {resource: REFUSED}}
    assert (await cluster.ask("GET", "/api/brokers/7/settings"))[0] == 403
    assert (await cluster.ask("PATCH", "/api/brokers/7/settings", body))[0] == 403


# --- topics --------------------------------------------------------------------------------------------------------

TOPIC = TopicInfo("t", "", False, tuple(PartitionInfo(number, 1, 0, (1,), (1,), ()) for number in range(4)))


async def test_a_topic_is_made_enlarged_and_deleted_and_the_index_read_again() -> None:
    cluster = Cluster(create_topics={"t": None}, create_partitions={"t": None}, delete_topics={"t": None})
    full = {"name": "t", "partitions": 3, "replication": 2, "settings": {"x": "1"}}
    assert await cluster.ask("POST", "/api/topics", {"name": "t"}) == (200, {"name": "t"})
    assert await cluster.ask("POST", "/api/topics", {**full, "check": True}) == (200, {"name": "t"})
    assert cluster.forgotten == 1
    await cluster.ask("POST", "/api/topics/t/partitions", {"count": 5, "check": True})
    assert cluster.forgotten == 1
    assert await cluster.ask("POST", "/api/topics/t/partitions", {"count": 5}) == (
        200,
        {"name": "t", "partitions": 5},
    )
    assert cluster.forgotten == 2
    assert (await cluster.ask("DELETE", "/api/topics/t", {}))[0] == 409
    assert await cluster.ask("DELETE", "/api/topics/t", {"confirm": "t"}) == (204, None)
    assert cluster.forgotten == 3
    assert cluster.asked == [
        ("create_topics", [NewTopic("t", -1, -1, {})], {"only_check": False}),
        ("create_topics", [NewTopic("t", 3, 2, {"x": "1"})], {"only_check": True}),
        ("create_partitions", {"t": 5}, {"only_check": True}),
        ("create_partitions", {"t": 5}, {"only_check": False}),
        ("delete_topics", ["t"]),
    ]
    assert (await cluster.ask("POST", "/api/topics", {"name": "t", "settings": {"x": 1}}))[0] == 400


@pytest.mark.parametrize(
    ("before", "cuts"),
    [
        (None, {0: 20, 2: 22}),
        ({"0": 15}, {0: 15}),
        ({"0": 20, "2": 10}, {0: 20}),
        ({"2": 22, "3": 9}, {2: 22}),
    ],
)
async def test_records_are_told_before_they_are_deleted(
    before: dict[str, int] | None, cuts: dict[int, int]
) -> None:
    """Partition 1 is empty, and nobody tells of partition 3."""

    def offsets(times: dict[tuple[str, int], int]) -> dict[tuple[str, int], Any]:
        ends = {0: (10, 20), 1: (5, 5), 2: (12, 22)}
        return {
            one: OffsetAt(ends[one[1]][time == -1], -1, 0) if one[1] in ends else AWAY
            for one, time in times.items()
        }

    cluster = Cluster(topics={"t": TOPIC}, offsets=offsets)
    cluster.answers["delete_records"] = lambda wanted: {
        one: REFUSED if one[1] == 2 else cut for one, cut in wanted.items()
    }
    body: dict[str, Any] = {} if before is None else {"before": before}
    firsts = {0: 10, 2: 12}
    rows = [
        {"partition": one, "first": firsts[one], "before": cut, "records": cut - firsts[one]}
        for one, cut in cuts.items()
    ]
    status, found = await cluster.ask("POST", "/api/topics/t/trim", {**body, "check": True})
    assert (status, found) == (
        200,
        {"rows": rows, "records": sum(row["records"] for row in rows), "done": False},
    )
    assert (await cluster.ask("POST", "/api/topics/t/trim", body))[0] == 409
    assert not [call for call in cluster.asked if call[0] == "delete_records"]
    _, found = await cluster.ask("POST", "/api/topics/t/trim", {**body, "confirm": "t"})
    assert [row["error"] for row in found["rows"]] == [REFUSED_TEXT if one == 2 else None for one in cuts]
    assert (found["records"], found["done"]) == (sum(cut - 10 for one, cut in cuts.items() if one == 0), True)
    assert cluster.asked[-1] == ("delete_records", {("t", one): cut for one, cut in cuts.items()})


@pytest.mark.parametrize("offset", [-1, 21, True, "5", 1.5])
async def test_a_cut_is_an_offset_up_to_the_end(offset: Any) -> None:
    cluster = Cluster(topics={"t": TOPIC}, offsets=lambda times: {one: OffsetAt(20, -1, 0) for one in times})
    status, text = await refused(
        cluster, "POST", "/api/topics/t/trim", {"before": {"0": offset}, "check": True}
    )
    assert (status, text) == (400, "before: partition 0 ends at 20; give an offset up to that")
    cluster.answers["topics"] = {"t": REFUSED}
    assert (await cluster.ask("POST", "/api/topics/t/trim", {}))[0] == 403
