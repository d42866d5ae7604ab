"""Programs of other brokers, built once into `.tools/peers`: franz-go's kfake (Go) and Tansu (Rust).

The rule: a program is of the version that is pinned here, and what is missing to build it is told, never installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from compat.kit.locks import locked

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLS = ROOT / ".tools" / "peers"
TANSU_VERSION = "0.6.0"
GO_BUILD_TIMEOUT_S = 300
RUST_BUILD_TIMEOUT_S = 3600
"""Tansu has 600 crates, which two cores need some ten minutes for."""


class UnavailableError(Exception):
    """A broker cannot be started here; the message says why."""


def kfake_version() -> str:
    """Return the day of the pinned commit of kfake, `20260918`."""
    dated = re.search(r"kfake v\S+-(\d{8})\d{6}-", (HERE / "kfake" / "go.mod").read_text())
    return dated[1] if dated else "an unknown day"


def kfake_program() -> Path:
    """Build franz-go's fake cluster as a program that prints its address and ends with its standard input.

    Raises UnavailableError where Go is missing, or its modules cannot be fetched.
    """
    program = TOOLS / "kfake"
    TOOLS.mkdir(parents=True, exist_ok=True)
    _build("kfake", "Go", ["go", "build", "-o", str(program), "."], HERE / "kfake", GO_BUILD_TIMEOUT_S)
    return program


def tansu_program() -> Path:
    """Return Tansu's broker with its storage in memory, built by the first call. Raises UnavailableError."""
    place = TOOLS / f"tansu-{TANSU_VERSION}"
    program = place / "bin" / "tansu"
    place.mkdir(parents=True, exist_ok=True)
    with locked(place.with_name(f"{place.name}.lock")):
        if not program.exists():
            print(f"Tansu {TANSU_VERSION} is built, which takes minutes", flush=True)
            with tempfile.TemporaryDirectory(prefix="tansu-") as directory:
                options = ["--version", TANSU_VERSION, "--locked", "--features", "dynostore"]
                target = ["--root", str(place), "--target-dir", directory]
                command = ["cargo", "install", "--quiet", "tansu", *options, *target]
                _build("Tansu", "Rust", command, place, RUST_BUILD_TIMEOUT_S)
    return program


def tansu_command(program: Path, port: int) -> list[str]:
    """Return the command of Tansu with records in memory, for clients at a port of 127.0.0.1."""
    address = f"tcp://127.0.0.1:{port}"
    addresses = ["--listener-url", address, "--advertised-listener-url", address]
    return [str(program), "broker", *addresses, "--storage-engine", "memory://tansu/", "--silent"]


def _build(name: str, language: str, command: Sequence[str], directory: Path, timeout_s: float) -> None:
    """Run a command that builds a program. Raises UnavailableError with the end of its output."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env={**os.environ},
        )
    except OSError as error:
        raise UnavailableError(f"{name} needs {language}: {error}") from error
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{name} was not built in {timeout_s:.0f} s") from None
    if done.returncode:
        raise UnavailableError(f"{name} cannot be built:\n{done.stderr[-1000:]}")
