"""A real ZooKeeper for the tests that ask for one."""

import shutil

import pytest

from compat.kafka import KafkaError, ZooKeeperServer, release
from compat.kafka.releases import fetch


@pytest.fixture(scope="session")
def real_zookeeper(tmp_path_factory):
    """HOST:PORT of a server that is started for these tests."""
    if shutil.which("java") is None:
        pytest.skip("no Java here, so no real ZooKeeper: apt-get install openjdk-17-jdk-headless")
    found = release("3.9")
    if not (found.jars / "done").exists() and shutil.which("mvn") is None:
        pytest.skip("neither ZooKeeper's jars nor Maven to fetch them: apt-get install maven")
    try:
        fetch(found)
    except KafkaError as error:
        pytest.skip(f"ZooKeeper's jars cannot be fetched: {error}")
    server = ZooKeeperServer(found, tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server.address
    server.stop()
