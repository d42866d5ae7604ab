"""Java programs: ours compiled against the jars of a pom, once, and servers that run for the length of a block."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def running(command: list[str], log: Path, pattern: str, seconds_max: float = 300) -> Iterator[str]:
    """Run a server, in the directory of its log; yields the group of `pattern` in its output, once that is there."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=log.parent)
    try:
        deadline = time.monotonic() + seconds_max
        while not (ready := re.search(pattern, log.read_text(errors="replace"), re.MULTILINE)):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield ready[1]
    finally:
        process.kill()
        process.wait()
