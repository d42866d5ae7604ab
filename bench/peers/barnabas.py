"""Barnabas from a checkout, run by the Python that runs the benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.peers.base import Peer, Running, free_port, free_ports, spawn
from bench.tools import ROOT, code_of


class Barnabas(Peer):
    """One `barnabas serve`, with its defaults but for `settings`; `workers=N` among them is the option of that name."""

    has_targets = True

    def __init__(self, label: str, settings: dict[str, str], checkout: Path | None) -> None:
        super().__init__(label, settings)
        self.checkout = (checkout or ROOT).resolve()
        self.code = code_of(self.checkout)

    def describe(self) -> str:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=self.checkout,
            capture_output=True,
            text=True,
            check=False,
        )
        settings = " ".join(f"{name}={value}" for name, value in self.settings.items())
        code = "compiled" if list(self.code.glob("barnabas__mypyc*")) else "interpreted"
        return f"Barnabas {done.stdout.strip()} code={code} {settings}".strip()

    def command(self, data: Path, port: int) -> list[str]:
        command = ["-m", "barnabas", "serve", "--data", str(data)]
        settings = dict(self.settings)
        if self.secured is None:
            if "listeners" not in settings:
                command += ["--listen", f"127.0.0.1:{port}"]
        else:
            listeners = f"PLAINTEXT://127.0.0.1:{port},{self.secured.address(port + 1)}"
            settings = {**self.secured.settings(), "listeners": listeners, **settings}
        if "workers" in settings:
            command += ["--workers", settings.pop("workers")]
        # Files of deleted topics must not linger into the next arm.
        for name, value in {"log.segment.delete.delay.ms": "100", **settings}.items():
            command += ["--set", f"{name}={value}"]
        return command

    def environment(self) -> dict[str, str]:
        environment = {**os.environ, "PYTHONPATH": str(self.code)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a start compiles once, not every time
        return environment

    def start(self, data: Path) -> Running:
        port = free_port() if self.secured is None else free_ports()
        running = spawn(self, [sys.executable, *self.command(data, port)], data, port, self.environment())
        running.secured = f"127.0.0.1:{port + 1}" if self.secured is not None else ""
        return running
