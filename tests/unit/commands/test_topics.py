"""`barnabas topics`: tables, JSON, questions, errors."""

from __future__ import annotations

from barnabas.testing import KafkaBroker

from .conftest import Commands


def test_topics_are_created_and_listed(run: Commands) -> None:
    out, _ = run("topics", "create", "a", "b", "-p", "3", "-c", "retention.ms=1000")
    assert out.splitlines() == ["NAME  OUTCOME", "a     created", "b     created"]
    result = run.rows("topics", "topics", "list", "a")
    assert [{**row, "id": len(row["id"])} for row in result] == [
        {"name": "a", "partitions": 3, "replicas": 1, "is_internal": False, "id": 22, "error": None}
    ]
    out, _ = run("topics", "list")
    assert [line.split() for line in out.splitlines()[:3]] == [
        ["NAME", "PARTITIONS", "REPLICAS", "INTERNAL"], ["a", "3", "1", "no"], ["b", "3", "1", "no"],
    ]  # fmt: skip
    assert (
        run.rows("configs", "configs", "describe", "topic", "a", "-k", "retention.ms")[0]["value"] == "1000"
    )


def test_nothing_is_created_by_a_dry_run(run: Commands) -> None:
    assert "would be created" in run("topics", "create", "dry", "--dry-run")[0]
    assert run.rows("topics", "topics", "list", "dry", code=1)[0]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_patterns_match_the_whole_name(run: Commands) -> None:
    run("topics", "create", "pat", "pat-1", "pat-2")
    assert [row["name"] for row in run.rows("topics", "topics", "list", "-r", r"pat-\d")] == [
        "pat-1",
        "pat-2",
    ]
    _, err = run("topics", "describe", "-r", "nothing.*", code=1)
    assert "no topic matches nothing.*" in err
    _, err = run("topics", "list", "-r", "(", code=2)
    assert "is no regular expression" in err


def test_partitions_are_described_and_added(run: Commands) -> None:
    run("topics", "create", "grows", "-p", "2")
    assert "has 4 partitions" in run("topics", "alter", "grows", "-p", "4")[0]
    partitions = run.rows("partitions", "topics", "describe", "grows")
    assert [partition["partition"] for partition in partitions] == [0, 1, 2, 3]
    assert partitions[0]["replicas"] == partitions[0]["in_sync"] == [1]
    out, _ = run("topics", "alter", "grows", "-p", "1", code=1)
    assert "INVALID_PARTITIONS" in out


def test_offsets_of_ends_and_of_times_are_shown(run: Commands, broker: KafkaBroker) -> None:
    broker.create_topic("timed", 1)
    broker.produce("timed", {"value": "a", "timestamp": 1000}, {"value": "b", "timestamp": 2000})
    result = run.rows("offsets", "topics", "offsets", "timed", "--at", "1500")
    assert result == [
        {"topic": "timed", "partition": 0, "earliest": 0, "latest": 2, "records": 2, "at": 1, "error": None}
    ]
    assert run.rows("offsets", "topics", "offsets", "timed", "--at", "-1h")[0]["at"] is None
    assert run.rows("offsets", "topics", "offsets", "timed", "--at", "max")[0]["at"] == 1
    _, err = run("topics", "offsets", "timed", "--at", "noon", code=2)
    assert "'noon' is no time" in err


def test_records_are_cut_off_before_an_offset_a_time_or_the_end(run: Commands, broker: KafkaBroker) -> None:
    broker.create_topic("cut", 2)
    broker.produce("cut", *({"value": "x", "partition": 0, "timestamp": at} for at in (1000, 2000, 3000)))
    trim = ("topics", "trim", "cut:0", "--yes", "--before")
    assert run.rows("partitions", *trim, "1")[0]["earliest"] == 1
    assert run.rows("partitions", *trim, "@2500")[0]["earliest"] == 2
    assert run.rows("partitions", *trim, "end")[0]["earliest"] == 3
    assert "OFFSET_OUT_OF_RANGE" in run(*trim, "9", code=1)[0]
    assert (
        "there is no partition cut:7" in run("topics", "trim", "cut:7", "--before", "1", "--yes", code=1)[1]
    )
    assert "is expected" in run(*trim, "soon", code=2)[1]


def test_what_a_terminal_would_obey_is_escaped(run: Commands, broker: KafkaBroker) -> None:
    broker.create_topic("escape", 1)
    broker.produce("escape", "x")
    broker.set_offsets("g\x1b[2J", {"escape": {0: 1}})
    out, _ = run("groups", "list")
    assert "\x1b" not in out
    assert "\\x1b[2J" in out
