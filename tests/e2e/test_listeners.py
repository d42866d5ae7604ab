"""Each case of docs/how-to/listeners.md, with librdkafka in network namespaces of Linux.

Three of them stand in a row: `far` (another machine), `host` (the machine with the container engine, or with the
balancer), `inner` (the container). Neighbours reach each other; `far` and `inner` do not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.running import import_path

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
SECONDS_MAX = 60
HOST = "10.213.1.1"  # as `far` sees it
GATEWAY = "10.213.2.1"  # as `inner` sees it
INNER = "10.213.2.2"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=SECONDS_MAX)


class Net:
    """The three namespaces, and what runs in them."""

    def __init__(self) -> None:
        self.mark = f"bn{os.getpid()}"
        self.processes: list[subprocess.Popen[str]] = []

    def name(self, place: str) -> str:
        """The namespace of a place."""
        return f"{self.mark}-{place}"

    def set_up(self) -> None:
        """Make the namespaces. Raises CalledProcessError where that is not permitted."""
        for place in ("far", "host", "inner"):
            _ip("netns", "add", self.name(place))
            _ip("-n", self.name(place), "link", "set", "lo", "up")
        self._connect("host", "eth0", HOST, "far", "eth0", "10.213.1.2")
        self._connect("host", "eth1", GATEWAY, "inner", "eth0", INNER)

    def _connect(self, own: str, one_link: str, address: str, other: str, other_link: str, peer: str) -> None:
        _ip(
            "-n", self.name(own), "link", "add", one_link, "type", "veth",
            "peer", "name", other_link, "netns", self.name(other),
        )  # fmt: skip
        for place, link, ip in ((own, one_link, address), (other, other_link, peer)):
            _ip("-n", self.name(place), "address", "add", f"{ip}/24", "dev", link)
            _ip("-n", self.name(place), "link", "set", link, "up")

    def start(self, place: str, *command: str) -> str:
        """Start a program in a namespace; returns the first line that it prints."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name(place), sys.executable, *command],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": import_path()},
        )  # fmt: skip
        self.processes.append(process)
        assert process.stdout is not None
        return process.stdout.readline()

    def serve(self, place: str, *options: str) -> None:
        """Start a broker."""
        assert "is ready" in self.start(place, "-m", "barnabas", "serve", "--ephemeral", *options)

    def forward(self, port: int, *targets: str) -> None:
        """Hand connections to a port of `host` on, as a mapped port or a balancer does."""
        assert self.start("host", str(SUPPORT / "forwarder.py"), str(port), *targets) == "ready\n"

    def round_trip(self, place: str, bootstrap: str) -> str:
        """Output of a client in a namespace that sends and reads a record: "ok", or what went wrong."""
        done = subprocess.run(
            ["ip", "netns", "exec", self.name(place), sys.executable, str(SUPPORT / "round_trip.py"),
             bootstrap, f"t{len(self.processes)}-{place}"],
            capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()

    def tear_down(self) -> None:
        """End what runs, and remove the namespaces."""
        for process in self.processes:
            process.terminate()
            process.communicate(timeout=SECONDS_MAX)
        for place in ("far", "host", "inner"):
            subprocess.run(["ip", "netns", "del", self.name(place)], capture_output=True, check=False)


@pytest.fixture
def net() -> Iterator[Net]:
    if shutil.which("ip") is None:
        pytest.skip("there is no ip command (Debian: apt-get install iproute2)")
    net = Net()
    try:
        try:
            net.set_up()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not permitted here: {error.stderr.strip()}")
        yield net
    finally:
        net.tear_down()


def test_this_machine_alone(net: Net) -> None:
    net.serve("host")
    assert net.round_trip("host", "localhost:9092") == "ok"
    assert "not delivered" in net.round_trip("far", f"{HOST}:9092")


def test_another_machine(net: Net) -> None:
    net.serve("host", "--listen", "0.0.0.0:9092")
    assert net.round_trip("far", f"{HOST}:9092") == "ok"
    assert net.round_trip("host", "localhost:9092") == "ok"


def test_another_container_on_the_same_network(net: Net) -> None:
    net.serve("host", "--listen", "0.0.0.0:9092")
    assert net.round_trip("inner", f"{GATEWAY}:9092") == "ok"


def test_a_mapped_port_needs_the_advertised_address(net: Net) -> None:
    net.serve("inner", "--listen", "0.0.0.0:9092")
    net.forward(39092, f"{INNER}:9092")
    assert "not delivered" in net.round_trip("far", f"{HOST}:39092")


def test_a_mapped_port_that_is_advertised(net: Net) -> None:
    net.serve("inner", "--listen", "0.0.0.0:9092", "--advertise", f"{HOST}:39092")
    net.forward(39092, f"{INNER}:9092")
    assert net.round_trip("far", f"{HOST}:39092") == "ok"


def test_two_listeners_inside_and_outside(net: Net) -> None:
    net.serve(
        "inner", "--listen", "0.0.0.0:9092", "--listen", "OUTSIDE://0.0.0.0:9094",
        "--advertise", f"OUTSIDE://{HOST}:39094",
    )  # fmt: skip
    net.forward(39094, f"{INNER}:9094")
    assert net.round_trip("far", f"{HOST}:39094") == "ok"
    assert net.round_trip("host", f"{INNER}:9092") == "ok"
    assert net.round_trip("inner", "localhost:9092") == "ok"


def test_the_same_two_listeners_as_settings(net: Net) -> None:
    settings = (
        "listeners=INSIDE://:9092,OUTSIDE://:9094",
        f"advertised.listeners=INSIDE://{INNER}:9092,OUTSIDE://{HOST}:39094",
        "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    )
    net.serve("inner", *(word for setting in settings for word in ("--set", setting)))
    net.forward(39094, f"{INNER}:9094")
    assert net.round_trip("far", f"{HOST}:39094") == "ok"
    assert net.round_trip("host", f"{INNER}:9092") == "ok"


def test_a_balancer(net: Net) -> None:
    net.serve("inner", "--listen", "0.0.0.0:9092", "--advertise", f"{HOST}:443")
    net.forward(443, f"{INNER}:9092", f"{INNER}:9092")
    assert net.round_trip("far", f"{HOST}:443") == "ok"
