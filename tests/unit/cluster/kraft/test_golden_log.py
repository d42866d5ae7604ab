"""Logs and snapshots of Kafka 4.3.1 and 4.4.0: read as Kafka's tool reads them, replayed to what the snapshots hold."""

import json
from base64 import b64encode
from collections import defaultdict
from pathlib import Path

import pytest

from barnabas.cluster.kraft.directory import END, MetadataLog, Until, read_snapshot
from barnabas.cluster.kraft.image import BROKER, diff
from barnabas.cluster.kraft.quorum import decode_control
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.cluster.kraft.values import Acl, LevelRange, Voter
from barnabas.log.disk import OsDisk
from barnabas.log.format.properties import decode_uuid, encode_uuid
from barnabas.log.format.quorum_state import QuorumState
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.wire.metadata_records import decode_record, encode_record, record_key, record_keys, record_name
from tests.support.messages import all_messages, to_json

RELEASES = sorted((Path(__file__).resolve().parents[3] / "golden" / "metadata").glob("kafka-*"))
GOLDEN = RELEASES[0].with_name("kafka-4.3.1")
LOG = GOLDEN / "__cluster_metadata-0"
SNAPSHOTS = sorted(path for golden in RELEASES for path in golden.glob("*/*.checkpoint"))
TAKEN = [path for path in SNAPSHOTS if not path.name.startswith("0" * 20)]
DISK = OsDisk(read_only=True)
WORDS = {"LeaderChange": "LeaderChangeMessage", "KRaftVoters": "VotersRecord"}
WRITTEN_BY_NO_KAFKA_4 = {"FenceBroker", "UnfenceBroker", "ZkMigrationState"}


def dumped():
    """File -> rows of Kafka's tool: offset, timestamp, type, fields."""
    rows = defaultdict(list)
    for golden in RELEASES:
        for line in (golden / "dump.jsonl").read_text().splitlines():
            file, *row = json.loads(line)
            rows[golden / LOG.name / file].append(row)
    return rows


def records_of(path):
    data = path.read_bytes()
    for position, header in iter_batches(data):
        for record in iter_any_records(data[position : position + header.size]):
            yield header, record


def read_log(until=END, *, from_snapshot=True, golden=GOLDEN):
    log = MetadataLog(DISK, str(golden))
    if from_snapshot:
        log.begin(until)
    steps = list(log.steps(until))
    return log, steps


def label(path):
    return f"{path.parts[-3]}-{path.name}"


@pytest.mark.parametrize("path", sorted(dumped()), ids=label)
def test_every_record_is_read_as_kafkas_tool_reads_it(path):
    shown = []
    for header, record in records_of(path):
        if header.is_control:
            control_type, message = decode_control(record)
            kind = {"KRAFT_VERSION": "KRaftVersion", "KRAFT_VOTERS": "KRaftVoters"}.get(
                control_type.name, control_type.name.title().replace("_", "")
            )
            schema = all_messages()[WORDS.get(kind, f"{kind}Record")]
            fields = to_json(schema, message.version, message)
        else:
            message, version = decode_record(record.value)
            kind = record_name(record_key(message))
            fields = {**to_json(all_messages()[f"{kind}Record"], version, message), "version": version}
            assert encode_record(message, version) == record.value
        shown.append([record.offset, record.timestamp, kind, fields])
    assert shown == dumped()[path]


def test_golden_log_has_nearly_every_kind_of_record():
    kinds = {kind for rows in dumped().values() for _, _, kind, _ in rows}
    missing = {record_name(key) for key in record_keys()} - kinds
    assert missing == WRITTEN_BY_NO_KAFKA_4 | {"AbortTransaction", "UnregisterController"}


@pytest.mark.parametrize("path", TAKEN, ids=label)
def test_replay_leads_to_what_kafkas_snapshot_holds(path):
    snapshot = read_snapshot(DISK, str(path))
    bound = Until(offset=snapshot.end_offset - 1)
    log, _ = read_log(bound, from_snapshot=False, golden=path.parents[1])
    assert list(diff(log.state.image, snapshot.image)) == []
    assert log.state.image == snapshot.image
    assert snapshot.leadership.voters == log.state.leadership.voters


@pytest.mark.parametrize("offset", range(2, 105, 13))
def test_log_from_a_snapshot_and_from_its_beginning_agree(offset):
    whole, steps = read_log(Until(offset=offset), from_snapshot=False)
    resumed, _ = read_log(Until(offset=offset))
    assert resumed.state.image == whole.state.image
    assert resumed.state.leadership == whole.state.leadership
    assert resumed.state.position == whole.state.position
    assert steps[-1].offset == offset


def test_changes_of_the_steps_add_up_to_the_difference():
    log, steps = read_log(from_snapshot=False)
    entries = {}
    for step in steps:
        for change in step.changes:
            assert entries.get((change.kind, change.key)) == change.before
            entries[change.kind, change.key] = change.after
    assert {key: value for key, value in entries.items() if value is not None} == {
        (kind, key): value for kind, key, value in log.state.image.entries()
    }


