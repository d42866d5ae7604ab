"""`barnabas log dump`: every kind of file, ours and Kafka's."""

import pytest

from barnabas.cli import main
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.wire.generated.data import consumer_protocol_subscription
from barnabas.wire.generated.records.group_metadata import RECORD as GROUP
from barnabas.wire.generated.records.group_metadata import GroupMetadataKey, GroupMetadataValue
from barnabas.wire.generated.records.offset_commit import RECORD as OFFSET
from barnabas.wire.generated.records.offset_commit import OffsetCommitKey, OffsetCommitValue
from barnabas.wire.generated.records.transaction_log import RECORD as TXN
from barnabas.wire.generated.records.transaction_log import TransactionLogKey, TransactionLogValue
from tests.support.logs import NOW_MS, Broker, append


def of_kind(rows, kind):
    return [row for row in rows if row["kind"] == kind]


def test_all_files_of_a_dir_that_kafka_wrote_are_shown(tool, kafka_dir):
    rows = tool("dump", "--deep", kafka_dir)
    assert tool.code == 0
    shown = {row["path"] for row in of_kind(rows, "file")}
    assert shown == {
        str(path) for path in kafka_dir.rglob("*") if path.is_file() and path.name != "README.md"
    }
    assert len(of_kind(rows, "batch")) == len(of_kind(rows, "record")) == 62
    assert {row["control"] for row in of_kind(rows, "record") if "control" in row} == {"abort", "commit"}
    assert [row["first_offset"] for row in of_kind(rows, "aborted_transaction")] == [17, 27, 42, 52]
    assert of_kind(rows, "checkpoint")[0] == {
        "kind": "checkpoint", "topic": "golden", "partition": 0, "offset": 3,
    }  # fmt: skip
    assert of_kind(rows, "meta")[0]["cluster_id"] == "Ly9rYWZrYS1jbHVzdGVyLQ"
    assert of_kind(rows, "leader_epoch") == [{"kind": "leader_epoch", "epoch": 0, "start_offset": 3}]


def test_a_range_of_offsets_is_shown(tool, kafka_dir):
    rows = tool("dump", "--deep", "--from", 20, "--to", 22, kafka_dir / "golden-0")
    assert [row["offset"] for row in of_kind(rows, "record")] == [20, 21, 22]
    assert [row["base_offset"] for row in of_kind(rows, "batch")] == [20, 21, 22]


def test_one_file_is_shown(tool, log_dir):
    rows = tool("dump", log_dir / "orders-0" / "00000000000000000000.index")
    assert rows
    assert {row["kind"] for row in rows} == {"offset_index_entry"}
    assert tool("dump", log_dir / "meta.properties")[0]["node_id"] == 5


def test_looking_changes_nothing(tool, log_dir):
    def state():
        return {
            path: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in log_dir.rglob("*")
            if path.is_file()
        }

    before = state()
    for command in ("dump", "verify", "stats"):
        tool(command, log_dir)
    tool("repair", "--dry-run", log_dir)
    assert state() == before


def test_a_line_of_text_names_each_field(log_dir, capsys):
    assert (
        main(["log", "dump", "--deep", "--to", "0", str(log_dir / "orders-0/00000000000000000000.log")]) == 0
    )
    batch_line, record_line, *rest = capsys.readouterr().out.splitlines()
    assert batch_line.startswith("batch base_offset=0 last_offset=1 count=2 position=0 size=")
    assert record_line == f"record offset=0 timestamp={NOW_MS} key_size=1 value_size=1 key=k value=0"
    assert rest == []


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_bytes_that_are_no_text_are_shown_in_base64(tool, directory, codec):
    broker = Broker(directory, index_interval_bytes=100)
    records = [Record(0, NOW_MS, None, b"\xff\x00", [("name", b"\x01"), ("bad\udcff", None)])]
    append(broker.log(), bytearray(encode_batch(records, codec=codec)))
    broker.manager.close()
    (row,) = of_kind(tool("dump", "--deep", directory / "t-0"), "record")
    assert row["key"] is None
    assert row["value"] == {"base64": "/wA="}
    assert row["headers"] == [["name", {"base64": "AQ=="}], [{"base64": "YmFk/w=="}, None]]


