"""`python -m tools.packaging.release [--out DIR] [--once]`: make all files of a release of the commit that is checked out.

The rule: equal commits make equal files. Sources come from git, times from the commit, versions from requirements/; all
files are built twice, in two places, and compared.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

import hatch_build
from tools.install_wheel import ROOT
from tools.packaging import deb

BUILD = "import sys, hatchling.build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
SUMS = "SHA256SUMS"


def command(*words: str | Path, cwd: Path = ROOT, **more: str) -> str:
    """Run a command that must succeed, with the environment's programs first; returns its output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, "PATH": path, **more},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def built(what: str, source: Path, target: Path, **more: str) -> Path:
    """Have the build backend make `sdist` or `wheel` of a source tree."""
    target.mkdir(parents=True, exist_ok=True)
    name = command(sys.executable, "-c", BUILD, f"build_{what}", target, cwd=source, **more).splitlines()[-1]
    return target / name


def make(commit: str, work: Path, out: Path) -> None:
    """Make all files of a commit in `out`; `work` is a directory for intermediate files."""
    times = {"SOURCE_DATE_EPOCH": command("git", "log", "-1", "--format=%ct", commit)}
    checkout, out = work / "checkout", out.absolute()
    checkout.mkdir(parents=True)
    out.mkdir(parents=True, exist_ok=True)
    command("git", "archive", "--output", work / "checkout.tar", commit)
    command("tar", "--extract", "--file", work / "checkout.tar", "--directory", checkout)
    sdist = built("sdist", checkout, out, **times)
    (work / "sdist").mkdir()
    command("tar", "--extract", "--file", sdist, "--directory", work / "sdist")
    (source,) = (work / "sdist").iterdir()
    # Both wheels are of the source archive: it has all that is needed.
    built("wheel", source, out, **times, **{hatch_build.SWITCH: "no"})
    plain = built("wheel", source, work / "plain", **times, **{hatch_build.SWITCH: "yes"})
    command(
        sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", out, plain, **times
    )
    built("wheel", checkout / "clients" / "python", out, **times)
    (wheel,) = out.glob("*manylinux*.whl")
    parts(source, out)
    if lack := deb.lack():
        print(f"no Debian package: {lack}", file=sys.stderr)
    else:
        deb.make(wheel, checkout, work / "deb", out, int(times["SOURCE_DATE_EPOCH"]))


def parts(source: Path, out: Path) -> None:
    """List the parts that an installation has, in CycloneDX's format."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    target = out / f"{project['name']}-{project['version']}.cdx.json"
    options = [
        "--pyproject",
        str(source / "pyproject.toml"),
        "--output-reproducible",
        "--output-format",
        "JSON",
    ]
    locked = ROOT / "requirements" / "run.txt"
    command("cyclonedx-py", "requirements", *options, "--output-file", target, locked)


def sums(out: Path) -> str:
    """Return the SHA-256 checksums of all files, in the format of sha256sum."""
    files = sorted(path for path in out.iterdir() if path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def differences(left_dir: Path, other: Path) -> list[str]:
    """Return the names of files that differ between two directories, with the differing members of archives."""
    names = []
    for name in sorted({path.name for path in (*left_dir.iterdir(), *other.iterdir())} - {SUMS}):
        first, second = left_dir / name, other / name
        if not (first.exists() and second.exists()):
            names.append(f"{name} is there once")
        elif first.read_bytes() != second.read_bytes():
            members = ""
            if name.endswith(".whl"):
                with zipfile.ZipFile(first) as a, zipfile.ZipFile(second) as b:
                    here = {info.filename: info.CRC for info in a.infolist()}
                    there = {info.filename: info.CRC for info in b.infolist()}
                members = ": " + ", ".join(sorted({name for name, _ in here.items() ^ there.items()})[:5])
            names.append(f"{name}{members}")
    return names


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.packaging.release", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files go (default: dist)")
    parser.add_argument("--once", action="store_true", help="do not make all files again, to compare them")
    parser.add_argument(
        "--unclean", action="store_true", help="of the last commit, whatever has changed since"
    )
    options = parser.parse_args(arguments)
    if not options.unclean and (changed := command("git", "status", "--porcelain")):
        print(f"error: not all is committed:\n{changed}", file=sys.stderr)
        return 1
    if lack := hatch_build.missing():
        print(f"error: {lack}", file=sys.stderr)
        return 1
    shutil.rmtree(options.out, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="barnabas-release-") as directory:
        commit = command("git", "rev-parse", "HEAD")
        make(commit, Path(directory, "one"), options.out)
        if not options.once:
            make(commit, Path(directory, "another"), Path(directory, "again"))
            if differing := differences(options.out, Path(directory, "again")):
                print(f"error: made again, it is not the same: {'; '.join(differing)}", file=sys.stderr)
                return 1
    (options.out / SUMS).write_text(sums(options.out))
    print((options.out / SUMS).read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
