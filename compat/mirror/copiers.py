"""Copiers: our mirror, and MirrorMaker 2 with and without its own exactly-once support.

The rule: a copier is a process group that is started, killed as a whole, and started again with the same command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path

from barnabas.testing.running import import_path
from compat.kafka.process import LIGHT_JVM
from compat.kafka.releases import ROOT, fetched_jars, release

TOPIC = "t"
HERE = Path(__file__).resolve().parent


class Copier(ABC):
    """Copies TOPIC of one cluster into another; `target_topic` is its name there."""

    name = ""
    target_topic = TOPIC

    def __init__(self, source: str, target: str, directory: Path) -> None:
        self.source, self.target, self.directory = source, target, directory
        self.log = directory / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line."""

    def environment(self) -> dict[str, str]:
        """Return environment variables of the process in addition to ours."""
        return {}

    def start(self) -> None:
        """Start it in a session of its own."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.directory,
                env={**os.environ, **self.environment()},
            )

    def kill(self) -> None:
        """End it and all that it has started by SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def has_ended(self) -> bool:
        """True if it has ended by itself."""
        return self._process is not None and self._process.poll() is not None


class Ours(Copier):
    """`barnabas-pipeline mirror` in rounds."""

    name = "barnabas-pipeline mirror"

    def command(self) -> list[str]:
        """Return the command line."""
        command = [sys.executable, "-m", "barnabas_pipeline.cli", "mirror", "--topic", TOPIC, "--json"]
        command += [
            "--bootstrap",
            self.source,
            "--to-bootstrap",
            self.target,
            "--trigger",
            "200 milliseconds",
        ]
        return [*command, "--master", "local[2, 4]", "--conf", "spark.driver.memory=512m"]

    def environment(self) -> dict[str, str]:
        """Return where the sources are."""
        return {"PYTHONPATH": f"{import_path()}{os.pathsep}{ROOT / 'pipeline'}"}


class MirrorMaker(Copier):
    """MirrorMaker 2 with its defaults."""

    name = "MirrorMaker 2"
    target_topic = f"a.{TOPIC}"
    exactly_once = False

    def command(self) -> list[str]:
        """Return the command line; its jars are fetched once."""
        of = release("4.x")
        place = ROOT / ".tools" / f"mirror-maker-{of.version}"
        jars = fetched_jars(HERE / "mirror-maker.xml", place, f"-Dkafka.version={of.version}")
        properties = self.directory / f"{self.name}.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        options = [*LIGHT_JVM, *of.logging_options()]
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        return ["java", *options, "-cp", f"{jars}/*", main, str(properties)]

    def _properties(self) -> dict[str, str]:
        internal = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")
        storage = ("offset.storage", "status.storage", "config.storage")
        properties = {
            "clusters": "a, b",
            "a.bootstrap.servers": self.source,
            "b.bootstrap.servers": self.target,
            "a->b.enabled": "true",
            "a->b.topics": TOPIC,
            "b->a.enabled": "false",
            "replication.factor": "1",
            "tasks.max": "2",
            "emit.heartbeats.enabled": "false",
            "a.consumer.isolation.level": "read_committed",
            "offset.flush.interval.ms": "1000",
            **{f"{name}.replication.factor": "1" for name in (*internal, *storage)},
        }
        if self.exactly_once:
            properties["b.exactly.once.source.support"] = "enabled"
        return properties


class ExactMirrorMaker(MirrorMaker):
    """MirrorMaker 2 with `exactly.once.source.support`."""

    name = "MirrorMaker 2, exactly once"
    exactly_once = True


COPIERS: dict[str, type[Copier]] = {"ours": Ours, "mm2": MirrorMaker, "mm2-exact": ExactMirrorMaker}