def test_image_has_what_the_workload_made():
    image = read_log(Until(offset=75))[0].state.image
    assert sorted(image.topic_ids) == ["orders", "payments", "shared"]
    shared = dict(image.partitions_of(image.topic("shared")))[0]
    assert (shared.replicas, shared.isr, shared.elr, shared.leader) == ((1, 2), (1,), (2,), 1)
    counts = {name: len(list(image.partitions_of(image.topic(name)))) for name in image.topic_ids}
    assert counts == {"orders": 3, "payments": 2, "shared": 1}
    (broker,) = image.brokers.values()
    assert (broker.id, broker.rack, broker.fenced, broker.cordoned_log_dirs) == (1, "rack-a", False, ())
    assert len(broker.log_dirs) == 2
    assert image.metadata_version == 30
    assert "kraft.version" not in image.features
    assert image.settings[BROKER, ""] == {"log.cleaner.threads": "2", "min.insync.replicas": "1"}
    assert sorted(image.users) == [("admin", 1), ("bob", 1)]
    assert [acl.principal for acl in image.acls.values()] == ["User:bob"]
    assert image.quotas == {
        (("client-id", None), ("user", "bob")): {"producer_byte_rate": 1024.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 1024.0},
    }
    assert [token.owner for token in image.tokens.values()] == ["User:alice"]
    assert image.producer_ids == 1000


def test_image_has_the_times_and_numbers_of_the_records():
    image = read_log(Until(offset=75))[0].state.image
    rows = dumped()[LOG / "00000000000000000000.log"]
    (token,) = image.tokens.values()
    written = [row[3] for row in rows if row[2] == "DelegationToken" and row[3]["tokenId"] == token.token_id][
        -1
    ]
    assert (token.issued_ms, token.expires_ms, token.expires_max_ms) == (
        written["issueTimestamp"],
        written["expirationTimestamp"],
        written["maxTimestamp"],
    )
    assert token.requester == written["requester"]
    (acl_id,) = image.acls
    written = next(
        row[3] for row in rows if row[2] == "AccessControlEntry" and decode_uuid(row[3]["id"]) == acl_id
    )
    assert image.acls[acl_id] == Acl(
        written["resourceType"],
        written["resourceName"],
        written["patternType"],
        written["principal"],
        written["host"],
        written["operation"],
        written["permissionType"],
    )
    written = next(row[3] for row in rows if row[2] == "UserScramCredential" and row[3]["name"] == "admin")
    kept = image.users["admin", 1]
    assert [b64encode(key).decode() for key in (kept.salt, kept.stored_key, kept.server_key)] == [
        written["salt"],
        written["storedKey"],
        written["serverKey"],
    ]
    assert kept.iterations == written["iterations"]


def test_image_has_the_nodes_of_the_records():
    image = read_log(Until(offset=75))[0].state.image
    rows = dumped()[LOG / "00000000000000000000.log"]
    for nodes, kind, key in (
        (image.brokers, "RegisterBroker", "brokerId"),
        (image.controllers, "RegisterController", "controllerId"),
    ):
        written = next(row[3] for row in rows if row[2] == kind)
        node = nodes[written[key]]
        assert (node.id, encode_uuid(node.incarnation_id)) == (written[key], written["incarnationId"])
        assert [tuple(endpoint) for endpoint in node.endpoints] == [
            (endpoint["name"], endpoint["host"], endpoint["port"], endpoint["securityProtocol"])
            for endpoint in written["endPoints"]
        ]
        assert dict(node.features) == {
            feature["name"]: (feature["minSupportedVersion"], feature["maxSupportedVersion"])
            for feature in written["features"]
        }


def test_leadership_is_that_of_the_last_election():
    leadership = read_log()[0].state.leadership
    (voter,) = leadership.voters
    assert (leadership.leader_id, leadership.epoch, leadership.since_offset) == (1, 2, 85)
    assert (voter.id, voter.kraft_versions) == (1, LevelRange(0, 1))
    assert voter.directory_id == decode_uuid("S7kmAEGERoaAfX8SIzsssA")
    assert isinstance(voter, Voter)


def test_log_until_a_time_ends_with_the_last_record_of_it():
    times = [row[1] for row in dumped()[LOG / "00000000000000000000.log"]]
    for time_ms in (times[20], times[60] + 1, times[-1] + 10):
        log, _ = read_log(Until(time_ms=time_ms))
        whole, steps = read_log(Until(time_ms=time_ms), from_snapshot=False)
        assert log.state.image == whole.state.image
        assert steps[-1].offset == max(offset for offset, time in enumerate(times) if time <= time_ms)


def test_bootstrap_transaction_applies_at_its_end():
    middle, steps = read_log(Until(offset=11), from_snapshot=False)
    assert middle.state.in_transaction
    assert middle.state.image.features == {}
    assert not any(step.changes for step in steps)
    end, steps = read_log(Until(offset=12), from_snapshot=False)
    assert not end.state.in_transaction
    assert end.state.image.metadata_version == 30
    assert len(steps[-1].changes) == 8


def test_records_a_controller_was_formatted_with_do_not_count():
    golden = GOLDEN.with_name("kafka-4.4.0")
    snapshot = read_snapshot(DISK, str(golden / LOG.name / f"{0:020d}-{0:010d}.checkpoint"))
    assert snapshot.image.metadata_version == 33
    log, _ = read_log(Until(offset=2), golden=golden)
    assert log.state.image.features == {}
    assert log.state.leadership.voters == snapshot.leadership.voters
    assert read_log(Until(offset=20), golden=golden)[0].state.image.metadata_version == 33


def test_quorum_state_is_read_and_written_as_kafka_does():
    data = (LOG / "quorum-state").read_bytes()
    state = QuorumState.decode(data)
    assert state == QuorumState(1, leader_id=1, leader_epoch=2)
    assert state.encode() == data


def test_state_before_the_first_one_is_an_error(tmp_path):
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    for path in sorted(LOG.glob("*.checkpoint"))[2:]:
        (directory / path.name).write_bytes(path.read_bytes())
    with pytest.raises(MetadataLogError, match="oldest state is that of offset 54"):
        MetadataLog(DISK, str(directory)).begin(Until(offset=10))
