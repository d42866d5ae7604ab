"""Java programs of ours: compiled against the jars of a pom, once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from compat.kafka.releases import ROOT, KafkaError, maven, require


def built(source: Path, name: str, *options: str) -> str:
    """The class path of the program in a directory with `pom.xml` and Java files; kept in `.tools/<name>`.

    It is compiled again when a file is another. `options` are Maven's. Raises KafkaError.
    """
    require("javac", "a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)")
    require("mvn", "Maven (Debian: apt-get install maven)")
    place = ROOT / ".tools" / name
    jars, classes, stamp = place / "jars", place / "classes", place / "built"
    text = "".join(path.read_text() for path in sorted(source.iterdir()))
    if not stamp.exists() or stamp.read_text() != text:
        shutil.rmtree(place, ignore_errors=True)
        jars.mkdir(parents=True)
        maven(source / "pom.xml", jars, *options)
        programs = [str(path) for path in sorted(source.glob("*.java"))]
        command = ["javac", "--release", "17", "-cp", f"{jars}/*", "-d", str(classes), *programs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KafkaError(f"{source.name} cannot be compiled:\n{done.stdout}{done.stderr}")
        stamp.write_text(text)
    return f"{classes}:{jars}/*"
