"""Debian package of a wheel, with all that it needs in /opt/barnabas, the systemd unit and a setting file.

The rule: it holds the locked packages of requirements/run.txt, so it needs nothing but the distribution's Python, of
the version that it names; it starts nothing by itself, and removing it removes no data.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HOME = "opt/barnabas"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CONTROL = """\
Package: barnabas
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {size}
Depends: python3 (>= {python}), python3 (<< {next_python}), libc6
Section: net
Priority: optional
Description: broker that speaks Apache Kafka's wire protocol
 Stock Kafka clients connect to it as to Apache Kafka. It keeps Kafka's own
 format on disk and needs neither a Java machine nor, by itself, ZooKeeper.
"""


def lack() -> str:
    """Return the missing requirements for a package; empty if it can be built."""
    if not shutil.which("dpkg-deb"):
        return "there is no dpkg-deb"
    return "" if sys.base_prefix == "/usr" else f"{sys.base_prefix} is not the distribution's Python"


def make(wheel: Path, checkout: Path, work: Path, out: Path, epoch: int) -> Path:
    """Make the package in `out`; files are as old as the commit. Returns its path."""
    tree = work / "tree"
    shutil.rmtree(work, ignore_errors=True)
    _install(wheel, checkout, tree)
    files = checkout / "deploy/debian"
    _put(checkout / "deploy/barnabas.service", tree / "usr/lib/systemd/system/barnabas.service")
    _put(files / "server.properties", tree / "etc/barnabas/server.properties")
    _put(checkout / "deploy/server.properties", tree / "usr/share/doc/barnabas/examples/cluster.properties")
    _put(checkout / "LICENSE", tree / "usr/share/doc/barnabas/copyright")
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/barnabas").symlink_to(f"/{HOME}/bin/barnabas")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    version = next(line.split()[1] for line in metadata.splitlines() if line.startswith("Version: "))
    architecture = _output("dpkg", "--print-architecture")
    control = tree / "DEBIAN"
    control.mkdir()
    size = sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_dir()) // 1024
    (control / "control").write_text(
        CONTROL.format(
            version=version, architecture=architecture, size=size, python=PYTHON,
            next_python=f"{sys.version_info.major}.{sys.version_info.minor + 1}",
            maintainer="The Barnabas developers <barnabas@localhost>",
        )
    )  # fmt: skip
    (control / "conffiles").write_text("/etc/barnabas/server.properties\n")
    for script in ("postinst", "prerm"):
        _put(files / script, control / script, mode=0o755)
    for path in tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)
    package = out / f"barnabas_{version}_{architecture}.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, package],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return package


def _install(wheel: Path, checkout: Path, tree: Path) -> None:
    """Create a virtual environment with the wheel and its requirements; its paths are those after the installation."""
    home = tree / HOME
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", home], check=True)
    pip = [sys.executable, "-m", "pip", "--python", home / "bin/python", "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--require-hashes", "-r", checkout / "requirements/run.txt"], check=True)
    subprocess.run([*pip, "--no-deps", wheel], check=True)
    for name in ("activate", "activate.csh", "activate.fish", "Activate.ps1"):
        (home / "bin" / name).unlink()
    for script in (home / "bin").iterdir():
        if not script.is_symlink():
            script.write_text(script.read_text().replace(str(home), f"/{HOME}"))
    python = home / "bin/python"
    python.unlink()
    python.symlink_to(f"/usr/bin/python{PYTHON}")
    (home / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n"
    )
    packages = home / "lib" / f"python{PYTHON}" / "site-packages"
    for name in (
        "RECORD",
        "direct_url.json",
        "INSTALLER",
        "REQUESTED",
    ):  # written by pip, with paths of the build
        for file in packages.glob(f"*.dist-info/{name}"):
            file.unlink()
    compileall.compile_dir(
        packages,
        quiet=2,
        stripdir=str(tree),
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def _put(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    target.chmod(mode)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
