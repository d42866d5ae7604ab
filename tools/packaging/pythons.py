"""Wheels in new environments of each Python of this machine: installed without a compiler, records through the broker.

The rule: only the installation is timed. The wheel's requirements are fetched before, and installed from files, or from
pip's cache, as in the second installation on a machine.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import hatch_build
from tools.install_wheel import ROOT
from tools.packaging.serving import records_through, serving

TAG = "import sys; print(f'cp{sys.version_info[0]}{sys.version_info[1]}' if sys.implementation.name == 'cpython' else 'pp')"
FIRST = (3, 11)
HERE = (
    "~/.pyenv/versions/*/bin/python3",
    "~/.local/share/uv/python/*/bin/python3",
    "/opt/python*/bin/python3",
)
"""Directories of Pythons installed by pyenv and uv."""
NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
"""Names of packages that `venv` installs."""


@dataclass(frozen=True)
class Python:
    """An interpreter of this machine."""

    program: str
    tag: str
    version: str


def found(names: list[str]) -> list[Python]:
    """Return the Pythons of these names on the PATH, and those of pyenv and uv: one of each version."""
    programs = [path for name in names if (path := shutil.which(name))]
    for pattern in HERE:
        programs += sorted(glob(os.path.expanduser(pattern)))
    by_tag: dict[str, Python] = {}
    for program in programs:
        code = f"import ensurepip; {TAG}; print(sys.version.split()[0]); print(*sys.version_info[:2])"
        done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
        if done.returncode:
            continue  # a dangling link, or an incomplete Python
        tag, version, numbers = done.stdout.splitlines()
        if tuple(map(int, numbers.split())) >= FIRST:
            by_tag.setdefault(tag, Python(program, tag, version))
    return [by_tag[tag] for tag in sorted(by_tag)]


@contextmanager
def environment(python: Python) -> Iterator[Path]:
    """Create an environment for the length of the block; yields its directory."""
    with tempfile.TemporaryDirectory(prefix="barnabas-trial-") as directory:
        venv = Path(directory, "venv")
        subprocess.run([python.program, "-m", "venv", venv], check=True)
        yield venv


def pip(venv: Path, *words: str | Path, **more: str) -> None:
    """Run pip in an environment. Raises CalledProcessError."""
    command = [venv / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, env={**os.environ, **more}, check=True)


def make_pure(dist: Path) -> None:
    """Build the pure wheel of the present sources, unless it exists."""
    if not list(dist.glob("barnabas-*-py3-none-any.whl")):
        dist.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", dist, ROOT],
            env={**os.environ, hatch_build.SWITCH: "no"},
            check=True,
        )


def make_compiled(python: Python, dist: Path) -> None:
    """Compile a wheel of the present sources for a Python, unless it exists."""
    if not list(dist.glob(f"*-{python.tag}-{python.tag}-*.whl")):
        with environment(python) as venv:
            pip(venv, "wheel", "--no-deps", "--wheel-dir", dist, ROOT, **{hatch_build.SWITCH: "yes"})


def weight(venv: Path) -> tuple[int, float]:
    """Return how many packages an environment has, and how many MB they take with their byte code."""
    (packages,) = venv.glob("lib/*/site-packages")
    ours = [path for path in packages.iterdir() if not path.name.startswith(NOT_OURS)]
    files = [file for path in ours for file in ([path] if path.is_file() else path.rglob("*"))]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return sum(path.suffix == ".dist-info" for path in ours), size / 1e6


@dataclass(frozen=True)
class Trial:
    """Settings of a trial."""

    times: int = 1
    """Installations, each in a new environment."""
    records: int = 10_000
    """Records that go through its broker."""
    from_cache: bool = False
    """True if the requirements come from pip's cache, for which pip queries the index; False for files."""
    limit_s: float | None = None
    """CPU seconds that an installation may take: other load of the machine does not add to them."""

    def run(self, python: Python, wheel: Path) -> bool:
        """Install a wheel, send records through its broker, print a line; returns whether it was within the limit."""
        with tempfile.TemporaryDirectory(prefix="barnabas-wheels-") as directory:
            kept = Path(directory)
            with environment(python) as venv:
                pip(
                    venv,
                    "download",
                    "--only-binary",
                    ":all:",
                    "--dest",
                    kept / "files",
                    wheel,
                    **_cache(kept),
                )
            installed = [self._installed(python, wheel, kept) for _ in range(self.times)]
        walls, cpus, readies = (
            ", ".join(f"{getattr(trial, name):.1f}" for trial in installed)
            for name in ("wall_s", "cpu_s", "ready_s")
        )
        print(
            f"Python {python.version}: {wheel.name} installed in {walls} s ({cpus} s of CPU) from"
            f" {'the cache' if self.from_cache else 'files'}, {installed[0].packages} packages,"
            f" {installed[0].megabytes:.0f} MB; ready in {readies} s, code={installed[0].code}, {self.records} records"
            f" (load average {os.getloadavg()[0]:.1f})",
            flush=True,
        )
        return self.limit_s is None or max(trial.cpu_s for trial in installed) <= self.limit_s

    def _installed(self, python: Python, wheel: Path, kept: Path) -> _Installed:
        source: list[str | Path] = [] if self.from_cache else ["--no-index", "--find-links", kept / "files"]
        with environment(python) as venv:
            # Hide compilers and all other programs of this machine.
            alone = {"PATH": str(venv / "bin"), "CC": "/nonexistent/cc", "PIP_FIND_LINKS": "", **_cache(kept)}
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            pip(venv, "install", *source, wheel, **alone)
            wall_s, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
            packages, megabytes = weight(venv)
            serve = [str(venv / "bin/barnabas"), "serve", "--listen", "127.0.0.1:0", "--ephemeral"]
            with serving(serve) as broker:
                records_through(broker.bootstrap, self.records)
        expected = "interpreted" if wheel.name.endswith("-any.whl") else "compiled"
        if broker.code != expected:
            raise RuntimeError(f"{wheel.name} with {python.program}: it runs {broker.code} code")
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return _Installed(wall_s, cpu_s, packages, megabytes, broker.ready_s, broker.code)


@dataclass(frozen=True)
class _Installed:
    wall_s: float
    cpu_s: float
    packages: int
    megabytes: float
    ready_s: float
    code: str


def _cache(kept: Path) -> dict[str, str]:
    return {"PIP_CACHE_DIR": str(kept / "cache")}


def wheels(dist: Path, names: list[str], *, compiles: bool, trial: Trial) -> bool:
    """Try the wheels in `dist` with each Python; returns whether all installations were within the limit."""
    make_pure(dist)
    pythons, within = found(names), True
    if not pythons:
        raise RuntimeError(f"none of {', '.join(names)} is here")
    for python in pythons:
        if compiles:
            make_compiled(python, dist)
        for wheel in [
            *dist.glob(f"*-{python.tag}-{python.tag}-*.whl"),
            *dist.glob("barnabas-*-py3-none-any.whl"),
        ]:
            within = trial.run(python, wheel) and within
    return within
