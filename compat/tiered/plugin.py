"""Aiven's plug-in, compiled from a checkout of its sources: its jars are in no registry.

The rule: version 1.0.0 whole, but for its stores in clouds: they need more than a hundred jars, and none of them decides
about the layout. It is compiled against Kafka 3.9, as it imports classes of it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from compat.kafka.releases import ROOT, KafkaError, maven

PARTS = ("core", "commons", "storage/core", "storage/filesystem")
REPOSITORY = "https://github.com/Aiven-Open/tiered-storage-for-apache-kafka"
VERSION = "v1.0.0"
POM = Path(__file__).with_name("plugin.xml")
CLASS = "io.aiven.kafka.tieredstorage.RemoteStorageManager"


def built(sources: Path) -> str:
    """The class path of the plug-in, compiled once into `.tools/`. Raises KafkaError."""
    place = ROOT / ".tools" / f"tiered-plugin-{VERSION}"
    jars, needed, classes = place / "jars", place / "compile", place / "classes"
    if not (place / "built").exists():
        shutil.rmtree(place, ignore_errors=True)
        maven(POM, jars, "-DincludeScope=runtime")
        maven(POM, needed, "-DincludeScope=provided")
        files = [str(path) for part in PARTS for path in (sources / part / "src/main").rglob("*.java")]
        if not files:
            raise KafkaError(f"{sources} has no sources of the plug-in: git clone -b {VERSION} {REPOSITORY}")
        command = [
            "javac",
            "--release",
            "17",
            "-nowarn",
            "-cp",
            f"{jars}/*:{needed}/*",
            "-d",
            str(classes),
            *files,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KafkaError(f"the plug-in cannot be compiled:\n{done.stderr[-2000:]}")
        (place / "built").touch()
    return f"{classes}:{jars}/*"
