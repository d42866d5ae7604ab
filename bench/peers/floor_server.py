"""`python -m bench.peers.floor_server PORT blocking|trio`: a process that answers Produce and hardly looks at it.

The rule: a connection's first Produce is answered by the codecs, and each one after it by the same bytes with its own
correlation id and base offset, for which four bytes of the batch are read: how many records it has. What is left is what
a broker in this language cannot do without: requests are read from a socket and something is written back. `blocking`
waits in the kernel with a thread for each connection, `trio` as the broker does: over its transport, with its look at
the next request before a turn of the event loop.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from struct import Struct

from barnabas.network.ready_sockets import ReadySockets
from barnabas.network.sockets import PlainTransport
from barnabas.wire import headers, registry
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.produce import ProduceResponse

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
VERSIONS = {PRODUCE: (3, 8), FETCH: (4, 11), LIST_OFFSETS: (1, 2), METADATA: (0, 8), API_VERSIONS: (0, 3)}
"""What is advertised: enough for a producer without idempotence, in versions that have each field at its place.

Fetch is not answered: that it is there says that batches of version 2 are understood."""
NODE_ID = 1
LATEST = -1
BUFFER_BYTES = 4 * 1024 * 1024
LOOK_S = 20e-6
"""For how long the next request is looked for before a turn of the event loop, as the broker does."""

_SIZE = Struct(">i")
_OFFSET = Struct(">q")
_CORRELATION_ID = slice(8, 12)  # of a request with its size field
_CORRELATION_ID_OF_ANSWER = slice(4, 8)
_RECORD_COUNT = 57  # of a batch
_MARK = 0x0102030405060708


class Answers:
    """The answers of one connection, whose producer writes to one topic."""

    def __init__(self, port: int, ends: Counter[str]) -> None:
        """`ends` is what all connections have in common: how many records each topic has."""
        self._port = port
        self._ends = ends
        self._topic = ""
        self._produced: bytearray | None = None
        self._base_offset = 0
        self._count = 0

    def to(self, request: memoryview) -> bytes | bytearray:
        """Return the whole answer to a request with its size field."""
        if request[5] != PRODUCE:
            return self._answer(request[4:])
        answer = self._produced
        if answer is None:
            answer = self._produced = self._prepared(request)
        answer[_CORRELATION_ID_OF_ANSWER] = request[_CORRELATION_ID]
        _OFFSET.pack_into(answer, self._base_offset, self._ends[self._topic])
        self._ends[self._topic] += _SIZE.unpack_from(request, self._count)[0]
        return answer

    def _prepared(self, request: memoryview) -> bytearray:
        """Answer a first Produce; note where base offset and record count are."""
        frame = request[4:]
        header = headers.parse_request_header(frame)
        asked, _ = registry.request_codec(PRODUCE).decode(frame, header.body_position, header.api_version)
        (topic,) = asked.topic_data
        (partition,) = topic.partition_data
        produced = ProduceResponse.PartitionProduceResponse(index=partition.index, base_offset=_MARK)
        response = ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(name=topic.name, partition_responses=[produced])]
        )
        answer = bytearray(_joined(PRODUCE, header.api_version, header.correlation_id, response))
        self._topic = topic.name
        self._base_offset = answer.index(_OFFSET.pack(_MARK))
        self._count = len(request) - len(partition.records) + _RECORD_COUNT
        return answer

    def _answer(self, frame: memoryview) -> bytes:
        header = headers.parse_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == API_VERSIONS:
            return _joined(key, version, header.correlation_id, _versions())
        request, _ = registry.request_codec(key).decode(frame, header.body_position, version)
        response = self._offsets(request) if key == LIST_OFFSETS else self._metadata(request)
        return _joined(key, version, header.correlation_id, response)

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        for topic in request.topics:
            partitions = [
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=partition.partition_index,
                    offset=self._ends[topic.name] if partition.timestamp == LATEST else 0,
                )
                for partition in topic.partitions
            ]
            response.topics.append(
                ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=partitions)
            )
        return response

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        response = MetadataResponse(controller_id=NODE_ID)
        response.brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=NODE_ID, host="127.0.0.1", port=self._port)
        ]
        for topic in request.topics or ():
            partition = MetadataResponse.MetadataResponsePartition(
                partition_index=0, leader_id=NODE_ID, replica_nodes=[NODE_ID], isr_nodes=[NODE_ID]
            )
            response.topics.append(
                MetadataResponse.MetadataResponseTopic(name=topic.name, partitions=[partition])
            )
        return response


def _joined(key: int, version: int, correlation_id: int, response: object) -> bytes:
    chunks = headers.encode_response(key, version, correlation_id, response)
    return b"".join(chunks)  # type: ignore[arg-type]


def _versions() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in VERSIONS.items()
        ]
    )


# --- two ways to wait -------------------------------------------------------------------------------------------


def _whole(view: memoryview, used: int) -> int:
    """Return the size of the request at the start of the buffer if all of it is there, 0 if not."""
    if used < 4:
        return 0
    size: int = 4 + _SIZE.unpack_from(view)[0]
    return size if used >= size else 0


def serve_blocking(listening: socket.socket) -> None:
    """Serve each connection in a thread that waits in the kernel."""
    port, ends = listening.getsockname()[1], Counter[str]()
    while True:
        accepted, _ = listening.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_serve_blocking, args=(accepted, Answers(port, ends)), daemon=True).start()


def _serve_blocking(accepted: socket.socket, answers: Answers) -> None:
    view, used = memoryview(bytearray(BUFFER_BYTES)), 0
    with accepted:
        while received := accepted.recv_into(view[used:]):
            used += received
            while size := _whole(view, used):
                accepted.sendall(answers.to(view[:size]))
                view[: used - size] = view[size:used]
                used -= size


def serve_each(listening: socket.socket, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
    """Run Trio: each connection that is accepted, non-blocking, is served by a task."""
    import trio

    listening.setblocking(False)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await trio.lowlevel.wait_readable(listening)
                accepted, _ = listening.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                nursery.start_soon(serve, accepted)

    trio.run(main)


def serve_trio(listening: socket.socket) -> None:
    """Serve each connection in a task, over the broker's transport."""
    port, ends = listening.getsockname()[1], Counter[str]()
    ready = ReadySockets()

    async def serve(accepted: socket.socket) -> None:
        transport, answers = PlainTransport(accepted, ready=ready), Answers(port, ends)
        view, used = memoryview(bytearray(BUFFER_BYTES)), 0
        while True:
            if not transport.is_only_readable(LOOK_S):
                await transport.wait_readable()
            received = transport.receive_now(view[used:])
            if received == 0:
                return transport.close()
            used += received or 0
            while size := _whole(view, used):
                await transport.send([answers.to(view[:size])])
                view[: used - size] = view[size:used]
                used -= size

    serve_each(listening, serve)


WAYS: dict[str, Callable[[socket.socket], None]] = {"blocking": serve_blocking, "trio": serve_trio}

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as bound:
        WAYS[sys.argv[2]](bound)
