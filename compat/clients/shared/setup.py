"""Toolchains for the clients: what `run` does before the client's own program takes over.

The rule: versions are pinned by a file in the client's directory; its packages are installed below
`.tools/clients/<name>/`, and again only after a change of the file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(__file__).resolve().parent
TOOLS = ROOT / ".tools" / "clients"
BUILD_TIMEOUT_S = 900


class SetupError(Exception):
    """The client cannot be set up here; the message says what is missing and how to get it."""


class Client:
    """A client's directory, and the directory of its installed packages."""

    def __init__(self, run_file: str) -> None:
        self.source = Path(run_file).resolve().parent
        self.name = self.source.name
        self.place = TOOLS / self.name

    def main(self, prepare: Callable[[Client], tuple[list[str], dict[str, str]]]) -> NoReturn:
        """Prepare, then become the client's program with this process's arguments."""
        if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
            sys.exit(f"usage: {sys.argv[0]} HOST:PORT [CASE...]")
        try:
            with self._lock():
                command, environment = prepare(self)
        except SetupError as error:
            verdict = "FAIL" if os.environ.get("CI") == "true" else "SKIP"
            print(verdict, "setup", " ".join(str(error).split()))
            sys.exit(verdict == "FAIL")
        os.execvpe(
            command[0], [*command, *sys.argv[1:]], {**os.environ, "COMPAT_CLIENT": self.name, **environment}
        )

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.place.mkdir(parents=True, exist_ok=True)
        with (self.place / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def built(self, sources: Iterable[Path], build: Callable[[], None]) -> None:
        """Call `build` unless it was done before with the same sources."""
        digest = hashlib.sha256()
        for path in sorted(sources):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
        stamp = self.place / "built"
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return
        stamp.unlink(missing_ok=True)
        build()
        stamp.write_text(digest.hexdigest())

    def call(self, *command: str | Path, cwd: Path | None = None, **environment: str) -> str:
        """Run a build step; returns its output. Raises SetupError with the end of the output."""
        try:
            done = subprocess.run(
                [str(part) for part in command],
                cwd=cwd or self.source,
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
                env={**os.environ, **environment},
            )
        except subprocess.TimeoutExpired:
            raise SetupError(f"{command[0]} did not end in {BUILD_TIMEOUT_S} s") from None
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            last_lines = (done.stdout + done.stderr).strip().splitlines()[-3:]
            raise SetupError(f"{Path(command[0]).name} failed: {' / '.join(last_lines)}")
        return done.stdout


def need(program: str, how: str) -> str:
    """Return the path of a program. Raises SetupError if it is missing."""
    path = shutil.which(program)
    if not path:
        raise SetupError(f"{program} is missing; install {how}")
    return path


def python(client: Client, program: str, *, newest: int = 99) -> tuple[list[str], dict[str, str]]:
    """A virtual environment with the client's requirements.txt, and a program of shared/python, or one elsewhere.

    `newest` is the last minor version of Python 3 that the client works with. Raises SetupError.
    """
    environment = client.place / "venv"
    interpreter = _interpreter(newest)

    def build() -> None:
        shutil.rmtree(environment, ignore_errors=True)
        client.call(interpreter, "-m", "venv", environment)
        pip = (environment / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check")
        client.call(*pip, "-r", client.source / "requirements.txt")

    client.built([client.source / "requirements.txt"], build)
    command = [str(environment / "bin" / "python"), str(SHARED / "python" / program)]
    return command, {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(SHARED / "python")}


def _interpreter(newest: int) -> str:
    if sys.version_info.minor <= newest:
        return sys.executable
    for minor in range(newest, 7, -1):
        program = shutil.which(f"python3.{minor}")
        if program:
            return program
    raise SetupError(f"this client needs Python 3.{newest} or older, and only newer ones are installed")


def java(client: Client, main: str, *source_sets: str) -> tuple[list[str], dict[str, str]]:
    """The jars of the client's pom.xml, and a program of shared/java compiled against them.

    `source_sets` are directories of shared/java, or others by their path, `main` a class in them. Raises SetupError.
    """
    need("java", "a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)")
    compiler = need("javac", "a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)")
    maven = need("mvn", "Maven (Debian: apt-get install maven)")
    jars, classes, pom = client.place / "jars", client.place / "classes", client.source / "pom.xml"
    sources = [path for name in source_sets for path in sorted((SHARED / "java" / name).rglob("*.java"))]

    def build() -> None:
        for directory in (jars, classes):
            shutil.rmtree(directory, ignore_errors=True)
        copy = ("-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime")
        client.call(maven, *copy, f"-DoutputDirectory={jars}", MAVEN_OPTS="-Xmx256m")
        options = ("--release", "17", "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", classes)
        client.call(compiler, *options, *sources)

    client.built([pom, *sources], build)
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dfile.encoding=UTF-8"]
    return ["java", *options, "-cp", f"{classes}:{jars}/*", main], {}


def go(client: Client) -> tuple[list[str], dict[str, str]]:
    """The client's own program, built with shared/go. Raises SetupError."""
    compiler = need("go", "Go 1.25 or newer (https://go.dev/dl)")
    binary = client.place / "cases"
    sources = [*client.source.glob("*.go"), *client.source.glob("go.*"), *(SHARED / "go").iterdir()]
    client.built(sources, lambda: client.call(compiler, "build", "-o", binary, ".") and None)
    return [str(binary)], {}


def node(client: Client) -> tuple[list[str], dict[str, str]]:
    """The client's main.js with the packages that its package-lock.json names. Raises SetupError."""
    interpreter = need("node", "Node.js 20 or newer (Debian: apt-get install nodejs npm)")
    npm = need("npm", "npm (Debian: apt-get install npm)")
    locked = [client.source / "package.json", client.source / "package-lock.json"]

    def build() -> None:
        for path in locked:
            shutil.copy(path, client.place)
        client.call(npm, "ci", "--no-fund", "--no-audit", cwd=client.place)

    client.built(locked, build)
    environment = {
        "NODE_PATH": str(client.place / "node_modules"),
        "COMPAT_HARNESS": str(SHARED / "node" / "harness.js"),
    }
    return [interpreter, str(client.source / "main.js")], environment


def rust(client: Client) -> tuple[list[str], dict[str, str]]:
    """The client's own crate, built with what its Cargo.lock names. Raises SetupError."""
    cargo = need("cargo", "Rust 1.85 or newer (https://rustup.rs)")
    target = client.place / "target"
    sources = [*client.source.glob("Cargo.*"), *(client.source / "src").iterdir()]
    client.built(
        sources,
        lambda: client.call(cargo, "build", "--release", "--locked", CARGO_TARGET_DIR=str(target)) and None,
    )
    return [str(target / "release" / f"compat-{client.name}")], {}


def system_python(program: str) -> tuple[list[str], dict[str, str]]:
    """A program of shared/python that needs nothing but the standard library."""
    return [sys.executable, str(SHARED / "python" / program)], {"PYTHONDONTWRITEBYTECODE": "1"}


def debian(program: str, package: str) -> None:
    """Install the Debian package of a missing program, which needs root. Raises SetupError."""
    if shutil.which(program):
        return
    if os.geteuid() or not shutil.which("apt-get"):
        raise SetupError(f"{program} is missing; run: sudo apt-get install {package}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", package]):
        done = subprocess.run(
            ["apt-get", *command], capture_output=True, text=True, check=False, env=environment
        )
    if done.returncode:
        raise SetupError(f"apt-get install {package} failed: {done.stderr.strip()[-300:]}")
