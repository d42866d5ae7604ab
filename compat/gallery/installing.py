"""Clients at exact versions: installed by their registries' own tools, once, under `.tools/gallery`.

The rule: what is installed for one version is not touched by another.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from string import Template

from compat.gallery.catalogue import Bug
from compat.kafka.releases import KafkaError
from compat.kit.java import built
from compat.kit.locks import locked

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / ".tools" / "gallery"
SUPPORT = Path(__file__).with_name("support")
INSTALL_TIMEOUT_S = 900
GO_MODULES = {
    "franz-go": "github.com/twmb/franz-go",
    "sarama": "github.com/IBM/sarama",
    "kafka-go": "github.com/segmentio/kafka-go",
}
PYTHON_PACKAGES = ("confluent-kafka", "kafka-python", "aiokafka")
NODE_PACKAGES = ("kafkajs",)
POM = Template("""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>gallery</groupId><artifactId>$name</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
""")


class InstallError(Exception):
    """A client cannot be installed here; the message says why."""


def command(bug: Bug, version: str) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs a bug's program with a version of its client, and its environment.

    Raises InstallError.
    """
    makers: dict[str, Callable[[Bug, str], tuple[list[str], dict[str, str]]]] = {
        **dict.fromkeys(PYTHON_PACKAGES, _python),
        **dict.fromkeys(GO_MODULES, _go),
        **dict.fromkeys(NODE_PACKAGES, _node),
        "java": _java,
    }
    if bug.client not in makers:
        raise InstallError(f"{bug.client} is no client that can be installed here: {', '.join(makers)}")
    with locked(PLACE / f"{bug.client}-{version}.lock"):
        return makers[bug.client](bug, version)


def _python(bug: Bug, version: str) -> tuple[list[str], dict[str, str]]:
    """A virtual environment for each set of packages."""
    packages = (f"{bug.client}=={version}", *bug.with_packages)
    place = PLACE / "-".join((bug.client, version, *(name.replace("==", "-") for name in bug.with_packages)))
    python = place / "bin" / "python"
    if not (place / "built").exists():
        shutil.rmtree(place, ignore_errors=True)
        _call(sys.executable, "-m", "venv", place)
        _call(
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary=:all:",
            *packages,
        )
        (place / "built").touch()
    return [str(python), str(bug.program)], {"PYTHONPATH": str(SUPPORT), "PYTHONDONTWRITEBYTECODE": "1"}


def _node(bug: Bug, version: str) -> tuple[list[str], dict[str, str]]:
    node, npm = _need("node"), _need("npm")
    place = PLACE / f"{bug.client}-{version}"
    if not (place / "built").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "package.json").write_text('{"private": true}\n')
        _call(npm, "install", "--no-fund", "--no-audit", "--silent", f"{bug.client}@{version}", cwd=place)
        (place / "built").touch()
    return [node, str(bug.program)], {"NODE_PATH": str(place / "node_modules")}


def _go(bug: Bug, version: str) -> tuple[list[str], dict[str, str]]:
    go = _need("go")
    place = PLACE / f"{bug.name}-{version}"
    source = bug.program.read_text(encoding="utf-8")
    stamp = place / "built"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != source:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "main.go").write_text(source, encoding="utf-8")
        module = f"module gallery\n\ngo 1.21\n\nrequire {GO_MODULES[bug.client]} v{version}\n"
        (place / "go.mod").write_text(module, encoding="utf-8")
        _call(go, "mod", "tidy", cwd=place)
        _call(go, "build", "-o", "program", ".", cwd=place)
        stamp.write_text(source, encoding="utf-8")
    return [str(place / "program")], {}


def _java(bug: Bug, version: str) -> tuple[list[str], dict[str, str]]:
    source = PLACE / f"{bug.name}-{version}.source"
    source.mkdir(parents=True, exist_ok=True)
    (source / "pom.xml").write_text(POM.substitute(name=bug.name, version=version), encoding="utf-8")
    shutil.copy(bug.program, source / "Program.java")
    try:
        path = built(source, f"gallery/{bug.name}-{version}")
    except KafkaError as error:
        raise InstallError(str(error)) from error
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
    return ["java", *options, "-cp", path, "Program"], {}


def _need(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise InstallError(f"{program} is not on this machine")
    return path


def _call(*words: str | Path, cwd: Path | None = None) -> None:
    """Run a step of an installation. Raises InstallError with the end of what it said."""
    try:
        done = subprocess.run(
            [str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False,
            env={**os.environ, "GOFLAGS": "-mod=mod"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"{words[0]}: {error}") from error
    if done.returncode:
        last_lines = " / ".join((done.stdout + done.stderr).strip().splitlines()[-4:])
        raise InstallError(f"{' '.join(str(word) for word in words[:3])} ... failed: {last_lines}")
