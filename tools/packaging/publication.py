"""`python -m tools.packaging.publication [NAME ...]`: make each package as its registry wants it, and publish nothing.

The rule: a registry's own tool makes and checks the package, in a copy of the committed sources; nothing is sent.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tools.packaging.release import built, command

GO_MODULE = "github.com/barnabas-kafka/barnabas/clients/go"
IMAGE = "docker.io/barnabaskafka/barnabas"
TAP = "barnabas-kafka/homebrew-tap"


class Package(NamedTuple):
    """A package of a registry: its name there, the program that builds it, and the function that calls the program."""

    registry: str
    name: str
    program: str
    make: Callable[[Path, Path], str]
    """Builds it from a source tree in a directory, and returns a description of the result."""


def version_of(source: Path) -> str:
    """Return the version of the project."""
    return str(tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"])


def wheel(source: Path, work: Path) -> str:
    """Make the wheel and the source archive; their metadata are read as an index reads them."""
    files = [built("sdist", source, work), built("wheel", source, work, BARNABAS_COMPILED="no")]
    files.append(built("wheel", source / "clients" / "python", work))
    return checked_metadata(files)


def checked_metadata(files: list[Path]) -> str:
    """Have pip read the metadata of files."""
    for file in files:
        command(
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            file,
        )
    return ", ".join(file.name for file in files)


def npm(source: Path, work: Path) -> str:
    """Run npm pack, which makes the archive that npm would publish."""
    command("npm", "pack", "--silent", "--pack-destination", work, cwd=source / "clients" / "node")
    (file,) = work.glob("*.tgz")
    return file.name


def cargo(source: Path, work: Path) -> str:
    """Run cargo package, which also compiles the packed crate."""
    crate = source / "clients" / "rust"
    command("cargo", "package", "--quiet", "--allow-dirty", "--locked", "--target-dir", work, cwd=crate)
    (file,) = (work / "package").glob("*.crate")
    return file.name


def maven(source: Path, work: Path) -> str:  # noqa: ARG001
    """Run Maven for the archive with sources and documentation, which Maven Central requires."""
    java = source / "clients" / "java"
    command("mvn", "-B", "-q", "-DskipTests", "package", "source:jar", "javadoc:jar", cwd=java)
    return ", ".join(sorted(file.name for file in (java / "target").glob("*.jar")))


def go(source: Path, work: Path) -> str:
    """Build another module that uses this one by its published path, from a proxy of files."""
    version = f"v{version_of(source)}"
    proxy = work / "proxy" / GO_MODULE / "@v"
    proxy.mkdir(parents=True)
    module = source / "clients" / "go"
    (proxy / "list").write_text(f"{version}\n")
    (proxy / f"{version}.info").write_text(f'{{"Version": "{version}"}}')
    shutil.copy(module / "go.mod", proxy / f"{version}.mod")
    with zipfile.ZipFile(proxy / f"{version}.zip", "w") as archive:
        for path in (module / "go.mod", *(module / "testserver").glob("*.go")):
            archive.write(path, f"{GO_MODULE}@{version}/{path.relative_to(module)}")
    user = work / "user"
    user.mkdir()
    (user / "go.mod").write_text("module example.com/user\n\ngo 1.24\n")
    (user / "user_test.go").write_text(f'package user\n\nimport _ "{GO_MODULE}/testserver"\n')
    environment = {"GOPROXY": f"file://{work / 'proxy'}", "GOSUMDB": "off", "GOFLAGS": "-modcacherw",
                   "GOMODCACHE": str(work / "cache"), "GOTOOLCHAIN": "local"}  # fmt: skip
    command("go", "get", f"{GO_MODULE}/testserver@{version}", cwd=user, **environment)
    command("go", "vet", "./...", cwd=user, **environment)
    return f"go get {GO_MODULE}@{version}, from a proxy of files; the tag is clients/go/{version}"


def formula(source: Path, work: Path) -> str:
    """Write the formula for Homebrew, with the checksum of the source archive."""
    archive = built("sdist", source, work / "formula")
    target = work / "barnabas.rb"
    target.write_text(
        (source / "deploy" / "barnabas.rb.in").read_text()
        .replace("@VERSION@", version_of(source))
        .replace("@SHA256@", hashlib.sha256(archive.read_bytes()).hexdigest())
    )  # fmt: skip
    if shutil.which("ruby"):
        command("ruby", "-c", target)
    return f"{target.name} of {archive.name}"


def container(source: Path, work: Path) -> str:  # noqa: ARG001
    """Return the tag of the image, which `make try-release` builds."""
    return f"tag {version_of(source)}; make try-release ARGS=container builds and starts it"


PACKAGES = {
    "wheel": Package("PyPI", "barnabas, barnabas-client", sys.executable, wheel),
    "node": Package("npm", "barnabas-test-server", "npm", npm),
    "rust": Package("crates.io", "barnabas-test-server", "cargo", cargo),
    "java": Package("Maven Central", "io.github.barnabas-kafka:barnabas-junit5", "mvn", maven),
    "go": Package("Go's proxy", GO_MODULE, "go", go),
    "container": Package("Docker Hub", IMAGE, sys.executable, container),
    "formula": Package("Homebrew", TAP, sys.executable, formula),
}


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.packaging.publication", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=[[], *PACKAGES], help="only these (default: all whose program is here)"
    )
    names = parser.parse_args(arguments).names
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "source"
        source.mkdir()
        command("git", "archive", "--output", Path(directory) / "source.tar", "HEAD")
        command("tar", "--extract", "--file", Path(directory) / "source.tar", "--directory", source)
        for name in names or PACKAGES:
            package = PACKAGES[name]
            if not names and shutil.which(package.program) is None:
                print(f"{name:9} not tried: {package.program} is not here")
                continue
            work = Path(directory) / name
            work.mkdir()
            text = package.make(source, work)
            print(f"{name:9} {package.registry}: {package.name}\n{'':9} {text}", flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("npm_config_update_notifier", "false")
    sys.exit(main(sys.argv[1:]))
