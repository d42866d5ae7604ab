"""`python -m tools.packaging.trial [wheels] [deb] [container]`: install the files in dist/ on bare systems, and serve.

The rule: each file is installed as by its user, without a compiler; stock clients send and read records.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import hatch_build
from tools.install_wheel import ROOT
from tools.packaging import pythons, roots
from tools.packaging.pythons import Trial
from tools.packaging.serving import records_through, serving

PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
PACKAGES = ("python3", "python3-venv", "make", "ca-certificates")
COMPILER = ("gcc", "libc6-dev", "python3-dev")
SKIPPED = 77
VERSION = f"{pythons.TAG}; print(sys.version.split()[0])"


@dataclass(frozen=True)
class Debian:
    """A bare Debian and its Python."""

    suite: str

    def compile(self, dist: Path) -> None:
        """Compile a wheel of the checked-out commit for its Python, unless it exists."""
        with roots.opened(roots.base(self.suite, (*PACKAGES, *COMPILER))) as root:
            tag = root.run("python3", "-c", pythons.TAG).strip()
            if list(dist.glob(f"*-{tag}-{tag}-*.whl")):
                return
            source = root.path / "tmp/source"
            source.mkdir()
            inner = f"git archive HEAD | tar --extract --directory '{source}'"
            subprocess.run(["sh", "-c", inner], cwd=ROOT, check=True)
            root.run("python3", "-m", "venv", "/tmp/venv")
            pip = [
                "/tmp/venv/bin/pip",
                "wheel",
                "--quiet",
                "--no-deps",
                "--wheel-dir",
                "/tmp/made",
                "/tmp/source",
            ]
            root.run("env", f"{hatch_build.SWITCH}=yes", *pip)
            (wheel,) = (root.path / "tmp/made").iterdir()
            shutil.copy(wheel, dist)

    def serve(self, dist: Path, records: int) -> None:
        """Install the wheels that its Python takes, and serve there."""
        with roots.opened(roots.base(self.suite, PACKAGES)) as root:
            tag, version = root.run("python3", "-c", VERSION).split()
            for wheel in [*dist.glob(f"*-{tag}-{tag}-*.whl"), *dist.glob("barnabas-*-py3-none-any.whl")]:
                shutil.copy(wheel, root.path / "tmp")
                root.run("python3", "-m", "venv", "--clear", "/tmp/venv")
                begun, load = time.monotonic(), os.getloadavg()[0]
                root.run("/tmp/venv/bin/pip", "install", "--quiet", f"/tmp/{wheel.name}")
                installed_s = time.monotonic() - begun
                serve = ["/tmp/venv/bin/barnabas", "serve", "--listen", "127.0.0.1:0", "--ephemeral"]
                with serving(root.command(*serve, cwd="/tmp")) as broker:
                    records_through(broker.bootstrap, records)
                print(
                    f"{self.suite}, Python {version}: {wheel.name} installed in {installed_s:.1f} s, ready in"
                    f" {broker.ready_s:.1f} s, code={broker.code}, {records} records (load average {load:.1f})",
                    flush=True,
                )


def deb(dist: Path, suite: str) -> None:
    """Install the package in a Debian without a compiler, start its unit's command as its user, and remove it again."""
    (package,) = dist.glob("*.deb")
    with roots.opened(roots.base(suite, PACKAGES)) as root:
        shutil.copy(package, root.path / "barnabas.deb")
        begun = time.monotonic()
        root.run("dpkg", "--install", "/barnabas.deb")
        installed_s = time.monotonic() - begun
        unit = (root.path / "usr/lib/systemd/system/barnabas.service").read_text()
        start = next(line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart="))
        settings = root.path / "etc/barnabas/server.properties"
        settings.write_text(settings.read_text().replace("localhost:9092", "127.0.0.1:0"))
        # As systemd would: User= and StateDirectory= of the unit.
        root.run("install", "--directory", "--owner=barnabas", "--group=barnabas", "/var/lib/barnabas")
        identity = root.run("id", "--user", "barnabas").strip()
        command = root.command(*start.split(), user=identity)
        for record in range(2):
            with serving(command) as broker:
                records_through(broker.bootstrap)
            if broker.code != "compiled":
                raise RuntimeError(f"it runs {broker.code} code")
            print(
                f"{suite}: {package.name} installed in {installed_s:.1f} s, start {record + 1} ready in"
                f" {broker.ready_s:.1f} s, code={broker.code}",
                flush=True,
            )
        root.run("dpkg", "--purge", "barnabas")
        leftovers = [
            path
            for path in ("opt/barnabas", "etc/barnabas", "usr/bin/barnabas")
            if (root.path / path).exists()
        ]
        if leftovers or not (root.path / "var/lib/barnabas").exists():
            raise RuntimeError(f"after its removal there is {leftovers}, or the data is gone")


def container() -> int:
    """Build the image and try it; returns the exit code of the script, 77 where it cannot work."""
    return subprocess.run(
        ["sh", "deploy/try-container.sh", roots.KEPT / "container"], cwd=ROOT, check=False
    ).returncode


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.packaging.trial", description=__doc__)
    parser.add_argument("what", nargs="*", choices=["wheels", "deb", "container", []], help="all by default")
    parser.add_argument(
        "--dist", type=Path, default=ROOT / "dist", help="where the files are (default: dist)"
    )
    parser.add_argument(
        "--suite", default="bookworm", help="which Debian gets the package (default: bookworm)"
    )
    parser.add_argument(
        "--pythons",
        nargs="*",
        default=list(PYTHONS),
        help="which Pythons get the wheels; none: no Python of this machine",
    )
    parser.add_argument(
        "--suites", nargs="*", default=[], metavar="SUITE",
        help="of which Debians the Pythons get the wheels, too: sid, trixie",
    )  # fmt: skip
    parser.add_argument(
        "--compile", action="store_true", help="compile a wheel for each Python that has none"
    )
    parser.add_argument(
        "--limit-s", type=float, help="fail if the installation of a wheel takes more seconds of CPU"
    )
    parser.add_argument("--times", type=int, default=1, help="how often a wheel is installed (default: 1)")
    parser.add_argument("--records", type=int, default=10_000, help="how many go through a wheel's broker")
    parser.add_argument(
        "--cached", action="store_true", help="install from pip's cache, asking the index, not from files"
    )
    options = parser.parse_args(arguments)
    what, code = options.what or ["wheels", "deb", "container"], 0
    if lack := roots.lack():
        print(f"SKIP deb, container: {lack}")
        what = [part for part in what if part == "wheels"]
    else:
        roots.enter_namespace("tools.packaging.trial")
    if "wheels" in what:
        dist, trial = (
            options.dist.resolve(),
            Trial(options.times, options.records, options.cached, options.limit_s),
        )
        if options.pythons:
            within = pythons.wheels(dist, options.pythons, compiles=options.compile, trial=trial)
            code = 0 if within else 1
        for debian in map(Debian, options.suites):
            if options.compile:
                debian.compile(dist)
            debian.serve(dist, options.records)
    if "deb" in what:
        deb(options.dist.resolve(), options.suite)
    if "container" in what:
        code = container() or code
    return 0 if code == SKIPPED else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
