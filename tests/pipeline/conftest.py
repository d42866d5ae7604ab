"""One broker, one simulated stream and one local Spark session for all tests of the pipeline.

Nothing here is collected by a plain `pytest`: see `make test-pipeline`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from barnabas_pipeline.jobs.load import LoadOptions
from barnabas_pipeline.lake.iceberg import Place
from barnabas_pipeline.lake.store import StoreIO
from barnabas_pipeline.simulate import produce
from barnabas_pipeline.simulate.model import KINDS, Event, Simulation, Site
from compat.kafka.broker import free_port
from compat.kafka.releases import KafkaError, fetched_jars
from compat.kit.java import running
from tests.pipeline.stores import BUCKET, FailingS3, Where
from tests.pipeline.tables import SCHEMA, local_place
from tests.pipeline.topics import Topic, login

ROOT = Path(__file__).resolve().parents[2]
READY = "bootstrap.servers="
STOP_SECONDS_MAX = 20
HDFS_START_SECONDS_MAX = 180
SITE = Site(seed=7, events=20_000)
BAD_FRACTION = 0.01


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The place of a table in a lake on this machine."""
    return local_place(tmp_path)


@dataclass
class Broker:
    """A broker process: where it listens, where its data is."""

    process: subprocess.Popen[str]
    bootstrap: str
    data: Path

    def stop(self, *, kill: bool = False) -> None:
        if self.process.poll() is None:
            if kill:
                self.process.kill()
            else:
                self.process.terminate()
            self.process.wait(STOP_SECONDS_MAX)
        if self.process.stdout:
            self.process.stdout.close()


