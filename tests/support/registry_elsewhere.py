"""A registry with TLS and passwords, and a broker that is not configured for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.testing.running import import_path

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'


@contextmanager
def started(*arguments: str, config: Path | None = None) -> Iterator[dict[str, str]]:
    """Run a command until the end of the block; yields the words of its ready line."""
    environment = {**os.environ, "PYTHONPATH": import_path(), "XDG_CONFIG_HOME": str(config or "/nowhere")}
    command = [sys.executable, "-m", "barnabas", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if " ready" in line)
            yield dict(word.split("=", 1) for word in line.split() if "=" in word)
        finally:
            process.terminate()
        assert process.wait(20) == 0


class Elsewhere:
    """The registry of a secured broker, and a second broker that is not configured for either."""

    def __init__(self, url: str, directory: Path, bootstrap: str) -> None:
        self.url = url
        self.ca = str(directory / "tls" / "ca.crt")
        self.password = json.loads((directory / "users.json").read_text())["admin"]
        self.bootstrap = bootstrap

    def run(self, *arguments: str, config: Path | None = None) -> tuple[int, str, str]:
        """Run a command: exit code, standard output, standard error."""
        environment = {
            **os.environ,
            "PYTHONPATH": import_path(),
            "XDG_CONFIG_HOME": str(config or "/nowhere"),
        }
        environment |= {"BARNABAS_BOOTSTRAP": self.bootstrap}
        done = subprocess.run(
            [sys.executable, "-m", "barnabas", *arguments],
            capture_output=True, text=True, env=environment, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def profile(self, directory: Path) -> Path:
        """Write a profile that names the registry below a directory, which is returned."""
        file = directory / "barnabas" / "profiles.toml"
        file.parent.mkdir()
        file.touch(0o600)
        lines = [
            'default = "here"', "[here]", f'schema.registry.url = "{self.url}"',
            f'schema.registry.ssl.ca.location = "{self.ca}"',
            f'schema.registry.basic.auth.user.info = "admin:{self.password}"',
        ]  # fmt: skip
        file.write_text("\n".join(lines))
        return directory

    def produce_order(self, profile: Path) -> str:
        """Make a topic with a record by a schema of the registry; returns its name."""
        schema = profile / "order.avsc"
        schema.write_text(ORDER)
        assert self.run("topics", "create", "orders")[0] == 0
        code, _, error = self.run(
            "produce", "orders", '{"id": "a1"}', "--value-schema", str(schema), config=profile
        )
        assert code == 0, error
        return "orders"


@contextmanager
def registry_elsewhere(directory: Path) -> Iterator[Elsewhere]:
    """Serve both until the end of the block."""
    secured = (
        "serve", "--demo-security", str(directory), "--registry", "localhost:0",
        "--set", "listeners=SASL_SSL://localhost:0,SSL://localhost:0",
        "--set", f"registry.ssl.certificate.location={directory / 'tls' / 'broker.pem'}",
    )  # fmt: skip
    with started(*secured) as words, started("serve", "--ephemeral", "--listen", "localhost:0") as plain:
        url = f"https://localhost:{words['registry'].rpartition(':')[2]}"
        yield Elsewhere(url, directory, plain["bootstrap.servers"])
