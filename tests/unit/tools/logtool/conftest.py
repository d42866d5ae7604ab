"""A log dir to look at, and the tool to look at it with."""

import json
import shutil
from pathlib import Path

import pytest

from barnabas.cli import main
from barnabas.records.validate import Origin
from tests.support.logs import NOW_MS, Broker, append, batch, marker, quick_directory

GOLDEN = Path(__file__).parents[3] / "golden" / "log" / "kafka-3.9.1"


class Tool:
    """`barnabas log`, run in this process: `code` is its exit code, `rows` what it printed."""

    def __init__(self, capsys) -> None:
        self._capsys = capsys
        self.code = -1

    def __call__(self, *arguments: object) -> list[dict]:
        self._capsys.readouterr()
        command, *rest = (str(argument) for argument in arguments)
        self.code = main(["log", command, "--json", *rest])
        out, self.err = self._capsys.readouterr()
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def tool(capsys):
    return Tool(capsys)


@pytest.fixture
def directory():
    path = quick_directory()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def kafka_dir(directory):
    """A log dir that Apache Kafka wrote."""
    return Path(shutil.copytree(GOLDEN, directory / "kafka"))


@pytest.fixture
def log_dir(directory):
    """A log dir of ours with several segments, epochs, a committed and an aborted transaction, closed cleanly."""
    broker = Broker(directory / "ours", segment_bytes=1_500, index_interval_bytes=200)
    log = broker.log("orders")
    for n in range(30):
        append(log, batch(b"%d" % n, b"x" * 50, timestamp=NOW_MS + n), epoch=n // 10)
    sequence = 0
    for commit in (False, True):
        for n in range(5):
            records = batch(
                b"t%d" % n, b"y" * 40, timestamp=NOW_MS + 100 + n, producer_id=7, producer_epoch=0,
                base_sequence=sequence, transactional=True,
            )  # fmt: skip
            append(log, records, epoch=3)
            sequence += 2
        append(log, marker(commit=commit, producer_id=7), epoch=3, origin=Origin.COORDINATOR)
    broker.manager.write_meta("cluster", 5)
    broker.manager.close()
    assert len(list((directory / "ours/orders-0").glob("*.log"))) > 3
    return directory / "ours"
