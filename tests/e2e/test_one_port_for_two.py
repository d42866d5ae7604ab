"""Two listeners of one command at the same port: the start ends with one line that names what cannot be served."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from itertools import combinations

import pytest

from barnabas.testing.running import import_path
from tests.e2e.conftest import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OPTIONS = ("--listen", "--metrics", "--control", "--console", "--registry")
PATIENCE_S = 60


@pytest.mark.parametrize(("first", "second"), list(combinations(OPTIONS, 2)))
def test_a_port_that_is_given_twice_is_one_line(first: str, second: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    listen = () if first == "--listen" else ("--listen", "127.0.0.1:0")
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "serve",
        "--ephemeral",
        *listen,
        first,
        address,
        second,
        address,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={**os.environ, "PYTHONPATH": import_path(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    [line] = [line for line in done.stderr.splitlines() if " WARNING " not in line]
    assert line.startswith("barnabas: ")
    assert address in line
    assert "in use" in line
