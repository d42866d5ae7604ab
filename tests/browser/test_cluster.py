"""The console of a cluster of several nodes, in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import expect

from barnabas.testing.running import import_path
from tests.browser.conftest import ROOT, SECONDS_MAX, Show


@contextmanager
def running(*arguments: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command of ours for the length of a block."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": import_path(ROOT)},
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(SECONDS_MAX)
            assert process.stdout is not None
            process.stdout.close()


def test_quorum_of_controllers_and_a_voter_that_is_lost(show: Show, tmp_path: Path) -> None:
    with running("cluster", "--ephemeral", "--port", "0", log=tmp_path / "cluster.log") as cluster:
        assert cluster.stdout is not None
        pids: list[int] = []
        bootstrap = ""
        while not bootstrap:
            line = cluster.stdout.readline()
            assert line, (tmp_path / "cluster.log").read_text()
            pids += map(int, re.findall(r"pid=(\d+)", line))
            bootstrap = "".join(re.findall(r"bootstrap\.servers=(\S+)", line))
        arguments = ("console", "--bootstrap", bootstrap, "--listen", "127.0.0.1:0")
        with running(*arguments, log=tmp_path / "console.log") as console:
            assert console.stdout is not None
            (url,) = re.findall(r"console=(\S+)", console.stdout.readline())
            shown = show(url)
            page = shown.open("quorum")
            rows = page.get_by_role("table", name="Nodes of the quorum").locator("tbody tr")
            expect(rows).to_have_count(3)
            expect(page.get_by_text("all up to date")).to_be_visible()
            expect(rows.filter(has_text="leader")).to_have_count(1)
            expect(rows.filter(has_text="127.0.0.1:")).to_have_count(3)
            expect(page.locator(".tile").filter(has_text="2 decide")).to_contain_text("3")
            shown.check_access()
            shown.picture("controllers")
            os.kill(pids[0], signal.SIGKILL)
            expect(page.get_by_text("2 of 3 voters up to date")).to_be_visible(timeout=40_000)
            expect(page.get_by_text("1 voter behind")).to_be_visible()