def internal(directory, topic, *records):
    broker = Broker(directory)
    raw = [Record(n, NOW_MS, key, value) for n, (key, value) in enumerate(records)]
    append(broker.log(topic), bytearray(encode_batch(raw)))
    broker.manager.close()
    return directory / f"{topic}-0"


def test_offsets_and_groups_are_decoded(tool, directory):
    codec = consumer_protocol_subscription.CODEC
    subscription = b"\x00\x01" + codec.encode_bytes(codec.message(topics=["orders"]), 1)
    member = GroupMetadataValue.MemberMetadata(member_id="m", subscription=subscription, assignment=b"\xff")
    group = GroupMetadataValue(protocol_type="consumer", generation=3, members=[member])
    path = internal(
        directory,
        "__consumer_offsets",
        (OFFSET.encode_key(OffsetCommitKey("g", "orders", 2)), OFFSET.encode_value(OffsetCommitValue(17))),
        (OFFSET.encode_key(OffsetCommitKey("g", "orders", 2)), None),
        (GROUP.encode_key(GroupMetadataKey("g")), GROUP.encode_value(group)),
        (b"\x00\x63nobody knows", b"?"),
        (OFFSET.encode_key(OffsetCommitKey("g", "orders", 2)), b"\x00\x03\x01"),
    )
    commit, tombstone, metadata, unknown, broken = of_kind(tool("dump", "--deep", path), "record")
    assert commit["type"] == "OffsetCommit"
    assert commit["key"] == {"group": "g", "topic": "orders", "partition": 2}
    assert commit["value"]["offset"] == 17
    assert commit["value"]["topic_id"] == "A" * 22
    assert tombstone["value"] is None
    assert metadata["value"]["members"][0]["subscription"]["topics"] == ["orders"]
    assert metadata["value"]["members"][0]["assignment"] == {"base64": "/w=="}
    assert "there is no record type 99" in unknown["problem"]
    assert broken["problem"]
    assert broken["value"] == {"base64": "AAMB"}


def test_transactions_are_decoded(tool, directory):
    value = TransactionLogValue(producer_id=9, transaction_status=4)
    path = internal(
        directory, "__transaction_state", (TXN.encode_key(TransactionLogKey("pay")), TXN.encode_value(value))
    )
    (row,) = of_kind(tool("dump", "--deep", path), "record")
    assert row["key"] == {"transactional_id": "pay"}
    assert row["value"]["producer_id"] == 9


def test_what_is_damaged_ends_a_file_with_a_problem(tool, log_dir):
    path = log_dir / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    rows = tool("dump", path)
    assert tool.code == 1
    assert rows[-1]["kind"] == "problem"
    assert rows[-1]["text"] == "the checksum is wrong"
    assert rows[-1]["position"] == len(data) - rows[-1]["bytes_left"]


@pytest.mark.parametrize(
    "name",
    [
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "orders-0/leader-epoch-checkpoint",
        "orders-0/partition.metadata",
        "orders-0/00000000000000000042.snapshot",
    ],
)
def test_a_file_that_makes_no_sense_is_a_problem(tool, log_dir, name):
    path = log_dir / name
    path.write_bytes(b"version=9\nnonsense")
    (row,) = tool("dump", path)
    assert row["kind"] == "problem"
    assert tool.code == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [("nowhere", "No such file"), ("", "neither a log dir"), ("README", "no file of this name")],
)
def test_a_path_that_is_none_is_explained(tool, directory, path, text):
    (directory / "README").write_text("hello")
    tool("dump", directory / path)
    assert tool.code == 2
    assert text in tool.err
