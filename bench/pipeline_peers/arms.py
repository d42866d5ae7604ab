"""The three ways of a topic into a table: each is a command, the files that its user writes, and where they are.

The rule: two cores, two tasks, 2 GiB of heap, defaults otherwise. Jars are fetched once, by Maven, into `.tools`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from barnabas.testing.running import import_path
from bench.pipeline_peers import tables
from bench.pipeline_peers.processes import Job
from compat.kafka.broker import free_port
from compat.kafka.releases import ROOT, KafkaError, fetched_jars, release

HERE = Path(__file__).resolve().parent
HEAP = "-Xmx2g"
SPARK_CONF = ["--master", "local[2]", "--conf", "spark.driver.memory=2g"]
# Options that bin/spark-submit adds for Java 17.
OPEN = ("java.base/java.lang", "java.base/java.nio", "java.base/java.util", "java.base/sun.nio.ch",
        "java.base/java.net", "java.base/sun.util.calendar", "java.base/java.util.concurrent",
        "java.base/java.util.concurrent.atomic", "java.base/sun.security.action")  # fmt: skip
CONNECT = "org.apache.kafka.connect.cli.ConnectStandalone"


@dataclass(frozen=True, slots=True)
class Load:
    """A load of a topic: to its end with up to `portion` offsets a round (0: the default), or continuous.

    `follow_seconds` is the interval of commits of a continuous load; None for a load to the end.
    """

    bootstrap: str
    registry: str
    topic: str
    format: str
    lake: Path
    schemas: Path
    portion: int = 0
    follow_seconds: float | None = None


class Arm:
    """A way of loading."""

    name: str
    ends_alone = True
    """True if a load ends at the end of the topic."""

    def prepare(self) -> None:
        """Fetch and compile its requirements. Raises KafkaError."""

    def start(self, load: Load) -> Job:
        """Start a load."""
        raise NotImplementedError

    def lines(self, load: Load) -> int:
        """Return the number of lines that a user writes: one per option, and those of schema files."""
        raise NotImplementedError

    def _job(self, load: Load, command: list[str], **environment: str) -> Job:
        return Job(command, load.lake.parent / f"{load.lake.name}-{self.name}.log", environment)


def compiled(pom: str, *sources: str) -> str:
    """Return the class path of a pom's jars and of our classes. Raises KafkaError."""
    place = ROOT / ".tools" / f"pipeline-peers-{pom}"
    jars = fetched_jars(HERE / f"{pom}.xml", place, "-DincludeScope=runtime")
    classes = jars / "classes"
    command = ["javac", "-cp", f"{jars}/*", "-d", str(classes), *(str(HERE / source) for source in sources)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise KafkaError(f"javac: {built.stderr}")
    return f"{classes}:{jars}/*"


def lines_of(path: Path) -> int:
    """Return the number of a file's lines without imports, comments and empty lines."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return sum(1 for line in lines if not re.match(r"$|import |//|/\*|\*|#", line))


class Spark(Arm):
    """Spark's Kafka connector and Iceberg's runtime: a structured stream."""

    name = "spark"

    def prepare(self) -> None:
        """Fetch Spark with its connector, and compile the job."""
        self._classpath = compiled("spark", "Stream.java", "Messages.java")

    def start(self, load: Load) -> Job:
        """Start the stream."""
        tables.catalog(load.lake)
        words = [load.bootstrap, load.topic, load.format, str(load.lake), str(load.schemas)]
        words += [str(load.portion), "once" if load.follow_seconds is None else "follow"]
        opened = [word for package in OPEN for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
        quiet = f"-Dlog4j2.configurationFile={HERE.parents[1] / 'compat/kafka/log4j2.properties'}"
        return self._job(load, ["java", HEAP, quiet, *opened, "-cp", self._classpath, "Stream", *words])

    def lines(self, load: Load) -> int:
        """Return the number of lines of the job and the schema."""
        schemas = {"json": ["columns.sql"], "avro": ["columns.sql", "view.avsc"], "protobuf": ["columns.sql"]}
        return lines_of(HERE / "Stream.java") + sum(
            lines_of(load.schemas / name) for name in schemas[load.format]
        )


class Sink(Arm):
    """Iceberg's sink for Kafka Connect, in a separate worker."""

    name = "sink"
    ends_alone = False

    def prepare(self) -> None:
        """Fetch Kafka Connect with the sink, and compile the converters."""
        self._classpath = compiled("sink", "Values.java")

    def start(self, load: Load) -> Job:
        """Start the worker."""
        directory = load.lake.with_name(f"{load.lake.name}-connect")
        tables.catalog(load.lake)
        directory.mkdir(exist_ok=True)
        paths = []
        for name, properties in self._properties(load, directory).items():
            paths.append(directory / f"{name}.properties")
            paths[-1].write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = ["java", HEAP, *release("4.x").logging_options(), "-cp", self._classpath, CONNECT]
        return self._job(load, [*command, *map(str, paths)])

    def _properties(self, load: Load, directory: Path) -> dict[str, dict[str, str]]:
        interval_ms = str(int((3 if load.follow_seconds is None else load.follow_seconds) * 1000))
        worker = {
            "bootstrap.servers": load.bootstrap,
            "listeners": f"http://127.0.0.1:{free_port()}",
            "offset.flush.interval.ms": interval_ms,  # a task without new records learns of a commit no earlier
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": f"{directory}/offsets",
            "plugin.discovery": "service_load",
            "consumer.session.timeout.ms": "10000",
        }
        worker |= {
            "json": {
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
            },
            "avro": {
                "value.converter": "Values$Avro",
                "value.converter.schema.file": f"{load.schemas}/view.avsc",
            },
            "protobuf": {
                "value.converter": "Values$Protobuf",
                "value.converter.schema.file": f"{load.schemas}/view.desc",
            },
        }[load.format]
        connector = {
            "name": f"sink-{load.lake.name}",
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": "2",
            "topics": load.topic,
            "iceberg.tables": f"barnabas.{load.topic}",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.evolve-schema-enabled": "true",
            "iceberg.control.topic": f"control-{load.lake.name}",
            "iceberg.control.commit.interval-ms": interval_ms,
            "iceberg.catalog": "barnabas",
            "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "iceberg.catalog.uri": f"jdbc:sqlite:{load.lake}/catalog.db",
            "iceberg.catalog.warehouse": f"file://{load.lake}",
            "iceberg.catalog.jdbc.schema-version": "V1",
        }
        return {"worker": worker, "connector": connector}

    def lines(self, load: Load) -> int:
        """Return the number of lines of the worker's and the connector's properties; the schema is the registry's."""
        files = self._properties(load, load.lake)
        return sum(len(properties) for properties in files.values())


class Ours(Arm):
    """The pipeline's load."""

    name = "barnabas"

    def start(self, load: Load) -> Job:
        """Start the load."""
        path = os.pathsep.join((import_path(), str(ROOT / "pipeline"), str(ROOT)))
        command = [sys.executable, "-m", "barnabas_pipeline.cli", "load", *self.options(load), *SPARK_CONF]
        if load.portion:
            command += ["--offsets-per-trigger-max", str(load.portion)]
        return self._job(load, command, PYTHONPATH=path)

    @staticmethod
    def options(load: Load) -> list[str]:
        """The options that a user gives."""
        words = ["--topic", load.topic, "--bootstrap", load.bootstrap, "--lake", str(load.lake)]
        if load.format == "json":
            words += ["--schema", f"{load.schemas}/view.json"]
        else:
            words += ["--format", load.format, "--registry", load.registry, "--event-time", "ts"]
        return [
            *words,
            *(["--trigger", f"{load.follow_seconds:g} seconds"] if load.follow_seconds is not None else []),
        ]

    def lines(self, load: Load) -> int:
        """One for each option, and the schema file of JSON."""
        schema = lines_of(load.schemas / "view.json") if load.format == "json" else 0
        return 1 + len(self.options(load)) // 2 + schema


ARMS: tuple[type[Arm], ...] = (Spark, Sink, Ours)
