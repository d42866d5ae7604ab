"""`barnabas log` itself: which places and partitions a command is about, what it leaves alone, and its exit codes."""

import pytest

from barnabas.log.format import names
from tests.support.logs import Broker, append, batch

BROKEN = b"0\n7\n"


@pytest.fixture
def two(directory):
    """A log dir with two partitions of one topic and one of another, and a damaged checkpoint."""
    broker = Broker(directory / "two")
    for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
        append(broker.log(topic, partition), batch(b"x"))
    broker.manager.write_meta("cluster", 5)
    broker.manager.close()
    (directory / "two" / names.LOG_START_CHECKPOINT).write_bytes(BROKEN)
    return directory / "two"


def paths(rows):
    return [row["path"].rpartition("/")[2] for row in rows if "path" in row]


def test_repair_of_some_partitions_keeps_files_of_the_log_dir(tool, two):
    checkpoint = two / names.LOG_START_CHECKPOINT
    for arguments, partitions in ((("--only", "a"), ["a-0", "a-1"]), (("--only", "a-1"), ["a-1"])):
        assert paths(tool("repair", *arguments, two)) == partitions
        assert checkpoint.read_bytes() == BROKEN
    assert paths(tool("repair", two / "b-0")) == ["b-0"]
    assert checkpoint.read_bytes() == BROKEN
    for options, is_there in ((["--dry-run"], True), ([], False)):
        rows = tool("repair", *options, two)
        assert paths(rows) == [checkpoint.name, "a-0", "a-1", "b-0"]
        assert (rows[0]["kind"], rows[0]["text"]) == ("remove", "it is damaged; a broker builds it again")
        assert [row["kind"] for row in rows[1:]] == ["sound"] * 3
        assert checkpoint.exists() is is_there
    assert tool.code == 0


def test_check_of_some_partitions_skips_files_of_the_log_dir(tool, two):
    for arguments, partitions, errors in ((("--only", "a"), 2, 0), (("--only", "b-0"), 1, 0), ((), 3, 1)):
        row = tool("verify", *arguments, two)[-1]
        assert (row["partitions"], row["errors"], tool.code) == (partitions, errors, errors)
    assert tool("verify", two / "a-0", two / "b-0")[-1]["partitions"] == 2
    tool("verify", two / "a-0" / f"{0:020}.log")
    assert "is a file; name the directory of its partition" in tool.err


def test_figures_are_of_the_partitions_that_are_named(tool, two):
    assert [row["name"] for row in tool("stats", two)] == ["a-0", "a-1", "b-0"]
    assert [row["name"] for row in tool("stats", "--only", "a", two)] == ["a-0", "a-1"]
    assert ["distinct_keys" in row for row in tool("stats", "--deep", two / "b-0")] == [True]
    assert tool.code == 0
