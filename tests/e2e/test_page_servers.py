"""`barnabas serve` as pages print it, each in a network where every port is free, and the files that pages print for it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from barnabas.testing.running import import_path
from tests.support.pages import ROOT, blocks, network, samples, typed

pytestmark = pytest.mark.e2e

PATIENCE_S = 30
PAGES = [
    str(path.relative_to(ROOT))
    for path in [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/how-to").glob("*.md")),
    ]
]
NOT_SERVED = {
    "barnabas serve --workers 4 --data /var/lib/barnabas": "a directory of the system",
    "barnabas serve --config broker.properties": "controllers are needed: compat.cluster runs it as it is printed",
    "barnabas serve --config node.properties --fault 'BrokerHeartbeat times=5 -> hold_ms=100' "
    "--fault 'Fetch listener=CONTROLLER -> delay_ms=50'": "a dir is formatted first: test_controller_faults runs it",
    "barnabas serve --config controller.properties": "a dir is formatted first: test_quorum runs it as it is printed",
}
FILES = {"seeds.yaml": "docs/how-to/seeds.md", "faults.yaml": "docs/how-to/faults.md"}
"""Files that commands of pages name, and the pages that print them."""
WITH_ACLS = (
    " --set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    " --set super.users=User:ANONYMOUS"
)
"""Settings for the ACLs of seeds, as the page says."""


def served() -> list[str]:
    """Commands that start a broker in blocks which are no sessions."""
    lines = [
        typed(line)
        for page in PAGES
        for block in blocks(page)
        if not block.is_session
        for line in block.lines
    ]
    commands = {re.sub(r"\s*&$", "", line) for line in lines if line.startswith("barnabas serve")}
    return sorted(commands - {*NOT_SERVED})


def test_pages_start_brokers() -> None:
    assert len(served()) > 15


@pytest.mark.parametrize("command", served())
def test_a_broker_of_a_page_starts_as_it_is_printed(command: str, tmp_path: Path) -> None:
    for name, page in FILES.items():
        (tmp_path / name).write_text(samples(page, "yaml")[0])
    if "--seed-file" in command:
        command += WITH_ACLS
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": import_path(ROOT),
    }
    (tmp_path / "barnabas").write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n')
    (tmp_path / "barnabas").chmod(0o755)
    with network() as words, (tmp_path / "printed").open("w") as printed, subprocess.Popen(
        [*words, "sh", "-c", f"exec {command}"], cwd=tmp_path, env={**os.environ, **environment},
        stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True,
    ) as broker:  # fmt: skip
        end = time.monotonic() + PATIENCE_S
        while " ready: " not in (text := (tmp_path / "printed").read_text()):
            assert broker.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.05)
        os.killpg(broker.pid, signal.SIGTERM)
        assert broker.wait(PATIENCE_S) in (0, -signal.SIGTERM), (tmp_path / "printed").read_text()
    assert "Traceback" not in (tmp_path / "printed").read_text()
