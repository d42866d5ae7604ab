"""Entries of the image in words."""

from barnabas.cluster.kraft.describing import (
    ChangeNames,
    acl_row,
    broker_row,
    control_row,
    partition_row,
    quota_row,
    setting_row,
    token_row,
    user_row,
    zk_migration_name,
)
from barnabas.cluster.kraft.image import Change
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.values import (
    LOST,
    MIGRATING,
    UNASSIGNED,
    Acl,
    Broker,
    Credential,
    Endpoint,
    LevelRange,
    Partition,
    Topic,
    Voter,
)
from barnabas.records.record import Record
from barnabas.security.scram import HIDDEN
from barnabas.security.tokens import Token
from barnabas.wire.generated.data.end_txn_marker import EndTxnMarker
from barnabas.wire.generated.data.leader_change_message import LeaderChangeMessage
from barnabas.wire.generated.data.voters_record import VotersRecord

ID = bytes(range(16))
TEXT = "AAECAwQFBgcICQoLDA0ODw"


def test_unknown_numbers_are_shown_as_numbers():
    acl = Acl(99, "name", 98, "User:a", "*", 97, 96)
    assert acl_row(ID, acl) == {
        "principal": "User:a",
        "host": "*",
        "permission": "96",
        "operation": "97",
        "resource_type": "99",
        "resource_name": "name",
        "pattern_type": "98",
        "id": TEXT,
    }
    assert user_row(("a", 9), Credential(b"s", b"k", b"v", 4096)) == {
        "user": "a",
        "mechanism": "9",
        "iterations": 4096,
    }
    assert setting_row((99, "r", "n"), "v")["kind"] == "99"
    assert [zk_migration_name(state) for state in (0, 3, 4, -1)] == ["none", "after migration", "4", "-1"]


def test_endpoints_have_their_protocol_unless_the_name_is_it():
    endpoints = (Endpoint("SSL", "h", 1, 1), Endpoint("OUTSIDE", "h", 2, 3), Endpoint("X", "h", 3, 7))
    broker = Broker(1, 5, ID, endpoints, (("metadata.version", LevelRange(7, 30)),), cordoned_log_dirs=(ID,))
    row = broker_row(broker)
    assert row["endpoints"] == ["SSL://h:1", "OUTSIDE://h:2 (SASL_SSL)", "X://h:3 (7)"]
    assert (row["features"], row["cordoned_log_dirs"]) == ({"metadata.version": "7-30"}, [TEXT])
    assert (row["incarnation_id"], row["is_fenced"], row["is_in_controlled_shutdown"]) == (TEXT, True, False)


def test_reserved_log_dirs_have_names():
    partition = Partition((1, 2, 3, 4), (1,), 1, 2, 3, directories=(UNASSIGNED, LOST, MIGRATING, ID))
    row = partition_row(partition._replace(leader_recovery_state=1, adding=(4,), removing=(1,)))
    assert row["log_dirs"] == ["unassigned", "lost", "migrating", TEXT]
    assert (row["is_recovering"], row["adding"], row["removing"]) == (True, [4], [1])
    assert (row["leader"], row["leader_epoch"], row["partition_epoch"]) == (1, 2, 3)


def test_times_of_a_token_are_told_apart():
    row = token_row(Token("t", "User:a", "User:b", ("User:c",), 1, 2, 3))
    assert (row["issued_at_ms"], row["expires_at_ms"], row["renewable_until_at_ms"]) == (1, 2, 3)
    assert (row["owner"], row["requester"], row["renewers"]) == ("User:a", "User:b", ["User:c"])


def test_defaults_and_all_brokers_have_names():
    assert quota_row((("client-id", None), ("user", "bob")), "producer_byte_rate", 1.0) == {
        "user": "bob",
        "client_id": "<default>",
        "ip": None,
        "key": "producer_byte_rate",
        "value": 1.0,
    }
    assert setting_row((4, "", "log.cleaner.threads"), "2")["name"] == "default"
    assert setting_row((2, "", "retention.ms"), "2")["name"] == ""


def test_change_shows_the_columns_that_differ():
    names = ChangeNames({ID: Topic("orders", ID)})
    before = Partition((1, 2), (1, 2), 1, 0, 0)
    row = names.row(Change("partition", (ID, 3), before, before._replace(isr=(1,), partition_epoch=1)))
    assert row == {
        "kind": "partition",
        "entry": "orders-3",
        "before": {"partition_epoch": 0, "in_sync": [1, 2]},
        "after": {"partition_epoch": 1, "in_sync": [1]},
    }
    assert names.row(Change("topic", ID, Topic("orders", ID), None)) == {
        "kind": "topic",
        "entry": "orders",
        "before": {"id": TEXT},
        "after": None,
    }
    assert names.row(Change("feature", "x", 1, 2)) == {
        "kind": "feature",
        "entry": "x",
        "before": {"level": 1},
        "after": {"level": 2},
    }
    row = names.row(Change("producer_ids", (), None, 1000))
    assert (row["entry"], row["after"]) == ("", {"next_producer_id": 1000})
    assert names.row(Change("zk_migration", (), None, 3))["after"] == {"state": "after migration"}


def test_changed_password_shows_no_secret():
    names = ChangeNames({})
    old, new = Credential(b"s1", b"k1", b"v1", 4096), Credential(b"s2", b"k2", b"v2", 4096)
    row = names.row(Change("user", ("bob", 1), old, new))
    assert row["entry"] == "bob SCRAM-SHA-256"
    assert row["before"] == row["after"] == {"iterations": 4096}
    row = names.row(Change("setting", (4, "1", "ssl.key.password"), "old", "new"))
    assert row["before"] == row["after"] == {"value": HIDDEN}


def test_leader_change_names_leader_and_static_voters():
    voters = [LeaderChangeMessage.Voter(4, ID), LeaderChangeMessage.Voter(5, ID)]
    message = LeaderChangeMessage(version=1, leader_id=4, voters=voters)
    assert control_row(message, 7)["after"] == {"leader": 4, "epoch": 7}
    assert control_row(EndTxnMarker(), 7) is None
    assert control_row(VotersRecord(voters=[VotersRecord.Voter(4)]), 7) == {
        "kind": "quorum",
        "entry": "voters",
        "before": None,
        "after": {"voters": [4]},
    }
    record = Record(30, 1000, None, None)
    leadership = Leadership().after(message, 7, record)
    assert leadership == Leadership(4, 7, 30, 1000, (Voter(4, ID), Voter(5, ID)))
    dynamic = Leadership(kraft_version=1, voters=(Voter(9),)).after(message, 7, record)
    assert (dynamic.leader_id, dynamic.voters) == (4, (Voter(9),))
