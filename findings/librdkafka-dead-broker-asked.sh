#!/bin/bash
# librdkafka 2.16.1 (confluent-kafka 2.16.1): a request for metadata that was on its way to a broker that died is sent to no other one.
# Seen: thirty clients of three brokers ask for metadata without a pause. The broker to which they are connected is killed, its port
# refuses connections, and some of the clients wait for all of the five seconds that they have given and end with _TIMED_OUT; their next
# question is answered by another broker at once. The request goes back to the queue of the same broker, where an attempt to connect
# counts as no attempt to send, and each refusal makes the pause before the next one longer, up to ten seconds.
# Beside it: the two other brokers answer all the while, as the next questions of the same clients show.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" -q --disable-pip-version-check install confluent-kafka==2.16.1

cat >"$dir/broker.py" <<'PY'
"""A broker that answers ApiVersions and Metadata v1: python broker.py INDEX PORT ..."""

import asyncio
import struct
import sys

index, *ports = map(int, sys.argv[1:])
API_VERSIONS, METADATA, UNSUPPORTED_VERSION = 18, 3, 35
SERVED = struct.pack(">i" + "hhh" * 2, 2, API_VERSIONS, 0, 0, METADATA, 1, 1)
HOST = struct.pack(">h9s", 9, b"127.0.0.1")
BROKERS = b"".join(struct.pack(">i11sih", number, HOST, port, -1) for number, port in enumerate(ports))
CLUSTER = struct.pack(">i", len(ports)) + BROKERS + struct.pack(">ii", 0, 0)


async def serve(reader, writer):
    while True:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        key, version, correlation = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
        error = struct.pack(">h", UNSUPPORTED_VERSION if version else 0)
        body = struct.pack(">i", correlation) + (CLUSTER if key == METADATA else error + SERVED)
        writer.write(struct.pack(">i", len(body)) + body)


async def main():
    await asyncio.start_server(serve, "127.0.0.1", ports[index])
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
PY

"$dir/venv/bin/python" - "$dir/broker.py" >"$dir/seen" <<'PY'
import socket
import subprocess
import sys
import threading
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

CLIENTS, ROUNDS_MAX, TIMEOUT_S = 30, 20, 5


def free_ports():
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def start(index, ports):
    command = [sys.executable, sys.argv[1], str(index), *ports]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert broker.stdout.readline() == "ready\n"
    return broker


def ask(client, until, outcomes):
    while time.monotonic() < until:
        begun = time.monotonic()
        try:
            client.list_topics(timeout=TIMEOUT_S)
        except KafkaException as error:
            outcomes.add((error.args[0].name(), round(time.monotonic() - begun)))
            begun = time.monotonic()
            outcomes.add((f"{len(client.list_topics(timeout=TIMEOUT_S).brokers)} brokers", round(time.monotonic() - begun)))


outcomes = set()
for _ in range(ROUNDS_MAX):
    ports = free_ports()
    brokers = [start(index, ports) for index in range(3)]
    clients = [AdminClient({"bootstrap.servers": f"127.0.0.1:{ports[0]}", "log_level": 0}) for _ in range(CLIENTS)]
    for client in clients:
        assert len(client.list_topics(timeout=TIMEOUT_S).brokers) == 3
    threads = [threading.Thread(target=ask, args=(client, time.monotonic() + 2, outcomes)) for client in clients]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    brokers[0].kill()
    for thread in threads:
        thread.join()
    for broker in brokers:
        broker.kill()
        broker.wait()
    if outcomes:
        break
for answer, seconds in sorted(outcomes):
    print(answer, "after", seconds, "s")
PY

diff - "$dir/seen" <<'SEEN'
3 brokers after 0 s
_TIMED_OUT after 5 s
SEEN
