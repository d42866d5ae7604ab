"""python -m compat.releases.led_astray: Kafka's Java client 4.4.0 and what only a broker of 4.4 answers.

The client copies in a transaction (TxnOffsetCommit 6) and deletes groups (DeleteGroups 3). Then the address that its
broker advertises leads to another one: the client, which names its broker, is told to bootstrap again there
(ApiVersions 5, KIP-1242), and gets on once the address leads where it should. Ends with 1 when one of these did not happen.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from barnabas.testing import KafkaBroker, start_process
from barnabas.wire.generated.errors import ErrorCode
from compat.kafka import KafkaError, free_port
from compat.kafka.releases import require
from compat.releases.published import PLACE, fetched

CLIENT = "4.4.0"
SOURCE = Path(__file__).resolve().with_name("LedAstray.java")
EXPECTED = ("committed 2", "absent GroupIdNotFoundException", "groups 0", "node 1")


class Address:
    """An address that leads to one broker, and from a moment on to another."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.text = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._target = ("", 0)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def lead_to(self, port: int) -> None:
        """Lead to another port of this machine; connections to the one before end."""
        self._target = "127.0.0.1", port
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        """Accept nothing more."""
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._target)
                self._open += [client, broker]
                for source, sink in ((client, broker), (broker, client)):
                    threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def main() -> int:
    """Returns the exit code."""
    try:
        command = _compiled()
    except KafkaError as error:
        print(f"compat.releases.led_astray: {error}", file=sys.stderr)
        return 1
    address = Address()
    ports, brokers = zip(*(_broker(node, address) for node in (1, 2)), strict=True)
    address.lead_to(ports[0])
    client = subprocess.Popen(
        [*command, address.text, f"127.0.0.1:{ports[0]}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    problems = []
    try:
        for line in EXPECTED:
            progress = client.stdout.readline().strip()
            problems.append(_row(progress == line, f"the client says {progress!r}"))
        problems += _versions(brokers[0])
        address.lead_to(ports[1])
        client.stdin.write("\n")
        client.stdin.flush()
        told = brokers[1].control(
            "GET", "/v1/wait/request", api="ApiVersions", error_code=int(ErrorCode.REBOOTSTRAP_REQUIRED)
        )
        meant = told["request"]["node_id"]
        problems.append(_row(meant == 1, f"led astray, it is told that node {meant} is not here"))
        address.lead_to(ports[0])
        progress = client.stdout.readline().strip()
        problems.append(_row(progress == "sent in", f"led right, the client says {progress!r}"))
    finally:
        client.stdin.close()
        client.kill()
        client.wait()
        client.stdout.close()
        address.close()
        for broker in brokers:
            broker.close()
    return 0 if all(problems) else 1


def _broker(node: int, address: Address) -> tuple[int, KafkaBroker]:
    """A broker that says it is at an address, and the port at which it is."""
    settings = {
        "kafka.version": "4.4",
        "broker.id": str(node),
        "advertised.listeners": f"PLAINTEXT://{address.text}",
        "group.initial.rebalance.delay.ms": "0",
    }
    port = free_port()
    return port, start_process(settings, options=["--listen", f"127.0.0.1:{port}"])


def _versions(broker: KafkaBroker) -> list[bool]:
    """Check whether the client has asked in the new versions, and named the broker that it means to reach."""
    versions = [
        _row(
            bool(asked := broker.requests(api, version=version)), f"{api} v{version} asked {len(asked)} times"
        )
        for api, version in (("TxnOffsetCommit", 6), ("DeleteGroups", 3), ("ApiVersions", 5))
    ]
    named = [entry for entry in broker.requests("ApiVersions", version=5) if entry.request["node_id"] == 1]
    return [*versions, _row(bool(named), f"node 1 meant in {len(named)} of them")]


def _compiled() -> list[str]:
    """The command that runs the client. Raises KafkaError."""
    require("javac", "a JDK 17 (Debian: apt-get install openjdk-17-jdk-headless)")
    classes = PLACE / "led_astray"
    path = f"{fetched(CLIENT)}/*"
    subprocess.run(["javac", "--release", "17", "-cp", path, "-d", str(classes), str(SOURCE)], check=True)
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{path}", "LedAstray"]


def _row(is_right: bool, text: str) -> bool:
    print("PASS" if is_right else "FAIL", text, flush=True)
    return is_right


if __name__ == "__main__":
    sys.exit(main())
