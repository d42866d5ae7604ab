"""The processes of a run: PostgreSQL with a log that can be decoded, and Kafka Connect with Debezium's connector.

The rule: each is on loopback, with a separate directory, and is ended by its pid.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from compat.kafka.broker import free_port
from compat.kafka.process import LIGHT_JVM
from compat.kafka.releases import ROOT, KafkaError, fetched_jars, release

HERE = Path(__file__).resolve().parent
START_SECONDS_MAX = 60
SUPERUSER = "postgres"


class Postgres:
    """A server of PostgreSQL in a directory, which root does not run itself."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.port = directory / "postgres", free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}

    def start(self) -> None:
        """Make a cluster and serve it. Raises KafkaError where there is no PostgreSQL."""
        self.directory.mkdir()
        if self._as:
            os.chown(self.directory, pwd.getpwnam("nobody").pw_uid, -1)
            self.directory.parent.chmod(0o755)
        data = self.directory / "data"
        subprocess.run(
            [program("initdb"), "-D", data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True, capture_output=True, cwd=self.directory, **self._as,
        )  # fmt: skip
        command = [program("postgres"), "-D", data, "-p", str(self.port), "-k", self.directory]
        for setting in (
            "listen_addresses=127.0.0.1",
            "wal_level=logical",
            "timezone=UTC",
            "log_statement=none",
        ):
            command += ["-c", setting]
        with (self.directory.parent / "postgres.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory, **self._as)
        deadline = time.monotonic() + START_SECONDS_MAX
        while subprocess.run(self.psql("-c", "SELECT 1"), capture_output=True, check=False).returncode:
            if time.monotonic() > deadline:
                raise KafkaError(f"PostgreSQL does not start: {self.directory.parent / 'postgres.log'}")
            time.sleep(0.2)

    def psql(self, *more: str) -> list[str]:
        """The command line of a client."""
        command = [program("psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", SUPERUSER, "-d", SUPERUSER]
        return [*command, "-X", "-q", "-A", "-t", *more]

    def run(self, sql: str) -> str:
        """Run statements, each by itself; returns what they print."""
        done = subprocess.run(
            self.psql("-v", "ON_ERROR_STOP=1"), input=sql, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise KafkaError(f"PostgreSQL: {done.stderr}")
        return done.stdout

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()


def program(name: str) -> str:
    """The path of a program of PostgreSQL's. Raises KafkaError."""
    places = [*sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), shutil.which(name)]
    paths = [str(place) for place in places if place is not None]
    if not paths:
        raise KafkaError(f"{name} is missing; install PostgreSQL (Debian: apt-get install postgresql)")
    return paths[0]


class Connect:
    """A worker of Kafka Connect, alone, with some connectors of Debezium's."""

    def __init__(self, directory: Path, bootstrap: str, postgres: Postgres) -> None:
        self.directory = directory / "connect"
        self.directory.mkdir()
        self.log = directory / "connect.log"
        self._bootstrap, self._postgres = bootstrap, postgres
        self._connectors: list[Path] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._worker = self._written(
            "worker",
            {
                "bootstrap.servers": bootstrap,
                "listeners": f"http://127.0.0.1:{free_port()}",
                "key.converter": JSON,
                "value.converter": JSON,
                "offset.storage.file.filename": str(self.directory / "offsets"),
                "offset.flush.interval.ms": "1000",
                "plugin.discovery": "only_scan",
            },
        )

    def add(self, prefix: str, tables: str, **more: str) -> None:
        """Add a connector of topics with a prefix; settings with `_` for each dot."""
        properties = {
            "name": prefix,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._postgres.port),
            "database.user": SUPERUSER,
            "database.password": "none",
            "database.dbname": SUPERUSER,
            "topic.prefix": prefix,
            "table.include.list": tables,
            "slot.name": prefix,
            "publication.name": prefix,
            "publication.autocreate.mode": "filtered",
            "skipped.operations": "none",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "3",
        }
        self._connectors.append(
            self._written(
                prefix, properties | {name.replace("_", "."): value for name, value in more.items()}
            )
        )

    def start(self) -> None:
        """Start the worker; its jars are fetched once."""
        of = release("4.x")
        place = ROOT / ".tools" / f"debezium-{of.version}"
        jars = fetched_jars(HERE / "connect.xml", place, f"-Dkafka.version={of.version}")
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = ["java", *LIGHT_JVM, *of.logging_options(), "-cp", f"{jars}/*", main, str(self._worker)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *map(str, self._connectors)], stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _written(self, name: str, properties: dict[str, str]) -> Path:
        path = self.directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path


JSON = "org.apache.kafka.connect.json.JsonConverter"
