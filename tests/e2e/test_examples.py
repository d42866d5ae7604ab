"""Each program of docs/examples/, as the pages print it, prints what it is said to; tests among them pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing.running import import_path
from tests.e2e.conftest import _start
from tests.support.pages import EXAMPLES, ROOT

pytestmark = pytest.mark.e2e

OUTPUTS = {
    "broker_in_a_process": r"b'hello'\n",
    "broker_in_a_thread": r"3 \{\('orders', 0\): \d\}\n2\n",
    "broker_in_trio": r"\['orders'\]\n",
    "broker_with_a_fault": r"\[\(6,\), \(\)\]\n1\n",
    "own_requests": "1\ndeleting no-such: UNKNOWN_TOPIC_OR_PARTITION\n",
    "produce_and_consume": r"3\n0 b'event 0'\n1 b'event 1'\n2 b'event 2'\n3 b'last'\n",
    "sasl_settings": "SCRAM-SHA-512\n",
    "transaction": r"b'40'\n",
}
ELSEWHERE = {
    "agents_job": "tests/pipeline/test_own_jobs.py",
    "csv_decoder": "tests/pipeline/test_format_schemas.py",
    "ledger": "tests/e2e/test_own_offsets.py",
    "ledger_with_confluent_kafka": "tests/e2e/test_own_offsets.py",
    "ledger_with_trio_client": "tests/e2e/test_own_offsets.py",
}
"""Examples that another test runs."""
WITH_REGISTRY = ("schema_producer", "registry_records")


def output_of(name: str, *arguments: str) -> str:
    """Run an example; its standard output."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": import_path()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_example_is_run_by_a_test_and_shown_by_a_page() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {
        *OUTPUTS,
        *ELSEWHERE,
        *WITH_REGISTRY,
        *(name for name in names if name.startswith("pytest_")),
    }
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / test).read_text(), (name, test)
    pages = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert [name for name in sorted(names) if f'title="docs/examples/{name}.py"' not in pages] == []


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_example_prints_its_output(name: str) -> None:
    assert re.fullmatch(OUTPUTS[name], output_of(name))


def test_examples_with_a_registry_exchange_a_record(tmp_path: Path) -> None:
    broker = _start(tmp_path / "data", options=["--registry", "127.0.0.1:0"])
    addresses = (broker.bootstrap, str(broker.registry_url))
    assert output_of("schema_producer", *addresses) == "0\n"
    text = "AVRO 1 {'number': 7}\n{\"number\": 7}\n"
    assert output_of("registry_records", *addresses) == text
    assert broker.stop() == 0


def test_examples_of_pytest_pass(tmp_path: Path) -> None:
    for path in EXAMPLES.glob("pytest_*.py"):
        (tmp_path / f"test_{path.stem}.py").write_text(path.read_text())
    words = ["-p", "barnabas.testing.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": import_path(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert re.search(r"^5 passed", done.stdout, re.M), done.stdout + done.stderr
