"""`barnabas log` itself: which places and partitions a command is about, what it leaves alone, and its exit codes."""

import pytest

from barnabas.log.disk import OsDisk
from barnabas.log.format import names
from barnabas.tools.logtool.grouping import PLACES_MAX, FindingRows
from barnabas.tools.logtool.logdirs import verify_log_dir
from barnabas.tools.logtool.verify import Finding, Severity
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


def test_a_repair_of_some_partitions_leaves_the_log_dirs_own_files(tool, two):
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


def test_a_check_of_some_partitions_leaves_the_log_dirs_own_files(tool, two):
    for arguments, partitions, errors in ((("--only", "a"), 2, 0), (("--only", "b-0"), 1, 0), ((), 3, 1)):
        row = tool("verify", *arguments, two)[-1]
        assert (row["partitions"], row["errors"], tool.code) == (partitions, errors, errors)
    assert tool("verify", two / "a-0", two / "b-0")[-1]["partitions"] == 2
    tool("verify", two / "a-0" / f"{0:020}.log")
    assert "is a file; name the directory of its partition" in tool.err


def test_a_dump_of_some_partitions_leaves_the_log_dirs_own_files(tool, two):
    def files(*arguments):
        return [
            row["path"].removeprefix(f"{two}/") for row in tool("dump", *arguments) if row["kind"] == "file"
        ]

    own = [
        names.CLEAN_SHUTDOWN,
        names.LOG_START_CHECKPOINT,
        names.META_PROPERTIES,
        names.RECOVERY_POINT_CHECKPOINT,
    ]
    whole = files(two)
    assert [path for path in whole if path in own] == sorted(own)
    assert {path.partition("/")[0] for path in whole if path.count("/")} == {"a-0", "a-1", "b-0"}
    assert [path for path in files("--only", "a-1", two) if not path.startswith("a-1/")] == []
    assert {path.partition("/")[0] for path in files("--only", "a", two)} == {"a-0", "a-1"}
    (two / names.LOG_START_CHECKPOINT).unlink()
    files(two)
    assert tool.code == 0
    (two / names.LOG_START_CHECKPOINT).write_bytes(BROKEN)
    files(two)
    assert tool.code == 1


def test_figures_are_of_the_partitions_that_are_named(tool, two):
    assert [row["name"] for row in tool("stats", two)] == ["a-0", "a-1", "b-0"]
    assert [row["name"] for row in tool("stats", "--only", "a", two)] == ["a-0", "a-1"]
    assert ["distinct_keys" in row for row in tool("stats", "--deep", two / "b-0")] == [True]
    assert tool.code == 0


def test_checkpoints_are_told_by_what_they_say_of_each_log(tmp_path):
    found = []
    (tmp_path / names.LOG_START_CHECKPOINT).write_bytes(b"0\n3\nt 0 5\nt 1 6\nu 0 1\n")
    (tmp_path / names.HIGH_WATERMARK_CHECKPOINT).write_bytes(b"0\n2\nt 0 5\nt 1 6\n")
    verify_log_dir(OsDisk(), str(tmp_path), {("t", 0): 5, ("t", 1): 5}, found.append)
    assert [(one.severity, one.path.rpartition("/")[2], one.text) for one in found] == [
        (Severity.NOTE, "meta.properties", "is missing: no broker has used the dir yet, or it is a copy"),
        (Severity.ERROR, names.LOG_START_CHECKPOINT, "says 6 for t-1, which ends at 5"),
        (Severity.NOTE, names.LOG_START_CHECKPOINT, "speaks of u-0, which is not here"),
        (Severity.WARNING, names.HIGH_WATERMARK_CHECKPOINT, "says 6 for t-1, which ends at 5"),
    ]
    found.clear()
    (tmp_path / "meta.properties").write_bytes(b"version=x")
    verify_log_dir(OsDisk(), str(tmp_path), {("t", 0): 5, ("t", 1): 6, ("u", 0): 1}, found.append)
    assert [(one.severity, one.path.rpartition("/")[2]) for one in found] == [
        (Severity.ERROR, "meta.properties")
    ]


def test_findings_are_grouped_by_file_and_severity_with_their_first_places():
    rows, wiped = [], []
    findings = FindingRows(rows.append)
    findings.before_row = lambda: wiped.append(len(rows))
    for position in (7, -1, 8, 9, 10, 11):
        findings.add(Finding(Severity.ERROR, "a", f"at {position}", position))
    findings.add(Finding(Severity.NOTE, "a", "note"))
    findings.add(Finding(Severity.ERROR, "b", "alone", 0))
    assert rows == []
    findings.flush()
    assert rows == [
        {
            "kind": "error",
            "path": "a",
            "position": 7,
            "text": "at 7",
            "count": 6,
            "next_positions": [8, 9, 10],
        },
        {"kind": "note", "path": "a", "position": None, "text": "note"},
        {"kind": "error", "path": "b", "position": 0, "text": "alone"},
    ]
    assert (PLACES_MAX, wiped) == (3, [0, 1, 2])
    findings.flush()
    assert len(rows) == 3
    assert findings.counts == {Severity.NOTE: 1, Severity.WARNING: 0, Severity.ERROR: 7}


def test_findings_may_be_told_each_or_errors_alone():
    rows = []
    findings = FindingRows(rows.append, each=True, quiet=True)
    for severity in (Severity.NOTE, Severity.ERROR, Severity.WARNING, Severity.ERROR):
        findings.add(Finding(severity, "a", severity.name))
    assert [row["text"] for row in rows] == ["ERROR", "ERROR"]
    assert findings.counts == {Severity.NOTE: 1, Severity.WARNING: 1, Severity.ERROR: 2}
