"""`barnabas groups` and `barnabas lag`: members, lag, offsets set anew."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from barnabas.testing import KafkaBroker

from .conftest import Commands

WAIT_S = 30


@pytest.fixture
def filled(broker: KafkaBroker) -> KafkaBroker:
    """A topic of two partitions with ten records each, and a group that has read half of one."""
    if "read" not in broker.topics():
        broker.create_topic("read", 2)
        broker.produce(
            "read",
            *({"value": "x", "partition": number % 2, "timestamp": 1000 + number} for number in range(20)),
        )
    broker.set_offsets("readers", {"read": {0: 5}})
    return broker


@contextmanager
def member(broker: KafkaBroker, group: str, **settings: str) -> Iterator[None]:
    """A consumer that has joined a group and has its partitions."""
    ready, ending = threading.Event(), threading.Event()

    def consume() -> None:
        more = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "reader", **more}
        )
        consumer.subscribe(["read"], on_assign=lambda *_: ready.set())
        while not ending.is_set():
            consumer.poll(0.05)
        consumer.close()

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        assert ready.wait(WAIT_S)
        yield
    finally:
        ending.set()
        thread.join()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_lag_of_a_group_are_described(run: Commands, filled: KafkaBroker, protocol: str) -> None:
    group = f"live-{protocol}"
    filled.set_offsets(group, {"read": {0: 4}})
    with member(filled, group, group_protocol=protocol, enable_auto_commit="false"):
        (lag,) = run.rows("groups", "groups", "describe", group)
        assert (lag["kind"], lag["state"], lag["members"], lag["lag"]) == (protocol, "Stable", 1, 6)
        (reader,) = run.rows("members", "groups", "describe", group)
        assert (reader["client_id"], reader["partitions"], reader["subscription"]) == ("reader", 2, ["read"])
        lags = run.rows("offsets", "groups", "describe", group)
        assert [(lag["partition"], lag["committed"], lag["latest"], lag["lag"]) for lag in lags] == [
            (0, 4, 10, 6),
            (1, None, 10, None),
        ]
        assert lags[1]["client_id"] == "reader"
        out, _ = run("groups", "describe", group)
        assert "MEMBER-ID" in out
        assert "SUBSCRIPTION" in out
        _, err = run("groups", "reset-offsets", group, "--all-topics", "--to-latest", "--execute", code=1)
        assert "is Stable: stop its members first" in err
        assert "NON_EMPTY_GROUP" in run("groups", "delete", group, "--yes", code=1)[0]


def test_members_are_removed(run: Commands, filled: KafkaBroker) -> None:
    with member(filled, "crowd"):
        _, err = run("groups", "remove-members", "crowd", "--member", "nobody", "--yes", code=1)
        assert "crowd has no member nobody" in err
        _, err = run("groups", "remove-members", "crowd", "--member", "reader", "--yes", code=1)
        assert "crowd has no member reader" in err, "that is how its client is called"
        (entry,) = run.rows("members", "groups", "describe", "crowd")
        removed = run.rows(
            "members", "groups", "remove-members", "crowd", "--member", entry["member_id"], "--yes"
        )
        assert [(each["member_id"], each["outcome"]) for each in removed] == [(entry["member_id"], "removed")]
    with member(filled, "crowd", group_instance_id="first"):
        (entry,) = run.rows("members", "groups", "remove-members", "crowd", "--instance", "first", "--yes")
        assert entry["outcome"] == "removed"
    with member(filled, "crowd"):
        (entry,) = run.rows("members", "groups", "remove-members", "crowd", "--all", "--yes")
        assert entry["outcome"] == "removed"


@pytest.mark.parametrize(
    ("target", "new"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [10, 10]),
        (("--to-offset", "3"), [3, 3]),
        (("--to-offset", "99"), [10, 10]),
        (("--to-time", "1010"), [5, 5]),
        (("--to-time", "2030-01-01T00:00:00Z"), [10, 10]),
    ],
)
def test_offsets_are_reset_only_with_execute(
    run: Commands, filled: KafkaBroker, target: tuple[str, ...], new: list[int]
) -> None:
    reset = ("groups", "reset-offsets", "readers", "-t", "read", *target)
    rows = run.rows("offsets", *reset)
    assert [(row["new"], row["is_done"]) for row in rows] == [(at, False) for at in new]
    assert filled.committed("readers")["read", 0] == 5
    _, err = run(*reset)
    assert "nothing was changed; --execute does it" in err
    assert [row["is_done"] for row in run.rows("offsets", *reset, "--execute")] == [True, True]
    assert [filled.committed("readers")["read", number] for number in (0, 1)] == new


def test_offsets_are_shifted_and_read_from_files(run: Commands, filled: KafkaBroker, tmp_path: Path) -> None:
    reset = ("groups", "reset-offsets", "readers", "--execute")
    (row,) = run.rows("offsets", *reset, "-t", "read:0", "--shift-by", "-2")
    assert (row["committed"], row["new"]) == (5, 3)
    (row,) = run.rows(
        "offsets", "groups", "reset-offsets", "newcomers", "-t", "read:1", "--shift-by", "1", code=1
    )
    assert row["error"] == "nothing is committed that could be shifted"
    file = tmp_path / "offsets.csv"
    file.write_text("# of Kafka's tool\nread,0,7\nread 1 8\n")
    assert [row["new"] for row in run.rows("offsets", *reset, "--from-file", str(file))] == [7, 8]
    assert filled.committed("readers") == {("read", 0): 7, ("read", 1): 8}
    file.write_text("read,0\n")
    assert (
        f"{file}:1: 'read,0' is not TOPIC,PARTITION,OFFSET"
        in run(*reset, "--from-file", str(file), code=1)[1]
    )


def test_offsets_and_groups_are_deleted(run: Commands, filled: KafkaBroker) -> None:
    filled.set_offsets("gone", {"read": {0: 1, 1: 2}})
    (row,) = run.rows("offsets", "groups", "delete-offsets", "gone", "read:0", "--yes")
    assert (row["partition"], row["outcome"]) == (0, "deleted")
    assert filled.committed("gone") == {("read", 1): 2}
    assert "no terminal" in run("groups", "delete", "gone", code=1)[1]
    assert run.rows("groups", "groups", "delete", "-r", "gon.", "--yes")[0]["outcome"] == "deleted"
    assert "gone" not in filled.groups()
    assert run.rows("groups", "groups", "delete", "gone", "--yes", code=1)[0]["error"].startswith(
        "GROUP_ID_NOT_FOUND"
    )


def test_lag_is_shown_and_told_as_metrics(run: Commands, filled: KafkaBroker) -> None:
    filled.set_offsets("lagging", {"read": {0: 5}})
    (row,) = run.rows("groups", "lag", "lagging")
    assert (row["group"], row["state"], row["members"], row["lag"]) == ("lagging", "Empty", 0, 5)
    assert "COMMITTED" in run("lag", "lagging", "--partitions")[0]
    text, _ = run("lag", "lagging", "--metrics")
    assert 'kafka_consumergroup_lag{consumergroup="lagging",partition="0",topic="read"} 5.0' in text
    assert 'kafka_topic_partition_current_offset{partition="0",topic="read"} 10.0' in text
    assert "there is no group missing" in run("lag", "missing", code=1)[1]
    assert "--listen goes with --metrics" in run("lag", "--listen", "127.0.0.1:0", code=2)[1]


def test_lag_is_served_until_a_signal_comes(
    run: Commands, filled: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    result: list[str] = []

    def scrape(line: str, **_: object) -> None:
        """Read the metrics once the address is told, and end the command."""

        def ask() -> None:
            url = line.split()[-1]
            result.append(urllib.request.urlopen(url, timeout=WAIT_S).read().decode())
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=ask).start()

    monkeypatch.setattr("builtins.print", scrape)
    run("lag", "readers", "--metrics", "--listen", "127.0.0.1:0")
    assert 'kafka_consumergroup_lag{consumergroup="readers",partition="0",topic="read"} 5.0' in result[0]
