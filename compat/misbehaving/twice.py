"""A record that an idempotent librdkafka producer writes twice: `python -m compat.misbehaving.twice [--against kafka|3.9]`.

A proxy in front of the broker loses one answer (partition 1), refuses one batch with NOT_LEADER_OR_FOLLOWER (partition 0)
and lets the next one of that partition through, as it goes when a leader moves while batches are under way. The broker
answers that one with OUT_OF_ORDER_SEQUENCE_NUMBER; then the connection is lost. librdkafka raises its epoch, and sends
what had lost its answer once more. Prints how often each value is in the log; exits with 1 where none is there twice.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceResponse
from barnabas.wire.headers import decode_response, encode_response
from compat.kit.reading import read_to_end
from compat.matrix.brokers import ApacheKafka, Barnabas, Broker

TOPIC = "twice"
PRODUCE, METADATA = 0, 3
LOST, REFUSED, NEXT = b"loses its answer", b"is refused", b"comes behind"
PAUSE_S = 0.3
DELIVERED_WITHIN_S = 30.0

INT32, REQUEST = Struct(">i"), Struct(">hhi")


@dataclass
class Done:
    """The faults that have struck, each of which does so once."""

    has_lost: bool = False
    has_refused: bool = False


class Link:
    """A connection of the client's, and one of the proxy's own to the broker behind it."""

    def __init__(self, client: socket.socket, broker: tuple[str, int], own_port: int, done: Done) -> None:
        self._client = client
        self._done = done
        self._broker = socket.create_connection(broker)
        self._ports = INT32.pack(broker[1]), INT32.pack(own_port)
        self._asked: dict[int, tuple[int, int]] = {}
        self._lost: set[int] = set()
        self._refusal = b""
        for step in (self._requests, self._answers):
            threading.Thread(target=self._run, args=(step,), daemon=True).start()

    def _run(self, step: object) -> None:
        with suppress(EOFError, OSError):
            step()  # type: ignore[operator]
        for side in (self._client, self._broker):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def _requests(self) -> None:
        while True:
            frame = _receive(self._client)
            key, version, correlation_id = REQUEST.unpack_from(frame)
            self._asked[correlation_id] = key, version
            done = self._done
            if key == PRODUCE and LOST in frame and not done.has_lost:
                done.has_lost = True
                self._lost.add(correlation_id)
            elif key == PRODUCE and REFUSED in frame and not done.has_refused:
                done.has_refused = True
                self._refusal = _refusal(version, correlation_id)
                continue
            elif key == PRODUCE and NEXT in frame and self._refusal:
                self._client.sendall(self._refusal)
                self._refusal = b""
            _send(self._broker, frame)

    def _answers(self) -> None:
        while True:
            frame = _receive(self._broker)
            (correlation_id,) = INT32.unpack_from(frame)
            key, version = self._asked.pop(correlation_id)
            if correlation_id in self._lost:
                continue
            _send(self._client, frame.replace(*self._ports) if key == METADATA else frame)
            if key == PRODUCE and _code_of(frame, version) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                print(
                    "the batch behind the refused one is OUT_OF_ORDER_SEQUENCE_NUMBER; the connection is lost"
                )
                time.sleep(PAUSE_S)  # so that the client has seen it
                return


def _receive(source: socket.socket) -> bytes:
    size = INT32.unpack(_exactly(source, INT32.size))[0]
    return _exactly(source, size)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _send(target: socket.socket, frame: bytes) -> None:
    target.sendall(INT32.pack(len(frame)) + frame)


def _refusal(version: int, correlation_id: int) -> bytes:
    answer = ProduceResponse.PartitionProduceResponse(
        index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1
    )
    topic = ProduceResponse.TopicProduceResponse(name=TOPIC, partition_responses=[answer])
    chunks = encode_response(PRODUCE, version, correlation_id, ProduceResponse(responses=[topic]))
    return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]


def _code_of(frame: bytes, version: int) -> int:
    response: ProduceResponse = decode_response(frame, PRODUCE, version)[1]
    return response.responses[0].partition_responses[0].error_code


def _proxied(bootstrap: str) -> str:
    """Serve in front of a broker, until this process ends; returns the address."""
    host, _, port = bootstrap.rpartition(":")
    listener = socket.create_server(("127.0.0.1", 0))
    own_port: int = listener.getsockname()[1]

    done = Done()

    def accept() -> None:
        while True:
            client = listener.accept()[0]
            with suppress(OSError):
                Link(client, (host, int(port)), own_port, done)

    threading.Thread(target=accept, daemon=True).start()
    return f"127.0.0.1:{own_port}"


def produce(bootstrap: str) -> None:
    """Send the three records, each in a request of its own, and wait until all are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "retry.backoff.ms": 500,
            "log_level": 0,
        }
    )
    for partition in range(2):
        producer.produce(TOPIC, b"before", partition=partition)
    producer.flush(DELIVERED_WITHIN_S)
    for value, partition in ((LOST, 1), (REFUSED, 0), (NEXT, 0)):
        producer.produce(TOPIC, value, partition=partition)
        producer.poll(PAUSE_S)
    if producer.flush(DELIVERED_WITHIN_S):
        raise TimeoutError(f"not everything is acknowledged after {DELIVERED_WITHIN_S:.0f} s")


def run(broker: Broker) -> int:
    """Have the record written twice; returns the exit code."""
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(30)
        produce(_proxied(broker.bootstrap))
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": TOPIC,
            "auto.offset.reset": "earliest",
        }
        counts = Counter(
            message.value() for message in read_to_end(settings, TOPIC, 2, seconds=DELIVERED_WITHIN_S)
        )
    finally:
        broker.stop()
    for value in (LOST, REFUSED, NEXT):
        print(f"{counts[value]} times: {value.decode()}")
    return 0 if counts[LOST] == 2 else 1


def main(argv: list[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.misbehaving.twice", description=__doc__)
    parser.add_argument("--against", choices=("barnabas", "kafka", "3.9"), default="barnabas")
    against = parser.parse_args(argv).against
    with tempfile.TemporaryDirectory(prefix="barnabas-twice-") as name:
        directory = Path(name)
        if against == "barnabas":
            return run(Barnabas(directory))
        return run(ApacheKafka(directory, "4.x" if against == "kafka" else against))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
