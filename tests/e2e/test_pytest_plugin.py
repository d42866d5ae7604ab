"""The fixtures of `barnabas.testing.pytest_plugin`, in test runs of their own, as users have them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from barnabas.testing.running import import_path
from tests.support.systems import IS_BSD

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "barnabas.testing.pytest_plugin"


def ran(directory: Path, *arguments: str, **outcomes: int) -> str:
    """Run the tests of a directory, and see that so many passed, failed, ...; returns what pytest said."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider", "--strict-markers", *arguments],
        capture_output=True, text=True, timeout=120, check=False, cwd=directory,
        env={**os.environ, "PYTHONPATH": import_path(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    last = done.stdout.strip().splitlines()[-1]
    result = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?)", last)}
    assert result == outcomes, done.stdout + done.stderr
    return done.stdout


def test_a_test_finds_the_broker_as_it_was_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "seeds.yaml").write_text("topics: {seeded: 2}\n")
    (tmp_path / "more.yaml").write_text("topics: {of-file: 1}\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nkafka_seed_file = seeds.yaml\nkafka_settings =\n    num.partitions=4\n"
    )
    (tmp_path / "test_it.py").write_text(
        """
import pytest

addresses = set()


@pytest.mark.parametrize("number", range(3))
def test_alone(kafka_broker, number):
    addresses.add(kafka_broker.bootstrap)
    assert len(addresses) == 1
    assert kafka_broker.topics() == ["seeded"]
    kafka_broker.create_topic(f"t{number}")
    assert len(kafka_broker.topic(f"t{number}")["partitions"]) == 4


@pytest.mark.kafka(topics={"marked": 3}, seeds={"topics": {"more": {"records": ["a"]}}}, seed_file="more.yaml")
def test_marked(kafka_broker, kafka_bootstrap):
    assert kafka_bootstrap == kafka_broker.bootstrap
    assert kafka_broker.topics() == ["marked", "more", "of-file", "seeded"]
    assert [record.value for record in kafka_broker.records("more")] == [b"a"]


def test_another(kafka_broker, kafka_start):
    other = kafka_start(seeds={"topics": {"other": 1}})
    assert (other.topics(), kafka_broker.topics()) == (["other"], ["seeded"])
"""
    )
    ran(tmp_path, passed=5)


def test_a_broker_may_live_for_a_module_and_be_a_process(tmp_path: Path) -> None:
    text = """
import pytest


@pytest.fixture(scope="module")
def topic(kafka_shared_broker):
    kafka_shared_broker.create_topic("of-the-module")
    kafka_shared_broker.set_baseline()


@pytest.mark.parametrize("number", range(2))
def test_it(topic, kafka_broker, number):
    assert kafka_broker.topics() == ["of-the-module"]
    kafka_broker.create_topic("t")
"""
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text(text)
    ran(tmp_path, "--kafka-scope=module", "--kafka-mode=process", passed=4)


def test_a_broker_may_live_for_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
seen = set()


def test_a(kafka_broker):
    seen.add(kafka_broker.bootstrap)


def test_b(kafka_broker):
    assert kafka_broker.bootstrap not in seen
"""
    )
    ran(tmp_path, "--kafka-scope=function", passed=2)


def test_workers_of_xdist_have_brokers_of_their_own(tmp_path: Path) -> None:
    """The same names in each of them, and none sees what another one made."""
    (tmp_path / "test_it.py").write_text(
        """
import os
from pathlib import Path

import pytest

SEEN = Path(__file__).with_name("seen")


@pytest.mark.parametrize("number", range(8))
def test_it(kafka_broker, number):
    assert kafka_broker.topics() == []
    kafka_broker.create_topic("t", records=[str(number)])
    kafka_broker.set_offsets("g", {"t": {0: "latest"}})
    kafka_broker.snapshot("s", replace=True)
    assert [record.value for record in kafka_broker.records("t")] == [str(number).encode()]
    with SEEN.open("a") as seen:
        print(os.environ["PYTEST_XDIST_WORKER"], kafka_broker.bootstrap, file=seen)
"""
    )
    ran(tmp_path, "-p", "xdist", "-n", "2", passed=8)
    workers: dict[str, set[str]] = {}
    for line in (tmp_path / "seen").read_text().splitlines():
        worker, address = line.split()
        workers.setdefault(worker, set()).add(address)
    assert len(workers) == 2
    assert all(len(addresses) == 1 for addresses in workers.values()), "one broker for a worker's session"
    assert len(set.union(*workers.values())) == 2


@pytest.mark.skipif(IS_BSD, reason="pytest loads Trio as a plugin, past what has it choose kqueue on Linux")
def test_asynchronous_tests(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    (tmp_path / "test_it.py").write_text(
        """
import asyncio

import trio
from barnabas.testing import open_broker


async def test_with_trio(kafka_async_broker):
    await kafka_async_broker.create_topic("t", records=["a"])
    await kafka_async_broker.wait_for_records("t", 1)


async def test_in_the_same_loop():
    async with open_broker(seeds={"topics": {"t": 1}}) as broker:
        assert await broker.topics() == ["t"]


def test_with_asyncio(kafka_async_broker):
    async def use():
        assert await kafka_async_broker.topics() == []

    asyncio.run(use())
"""
    )
    ran(tmp_path, "-p", "trio", passed=3)


def test_mistakes_are_told(tmp_path: Path) -> None:
    (tmp_path / "seeds.yaml").write_text("topics: {seeded: none}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nkafka_seed_file = seeds.yaml\n")
    (tmp_path / "test_it.py").write_text("def test_it(kafka_broker): pass\n")
    assert "seeds.yaml:1: topics.seeded: fields (partitions, settings, records) expected" in ran(
        tmp_path, error=1
    )


def test_a_run_without_brokers_imports_none(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import sys\n\n\ndef test_it(): assert 'trio' not in sys.modules\n")
    ran(tmp_path, passed=1)


def test_pytest_finds_the_plugin_where_the_package_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"barnabas": PLUGIN}
