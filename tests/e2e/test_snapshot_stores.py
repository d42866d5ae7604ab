"""`barnabas snapshot` and `barnabas fork`: a running broker's data in a store, and other brokers that begin with it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from .conftest import PROGRAM, READY, StartBroker

pytestmark = pytest.mark.e2e


def snapshot(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, "snapshot", *arguments], capture_output=True, text=True, check=False)


def row(*arguments: str) -> dict[str, object]:
    done = snapshot(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    value: dict[str, object] = json.loads(done.stdout)
    return value


@contextmanager
def fork(*arguments: str) -> Iterator[dict[str, str]]:
    with subprocess.Popen([*PROGRAM, "fork", *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert READY in line
        yield dict(word.split("=", 1) for word in line.split() if "=" in word)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def produce(bootstrap: str, first: int, end: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, end):
        producer.produce("orders", str(number), partition=0)
    assert producer.flush(30) == 0


def read(bootstrap: str, group: str) -> list[int]:
    """Values after the group's offset, which is committed then."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe(["orders"])
    numbers = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        numbers.append(int(message.value()))
    consumer.close()
    return numbers


def test_forks_hold_what_the_broker_held(start_broker: StartBroker, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    broker = start_broker(options=["--control", "127.0.0.1:0", "--topic", "orders"])
    produce(broker.bootstrap, 0, 100)
    assert read(broker.bootstrap, "g") == [*range(100)]
    produce(broker.bootstrap, 100, 120)
    assert row("push", url, "first", "--tag", "good", "--control", broker.control_url)["clean"]
    produce(broker.bootstrap, 120, 130)
    row("push", url, "second", "--control", broker.control_url)
    assert not list(Path(f"{broker.data}.snapshots").iterdir())
    with fork("--from", url, "--name", "good") as good, fork("--from", url) as newest:
        assert read(good["bootstrap.servers"], "g") == [*range(100, 120)]
        assert read(newest["bootstrap.servers"], "new") == [*range(130)]
        produce(good["bootstrap.servers"], 900, 910)
        data = Path(good["data"])
    assert not data.exists()
    assert read(broker.bootstrap, "g") == [*range(100, 130)]
    assert broker.stop() == 0
    assert row("push", url, "stopped", "--data", str(broker.data))["topics"] == 2
    pulled = tmp_path / "pulled"
    assert row("pull", url, "first", "--data", str(pulled))["directories"] == [str(pulled)]
    again = start_broker(data=pulled)
    assert read(again.bootstrap, "g") == [*range(100, 120)]
    assert row("delete", url, "first", "second", "stopped")["snapshots"] == ["first", "second", "stopped"]
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


def test_mistakes_are_explained_in_one_line(start_broker: StartBroker, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    broker = start_broker()
    has_stores = find_spec("obstore") is not None  # of the extra `tiered`
    no_region = (
        (2, "storage.s3.region has to be set") if has_stores else (1, "which the extra `tiered` brings")
    )
    for arguments, code, problem in (
        (["push", url, "--data", str(broker.data)], 1, "a broker uses"),
        (["push", url, "--data", str(tmp_path / "none")], 1, "there is no log dir"),
        (["push", url, "--control", broker.bootstrap], 1, "no control API answers"),
        (["pull", url, "--data", str(tmp_path / "new")], 1, "there is no snapshot in file:"),
        (["verify", url, "none"], 1, "there is no snapshot none"),
        (["delete", url, "none"], 1, "there is no snapshot or tag none"),
        (["list", "s3://bucket"], *no_region),
        (["list", "ftp://bucket"], 1, "a store is s3://BUCKET/PREFIX"),
        (["list", url, "--store", "x"], 1, "NAME=VALUE expected"),
        (["list", url, "--threads", "0"], 2, "a number from 1 to 64"),
    ):
        done = snapshot(*arguments)
        assert (done.returncode, done.stdout) == (code, ""), arguments
        assert problem in done.stderr.splitlines()[-1]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--from", "file:///none/store"], 1),
        (["--from", "file:///none/store", "--ephemeral"], 2),
        (["--from", "file:///none/store", "--workers=2"], 2),
        ([], 2),
    ],
)
def test_fork_that_cannot_be_is_explained(arguments: list[str], code: int) -> None:
    done = subprocess.run([*PROGRAM, "fork", *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert "barnabas fork: " in done.stderr.splitlines()[-1]
