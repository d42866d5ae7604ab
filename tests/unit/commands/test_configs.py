"""`barnabas configs`: settings of resources of every kind."""

from __future__ import annotations

import pytest

from .conftest import Commands


def value(run: Commands, *resource: str, key: str) -> tuple[str | None, str]:
    """The value of a setting, and its source."""
    (row,) = run.rows("configs", "configs", "describe", *resource, "-k", key)
    return row["value"], row["source"]


def test_settings_of_a_topic_change_one_by_one(run: Commands) -> None:
    run("topics", "create", "c")
    alter = ("configs", "alter", "topic", "c")
    run(*alter, "--set", "retention.ms=1000", "--append", "cleanup.policy=compact", "--dry-run")
    assert value(run, "topic", "c", key="retention.ms")[1] != "topic"
    assert "changed" in run(*alter, "--set", "retention.ms=1000", "--append", "cleanup.policy=compact")[0]
    assert value(run, "topic", "c", key="retention.ms") == ("1000", "topic")
    assert value(run, "topic", "c", key="cleanup.policy") == ("delete,compact", "topic")
    run(*alter, "--delete", "retention.ms", "--subtract", "cleanup.policy=compact")
    assert value(run, "topic", "c", key="retention.ms")[1] != "topic"
    assert value(run, "topic", "c", key="cleanup.policy")[0] == "delete"


@pytest.mark.parametrize(
    ("kind", "name", "key", "new"),
    [
        ("broker", "default", "log.retention.ms", "7200000"),
        ("broker", "1", "log.cleaner.threads", "2"),
        ("broker-logger", "1", "root", "DEBUG"),
        ("group", "g", "consumer.session.timeout.ms", "50000"),
        ("client-metrics", "m", "interval.ms", "60000"),
    ],
)
def test_settings_of_every_kind_are_set_and_taken_back(
    run: Commands, kind: str, name: str, key: str, new: str
) -> None:
    if kind == "broker-logger":
        every = run.rows("configs", "configs", "describe", kind, name, "--all")
        key = next(entry["key"] for entry in every if entry["key"] != "root")
    run("configs", "alter", kind, name, "--set", f"{key}={new}")
    assert value(run, kind, name, key=key)[0] == new
    run("configs", "alter", kind, name, "--delete", key)


def test_only_what_was_set_is_shown_without_all(run: Commands) -> None:
    run("topics", "create", "few", "-c", "retention.ms=1000")
    shown = {row["key"] for row in run.rows("configs", "configs", "describe", "topic", "few")}
    every = {
        row["key"]: row
        for row in run.rows("configs", "configs", "describe", "topic", "few", "--all", "--docs")
    }
    assert "retention.ms" in shown
    assert "max.message.bytes" not in shown
    assert every["max.message.bytes"]["documentation"]
    out, _ = run("configs", "describe", "topic", "few")
    assert "DOCUMENTATION" not in out
    assert "DOCUMENTATION" in run("configs", "describe", "topic", "few", "--docs")[0]


def test_patterns_and_lists_name_resources(run: Commands) -> None:
    run("topics", "create", "pat-a", "pat-b")
    assert (
        len(run.rows("resources", "configs", "alter", "topic", "-r", "pat-.", "--set", "retention.ms=5")) == 2
    )
    assert "no topic matches nothing" in run("configs", "describe", "topic", "-r", "nothing", code=1)[1]
    names = {row["name"] for row in run.rows("resources", "configs", "list", "topic")}
    assert {"pat-a", "pat-b"} <= names
    run("configs", "alter", "client-metrics", "listed", "--set", "interval.ms=60000")
    assert {"kind": "client-metrics", "name": "listed"} in run.rows("resources", "configs", "list")


def test_what_is_wrong_is_told(run: Commands) -> None:
    run("topics", "create", "wrong")
    out, _ = run("configs", "alter", "topic", "wrong", "--set", "retention.ms=never", code=1)
    assert "INVALID_CONFIG" in out
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run("configs", "describe", "topic", "missing", code=1)[0]
    assert "give --set" in run("configs", "alter", "topic", "wrong", code=2)[1]
    assert "is not KEY=VALUE" in run("configs", "alter", "topic", "wrong", "--set", "retention.ms", code=2)[1]
    assert (
        "broker 7 is not in the cluster"
        in run("configs", "describe", "broker", "7", "-X", "retries=0", code=1)[0]
    )
