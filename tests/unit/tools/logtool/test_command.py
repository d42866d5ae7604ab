"""`barnabas log` itself: which places and partitions a command is about, what it leaves alone, and its exit codes."""

import pytest

from barnabas.log.disk import OsDisk
from barnabas.log.format import names
from barnabas.tools.logtool.logdirs import verify_log_dir
from barnabas.tools.logtool.verify import Severity
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


def test_check_of_some_partitions_skips_files_of_the_log_dir(tool, two):
    for arguments, partitions, errors in ((("--only", "a"), 2, 0), (("--only", "b-0"), 1, 0), ((), 3, 1)):
        row = tool("verify", *arguments, two)[-1]
        assert (row["partitions"], row["errors"], tool.code) == (partitions, errors, errors)
    assert tool("verify", two / "a-0", two / "b-0")[-1]["partitions"] == 2
    tool("verify", two / "a-0" / f"{0:020}.log")
    assert "is a file; name the directory of its partition" in tool.err


def test_checkpoints_are_told_by_what_they_say_of_each_log(tmp_path):
    result = []
    (tmp_path / names.LOG_START_CHECKPOINT).write_bytes(b"0\n3\nt 0 5\nt 1 6\nu 0 1\n")
    (tmp_path / names.HIGH_WATERMARK_CHECKPOINT).write_bytes(b"0\n2\nt 0 5\nt 1 6\n")
    verify_log_dir(OsDisk(), str(tmp_path), {("t", 0): 5, ("t", 1): 5}, result.append)
    assert [(finding.severity, finding.path.rpartition("/")[2], finding.text) for finding in result] == [
        (Severity.NOTE, "meta.properties", "is missing: no broker has used the dir yet, or it is a copy"),
        (Severity.ERROR, names.LOG_START_CHECKPOINT, "says 6 for t-1, which ends at 5"),
        (Severity.NOTE, names.LOG_START_CHECKPOINT, "speaks of u-0, which is not here"),
        (Severity.WARNING, names.HIGH_WATERMARK_CHECKPOINT, "says 6 for t-1, which ends at 5"),
    ]
    result.clear()
    (tmp_path / "meta.properties").write_bytes(b"version=x")
    verify_log_dir(OsDisk(), str(tmp_path), {("t", 0): 5, ("t", 1): 6, ("u", 0): 1}, result.append)
    assert [(finding.severity, finding.path.rpartition("/")[2]) for finding in result] == [
        (Severity.ERROR, "meta.properties")
    ]