def start_broker(data: Path, *settings: str, listen: str = "127.0.0.1:0") -> Broker:
    command = [sys.executable, "-m", "barnabas", "serve", "--listen", listen, "--data", str(data)]
    for setting in ("log.flush.offset.checkpoint.interval.ms=1000", *settings):
        command += ["--set", setting]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "server")}
    with (data.parent / f"{data.name}.log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert READY in line, f"the broker did not start: {line}"
    return Broker(process, line.split(READY)[1].split()[0], data)


@pytest.fixture
def new_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Start brokers that end with the test."""
    started: list[Broker] = []

    def start(*settings: str, data: Path | None = None, listen: str = "127.0.0.1:0") -> Broker:
        started.append(start_broker(data or tmp_path / "data", *settings, listen=listen))
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


@dataclass
class Stream:
    """A broker with a simulated stream in it."""

    broker: Broker
    simulation: Simulation
    events: list[Event]
    spoilt: dict[str, int]

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]


@pytest.fixture(scope="session")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stream]:
    """20,000 events with one bad record in a hundred, in topics of three partitions; they are not written to later."""
    data = tmp_path_factory.mktemp("stream") / "data"
    broker = start_broker(data, "log.retention.ms=-1", "log.segment.bytes=262144")
    simulation = Simulation(SITE)
    events = simulation.events()
    produce.create_topics(broker.bootstrap, KINDS, 3, {"retention.ms": "-1"})
    spoilt = produce.send(
        broker.bootstrap,
        events,
        bad_fraction=BAD_FRACTION,
        seed=SITE.seed,
        config={"compression.type": "lz4", "batch.num.messages": 100},
    )
    yield Stream(broker, simulation, events, dict(spoilt))
    broker.stop()


TOKEN_PROVIDER_FALLBACK = "4.0.0"


@pytest.fixture(scope="session")
def connector_jars() -> list[str]:
    """Spark's Kafka connector, fetched once by Maven into .tools; without it the tests fail, they are not skipped."""
    import pyspark

    name, options = f"spark-connector-{pyspark.__version__}", ["-DincludeScope=runtime"]
    options += [f"-Dspark.version={pyspark.__version__}"]
    try:
        cache = fetched(name, "connector", *options, f"-Dtoken.provider.version={pyspark.__version__}")
    except KafkaError:  # some mirrors lack the token provider, which nothing here uses, in this version
        cache = fetched(name, "connector", *options, f"-Dtoken.provider.version={TOKEN_PROVIDER_FALLBACK}")
    return sorted(str(path) for path in cache.glob("*.jar"))


def fetched(name: str, project: str, *options: str) -> Path:
    """Return the directory in .tools with the jars of a project of Maven's, fetched once; without them a test fails."""
    pom = Path(__file__).parent / project / "pom.xml"
    return fetched_jars(pom, ROOT / ".tools" / name, "-C", *options)


def spark_jars() -> str:
    """The classpath of Spark's own jars, Hadoop's clients among them."""
    import pyspark

    return f"{Path(pyspark.__file__).parent}/jars/*"


@pytest.fixture(scope="session")
def iceberg_classpath() -> str:
    """Apache Iceberg for Java, and Spark's jars of Hadoop."""
    return f"{fetched('iceberg-1.12.0', 'iceberg')}/*:{spark_jars()}"


@pytest.fixture(scope="session")
def namenode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An HDFS; yields its address."""
    directory, port = tmp_path_factory.mktemp("hdfs"), free_port()
    details, log = directory / "details.json", directory / "log"
    command = ["java", "-Xmx300m", f"-Dtest.build.data={directory}"]
    command += ["-cp", f"{fetched('hdfs-3.5.0', 'hdfs')}/*:{spark_jars()}"]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1"]
    command += ["-nnport", str(port), "-httpport", str(free_port()), "-writeDetails", str(details)]
    command += ["-D", "dfs.replication=1"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=directory)
    deadline = time.monotonic() + HDFS_START_SECONDS_MAX
    while not details.exists() or not details.stat().st_size:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    yield f"127.0.0.1:{port}"
    process.kill()
    process.wait()


@dataclass
class ServedCatalog:
    """A REST catalog: how it is reached, and the SQLite file in which it keeps its tables."""

    properties: dict[str, str]
    database: Path


@pytest.fixture
def rest_catalog(tmp_path: Path) -> Iterator[ServedCatalog]:
    """Apache Iceberg's own REST catalog, empty."""
    database, program = tmp_path / "rest.db", Path(__file__).parent / "rest_catalog" / "Serve.java"
    jars = f"{fetched('iceberg-rest-1.10.1', 'rest_catalog')}/*:{spark_jars()}"
    command = ["java", "-Xmx200m", "-cp", jars]
    log = tmp_path / "rest.log"  # which also has a line for each request
    with running([*command, str(program), str(database)], log, r"^port (\d+)$") as port:
        yield ServedCatalog({"type": "rest", "uri": f"http://127.0.0.1:{port}"}, database)


@pytest.fixture
def hive_catalog(tmp_path: Path) -> Iterator[str]:
    """The address of a Hive metastore, empty."""
    jars, program = fetched("hive-3.1.3", "hive"), Path(__file__).parent / "hive" / "Serve.java"
    command = ["java", "-Xmx300m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(program)]
    with running(
        [*command, str(free_port()), tmp_path.as_uri()], tmp_path / "hive.log", r"^port (\d+)$"
    ) as port:
        yield f"thrift://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def s3() -> Iterator[FailingS3]:
    """An S3 that fails when it is told to."""
    store = FailingS3()
    yield store
    store.stop()


@pytest.fixture
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Where:
    """A place of its own in the store that a test asks for by name."""
    if request.param == "local":
        return Where(f"file://{tmp_path}/where", StoreIO({}))
    if request.param == "s3":
        s3 = request.getfixturevalue("s3")
        return Where(f"s3://{BUCKET}/{tmp_path.name}", StoreIO(s3.properties))
    return Where(f"hdfs://{request.getfixturevalue('namenode')}/{tmp_path.name}", StoreIO({}))


@pytest.fixture(scope="session")
def spark(connector_jars: list[str]) -> Iterator[Any]:
    from barnabas_pipeline.spark import session

    spark = session.create(
        "tests",
        master="local[2]",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.jars": ",".join(connector_jars),
        },
    )
    yield spark
    spark.stop()


# --- a topic in files, and a load of it -----------------------------------------------------------------------------


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """Two partitions: good records of two hours with a bad one between them, and a transaction that was taken back."""
    topic = Topic(tmp_path / "data", 2)
    topic.append(login(0), b"no JSON", login(1))
    topic.append(login(0), b"{}", partition=1)
    topic.append(
        login(5), login(5), partition=1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    topic.end_transaction(7, commit=False, partition=1)
    topic.append(login(2), partition=1)
    return topic


@pytest.fixture
def options(tmp_path: Path, topic: Topic) -> LoadOptions:
    return LoadOptions(topic.options, local_place(tmp_path), SCHEMA)  # type: ignore[arg-type]
