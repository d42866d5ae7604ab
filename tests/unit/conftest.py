"""ZooKeeper servers for the tests that ask for one: Apache's, and ours."""

import os
import shutil

import pytest

from compat.kafka import KafkaError, ZooKeeperServer, release
from compat.kafka.releases import fetch
from tests.support import zookeeper_process


@pytest.fixture(scope="session")
def real_zookeeper(tmp_path_factory):
    """HOST:PORT of a server that is started for these tests.

    Its jars are fetched where CI=true is set, and otherwise used if they are there: a test run downloads nothing large.
    """
    if shutil.which("java") is None:
        pytest.skip("no Java here, so no real ZooKeeper: apt-get install openjdk-17-jdk-headless")
    kafka = release("3.9")
    if not (kafka.jars / "done").exists() and not os.environ.get("CI"):
        pytest.skip(
            "ZooKeeper's jars are not here; to fetch them: python -m compat.kafka fetch --version 3.9"
        )
    try:
        fetch(kafka)
    except KafkaError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"ZooKeeper's jars cannot be used: {error}")
    server = ZooKeeperServer(kafka, tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server.address
    server.stop()


@pytest.fixture(scope="session")
def own_zookeeper(tmp_path_factory):
    """HOST:PORT of a server of ours that is started for these tests."""
    with zookeeper_process.own_zookeeper(tmp_path_factory.mktemp("own-zookeeper")) as address:
        yield address


@pytest.fixture(params=["apache", "ours"])
def any_zookeeper(request):
    """HOST:PORT of a server of each kind in turn."""
    return request.getfixturevalue("real_zookeeper" if request.param == "apache" else "own_zookeeper")
