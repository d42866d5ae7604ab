"""`python -m tools.packaging.trial [wheels] [deb] [container]`: install the files in dist/ where nothing is, and serve.

The rule: each is installed as its user would, without a compiler; a record goes through the broker with stock clients.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.install_wheel import ROOT
from tools.packaging import pythons, roots
from tools.packaging.serving import one_record, serving

PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14", "pypy3")
PACKAGES = ("python3", "python3-venv", "make", "ca-certificates")
SKIPPED = 77


def wheels_in(dist: Path, suite: str) -> None:
    """Install the wheels with the Python of a Debian, in which nothing else is, and serve there."""
    with roots.opened(roots.base(suite, PACKAGES)) as root:
        tag = root.run("python3", "-c", pythons.TAG).strip()
        for wheel in [*dist.glob(f"*-{tag}-{tag}-*.whl"), *dist.glob("*-py3-none-any.whl")]:
            shutil.copy(wheel, root.path / "tmp")
            root.run("python3", "-m", "venv", "--clear", "/tmp/venv")
            begun, load = time.monotonic(), os.getloadavg()[0]
            root.run("/tmp/venv/bin/pip", "install", "--quiet", f"/tmp/{wheel.name}")
            installed_s = time.monotonic() - begun
            serve = ["/tmp/venv/bin/barnabas", "serve", "--listen", "127.0.0.1:0", "--ephemeral"]
            with serving(root.command(*serve, cwd="/tmp")) as broker:
                one_record(broker.bootstrap)
            print(
                f"{suite}, {tag}: {wheel.name} installed in {installed_s:.1f} s, ready in {broker.ready_s:.1f} s,"
                f" code={broker.code} (load average {load:.1f})",
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
                one_record(broker.bootstrap)
            if broker.code != "compiled":
                raise RuntimeError(f"it runs {broker.code} code")
            print(
                f"{suite}: {package.name} installed in {installed_s:.1f} s, start {record + 1} ready in"
                f" {broker.ready_s:.1f} s, code={broker.code}",
                flush=True,
            )
        root.run("dpkg", "--purge", "barnabas")
        left = [
            path
            for path in ("opt/barnabas", "etc/barnabas", "usr/bin/barnabas")
            if (root.path / path).exists()
        ]
        if left or not (root.path / "var/lib/barnabas").exists():
            raise RuntimeError(f"after its removal there is {left}, or the data is gone")


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
    parser.add_argument("--pythons", nargs="+", default=list(PYTHONS), help="which Pythons get the wheels")
    parser.add_argument(
        "--suites", nargs="*", default=[], help="of which Debians the Pythons get the wheels, too"
    )
    parser.add_argument(
        "--compile", action="store_true", help="compile a wheel for each Python that has none"
    )
    parser.add_argument(
        "--limit-s", type=float, help="fail if the installation of a wheel takes more seconds of CPU"
    )
    options = parser.parse_args(arguments)
    what, code = options.what or ["wheels", "deb", "container"], 0
    if lack := roots.lack():
        print(f"SKIP deb, container: {lack}")
        what = [one for one in what if one == "wheels"]
    else:
        roots.enter_namespace("tools.packaging.trial")
    if "wheels" in what:
        within = pythons.wheels(
            options.dist.resolve(), options.pythons, compiles=options.compile, limit_s=options.limit_s
        )
        code = 0 if within else 1
        for suite in options.suites:
            wheels_in(options.dist.resolve(), suite)
    if "deb" in what:
        deb(options.dist.resolve(), options.suite)
    if "container" in what:
        code = container() or code
    return 0 if code == SKIPPED else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
