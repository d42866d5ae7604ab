"""The load generator and the mock cluster, built when needed, and run.

The rule: a load generator that fails, fails the benchmark; its numbers are never taken then.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / ".tools" / "bench"
LOADGEN = OUT / "loadgen"
MOCK_CLUSTER = OUT / "mock_cluster"
RUN_TIMEOUT_S = 300


class BenchError(Exception):
    """The benchmark cannot continue; the message is for the user."""


class UnavailablePeerError(BenchError):
    """A peer cannot be built on this machine; the message has the reason."""


def code_of(checkout: Path) -> Path:
    """Return where to import the broker of a checkout from: its wheel, brought up to date. Raises BenchError.

    A checkout from before the wheel had compiled modules is measured by its sources, which found them by themselves.
    """
    if not (checkout / "hatch_build.py").exists():
        return checkout / "server"
    wheel = checkout / ".venv" / "wheel"
    # Each checkout builds with its own module: `-m` searches the working directory first.
    done = subprocess.run([sys.executable, "-m", "tools.install_wheel", wheel], cwd=checkout, check=False)
    if done.returncode:
        raise BenchError(f"the wheel of {checkout} cannot be built, see above")
    return wheel


def build() -> None:
    """Build the C programs; installs their only dependency where that is allowed."""
    if not Path("/usr/include/librdkafka/rdkafka_mock.h").exists():
        _install("librdkafka-dev")
    for tool in ("cc", "make"):
        if not shutil.which(tool):
            raise BenchError(
                f"{tool} is missing; install a C compiler and make (Debian: apt-get install gcc make)"
            )
    source = Path(__file__).with_name("client")
    done = subprocess.run(
        ["make", "-s", "-C", str(source), f"OUT={OUT}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"the load generator cannot be built:\n{done.stderr}")


def _install(package: str) -> None:
    if os.geteuid() or not shutil.which("apt-get"):
        raise BenchError(f"{package} is missing; run: sudo apt-get install {package}")
    print(f"installing {package}")
    for command in (["update", "-qq"], ["install", "-y", "-qq", package]):
        done = subprocess.run(["apt-get", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{package} cannot be installed:\n{done.stderr}")


def _command(mode: str, bootstrap: str, options: dict[str, object], client: dict[str, object]) -> list[str]:
    command = [str(LOADGEN), mode, "--bootstrap", bootstrap]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    for name, value in client.items():
        command += ["-X", f"{name}={value}"]
    return command


def loadgen(
    mode: str,
    bootstrap: str,
    *,
    client: dict[str, object] | None = None,
    timeout_s: float = RUN_TIMEOUT_S,
    **options: object,
) -> dict[str, Any]:
    """Run the load generator to its end; returns its result. `client` are librdkafka settings."""
    command = _command(mode, bootstrap, options, client or {})
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(command)}\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@contextmanager
def idle_connections(bootstrap: str, count: int) -> Iterator[dict[str, Any]]:
    """Hold connections open; at the end, each must still be there."""
    command = _command("idle", bootstrap, {"count": count}, {})
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        if line:
            yield json.loads(line)
        process.stdin.close()
        process.stdin = None
        if process.wait(RUN_TIMEOUT_S):
            raise BenchError(f"{' '.join(command)}\n{process.stderr.read()}")
