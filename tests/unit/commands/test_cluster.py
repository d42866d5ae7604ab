"""`barnabas brokers` and `barnabas transactions`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.testing import KafkaBroker, start_thread

from .conftest import Commands

WAIT_S = 30


def test_the_cluster_and_its_brokers_are_shown(run: Commands, broker: KafkaBroker) -> None:
    cluster = run.rows("cluster", "brokers", "list")
    assert (cluster["controller"], cluster["brokers"], len(cluster["cluster_id"])) == (1, 1, 22)
    host, port = broker.bootstrap.split(":")
    expected = {"broker": 1, "host": host, "port": int(port), "rack": None, "is_fenced": None}
    assert run.rows("brokers", "brokers", "list") == [expected]
    out, _ = run("brokers", "list")
    assert out.startswith("CLUSTER-ID  ")
    assert "FENCED" not in out
    assert "FENCED" in run("brokers", "list", "--fenced")[0]


def test_log_dirs_and_their_replicas_are_shown(run: Commands, broker: KafkaBroker) -> None:
    run("topics", "create", "sized")
    broker.produce("sized", "x" * 1000)
    (replica,) = run.rows("replicas", "brokers", "log-dirs", "--topic", "sized")
    assert replica["size_bytes"] > 1000
    (entry,) = run.rows("log_dirs", "brokers", "log-dirs", "--topic", "sized")
    assert (entry["broker"], entry["replicas"], entry["size_bytes"]) == (1, 1, replica["size_bytes"])
    assert "OFFSET-LAG" in run("brokers", "log-dirs", "--replicas")[0]
    assert "broker 7 is not in the cluster" in run("brokers", "log-dirs", "--broker", "7", code=1)[1]


def test_replicas_move_between_log_dirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dirs = [tmp_path / "one", tmp_path / "two"]
    started = start_thread({"log.dirs": ",".join(map(str, dirs))})
    try:
        run = Commands(started.bootstrap, capsys)
        run("topics", "create", "moves")
        (replica,) = run.rows("replicas", "brokers", "log-dirs", "--topic", "moves")
        other = next(str(entry) for entry in dirs if str(entry) != replica["path"])
        move = ("brokers", "move", "moves:0", "--broker", "1", "--to")
        assert run.rows("partitions", *move, other)[0]["outcome"] == "begun"
        assert "LOG_DIR_NOT_FOUND" in run(*move, str(tmp_path / "three"), code=1)[0]
        assert "TOPIC:PARTITION" in run("brokers", "move", "moves", "--broker", "1", "--to", other, code=2)[1]
    finally:
        started.close()


def test_features_are_shown_and_checked(run: Commands) -> None:
    result = {row["feature"]: row for row in run.rows("features", "brokers", "features", "list")}
    assert result["transaction.version"]["max_level"] >= 2
    update = ("brokers", "features", "update")
    assert "would be set" in run(*update, "transaction.version=2", "--dry-run")[0]
    assert "no terminal" in run(*update, "transaction.version=2", code=1)[1]
    run(*update, "transaction.version=99", "--yes", code=1)
    assert "is no level" in run(*update, "transaction.version=high", "--yes", code=2)[1]


def test_partitions_are_reassigned_and_leaders_elected(run: Commands, tmp_path: Path) -> None:
    run("topics", "create", "r")
    assert run.rows("partitions", "brokers", "reassign", "start", "r:0=1", "--yes")[0]["outcome"] == "begun"
    file = tmp_path / "plan.json"
    file.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "r", "partition": 0, "replicas": [1]}]})
    )
    assert "begun" in run("brokers", "reassign", "start", "--file", str(file), "--yes")[0]
    file.write_text("{}")
    assert '"partitions"' in run("brokers", "reassign", "start", "--file", str(file), "--yes", code=1)[1]
    assert "is not TOPIC:PARTITION=BROKER" in run("brokers", "reassign", "start", "r=1", "--yes", code=2)[1]
    out, _ = run("brokers", "reassign", "start", "r:0=7", "--yes", code=1)
    assert "INVALID_REPLICA_ASSIGNMENT" in out
    assert run("brokers", "reassign", "list")[0] == "no reassignments\n"
    assert "nothing of this is being moved" in run("brokers", "reassign", "cancel", "--yes", code=1)[1]
    assert run.rows("partitions", "brokers", "elect", "r:0")[0]["outcome"] == "leads"
    assert "no terminal" in run("brokers", "elect", "--unclean", code=1)[1]


def test_what_a_broker_does_not_serve_is_told(run: Commands) -> None:
    assert "serves no usable version of DescribeQuorum" in run("brokers", "quorum", code=1)[1]
    assert (
        "serves no usable version of UnregisterBroker"
        in run("brokers", "unregister", "9", "--yes", code=1)[1]
    )


# --- transactions -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_transaction(broker: KafkaBroker) -> Iterator[Producer]:
    """A transaction that is open in moved:0, from its first record on; another id has begun none."""
    broker.create_topic("moved", 1)
    for name in ("idle", "mover"):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
        producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("moved", b"x")
    producer.flush(WAIT_S)
    return producer


def test_transactions_are_listed_and_described(run: Commands, open_transaction: Producer) -> None:
    result = {
        row["transactional_id"]: row["state"] for row in run.rows("transactions", "transactions", "list")
    }
    assert result == {"mover": "Ongoing", "idle": "Empty"}
    (row,) = run.rows("transactions", "transactions", "list", "--state", "Ongoing")
    assert row["transactional_id"] == "mover"
    assert run.rows("transactions", "transactions", "list", "--running-for", "1h", "--state", "Ongoing") == []
    assert [
        row["transactional_id"]
        for row in run.rows("transactions", "transactions", "list", "--pattern", "i.*")
    ] == ["idle"]
    (row,) = run.rows("transactions", "transactions", "describe", "mover")
    assert (row["state"], row["partitions"], row["coordinator"]) == ("Ongoing", ["moved:0"], 1)
    assert "T" in run("transactions", "describe", "mover")[0].splitlines()[1]
    (row,) = run.rows("transactions", "transactions", "describe", "missing", code=1)
    assert row["error"] == "TRANSACTIONAL_ID_NOT_FOUND"


def test_a_transaction_that_hangs_is_found_and_aborted(
    run: Commands, open_transaction: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (producer,) = run.rows("producers", "transactions", "producers", "moved")
    assert producer["transaction_offset"] == 0
    assert run.rows("hanging", "transactions", "find-hanging") == []
    # A later hour, in which the coordinator still knows it: it will be ended, so it does not hang.
    monkeypatch.setattr("barnabas.commands.transactions.GRACE_MS", -7_200_000)
    assert run.rows("hanging", "transactions", "find-hanging", "moved", "--max-timeout", "1ms") == []
    monkeypatch.setattr("barnabas.commands.transactions._hangs", lambda *_: True)
    (result,) = run.rows("hanging", "transactions", "find-hanging", "moved:0", "--max-timeout", "1ms", code=1)
    assert (result["transactional_id"], result["transaction_offset"]) == ("mover", 0)
    abort = ("transactions", "abort", "moved:0")
    assert "no such transaction is open" in run(*abort, "--start-offset", "7", "--yes", code=1)[1]
    assert "no terminal" in run(*abort, "--start-offset", "0", code=1)[1]
    assert "give TOPIC:PARTITION" in run(*abort, "--yes", code=2)[1]
    assert "aborted" in run(*abort, "--producer-id", str(producer["producer_id"]), "--yes")[0]
    (producer,) = run.rows("producers", "transactions", "producers", "moved:0")
    assert producer["transaction_offset"] is None
    assert "there is no partition moved:9" in run("transactions", "producers", "moved:9", code=1)[1]
