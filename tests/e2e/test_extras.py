"""Packages that only some brokers need: a start that needs one which is missing ends with the name of its extra."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from barnabas.environment.extras import EXTRAS, explain
from barnabas.testing.running import import_path
from tests.support.certificates import authority, signed

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = (
    "import sys\n"
    f"sys.modules.update(dict.fromkeys({list(EXTRAS)}))\n"
    "from barnabas.cli import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


def serve_without(*options: str) -> tuple[int, list[str]]:
    """Start a broker where no extra is installed; returns its exit code and what it says."""
    command = [sys.executable, "-c", WITHOUT, "serve", *options]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    return done.returncode, done.stderr.splitlines()


def test_a_key_store_in_pkcs12_needs_the_extra_for_security(tmp_path):
    (tmp_path / "store").write_bytes(signed({"CN": "localhost"}).pkcs12("secret", authority().certificate))
    code, lines = serve_without(
        "--ephemeral", "--listen", "SSL://127.0.0.1:0", "--set", f"ssl.keystore.location={tmp_path / 'store'}",
        "--set", "ssl.keystore.type=PKCS12", "--set", "ssl.keystore.password=secret",
    )  # fmt: skip
    assert code != 0
    assert len(lines) == 1
    assert "listener SSL: " in lines[0]
    assert "pip install 'barnabas[security]'" in lines[0]


def test_tokens_need_the_extra_for_security():
    code, lines = serve_without(
        "--ephemeral", "--listen", "SASL_PLAINTEXT://127.0.0.1:0", "--set", "sasl.enabled.mechanisms=OAUTHBEARER",
        "--set", "sasl.oauthbearer.jwks.endpoint.url=http://127.0.0.1:1/keys",
        "--set", "sasl.oauthbearer.expected.issuer=i", "--set", "sasl.oauthbearer.expected.audience=a",
    )  # fmt: skip
    assert code != 0
    assert len(lines) == 1
    assert "joserfc" in lines[0]
    assert "pip install 'barnabas[security]'" in lines[0]


def test_demonstration_certificates_need_the_security_extra(tmp_path):
    code, lines = serve_without("--demo-security", str(tmp_path / "demo"))
    assert code != 0
    assert len(lines) == 1
    assert "pip install 'barnabas[security]'" in lines[0]


def test_each_package_is_in_its_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for package, extra in EXTRAS.items():
        assert any(
            row.startswith(package.replace("_", "-")) for row in project["optional-dependencies"][extra]
        )
        assert not any(row.startswith(package) for row in project["dependencies"])


def test_another_module_that_is_missing_is_no_extra():
    assert explain(ModuleNotFoundError("no", name="barnabas.nothing")) is None
    assert "[pages]" in (explain(ModuleNotFoundError("no", name="jinja2.ext")) or "")


def test_a_registry_needs_its_extra():
    code, lines = serve_without("--ephemeral", "--listen", "127.0.0.1:0", "--registry", "127.0.0.1:0")
    assert code != 0
    assert len(lines) == 1
    assert "pip install 'barnabas[registry]'" in lines[0]
