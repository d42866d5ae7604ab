"""`python -m bench.peers.floor_server PORT blocking|trio|epoll|writes|looks|reads DIR`: prepared answers to requests.

The cost of this server is a lower bound for a broker in Python: it reads requests from sockets and writes responses, and
does little else. Produce, Fetch and OffsetCommit are measured.

The rule: the codecs answer the first request of each API on a connection; each later response has the same bytes with its
own correlation id. A Produce response also has its base offset, for which the record count of the batch is read (four
bytes). A Fetch response has the largest produced batch, repeated up to the requested size and with the requested offsets,
so a log never ends.

`blocking`: a thread for each connection, which waits in the kernel.
`trio`: the broker's transport, which looks for the next request before it yields to the event loop.
`writes`: as `trio`; also verifies the checksum of each batch, and writes it to the topic's file in DIR.
`looks`: as `writes`; also scans the records, with the code of the broker's leaders.
`reads`: as `writes`; answers a Fetch from the file with `sendfile`, from the requested offset on. Each batch is sent once,
so it comes from memory; repeated bytes would come from the processor's cache.
`epoll`: one loop without tasks and threads, which answers all ready sockets in turn. It also serves classic groups of one
member: the codecs decode JoinGroup, SyncGroup and Heartbeat, each join starts a generation, and nothing is stored.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from struct import Struct

from barnabas.network.ready_sockets import ReadySockets
from barnabas.network.sockets import PlainTransport
from barnabas.records.batch import HEADER_SIZE, read_body, read_header
from barnabas.records.crc import crc32c
from barnabas.records.scan import scan_body
from barnabas.records.varint import Buffer
from barnabas.serving.pacing import BUSY_POLL_AFTER_LARGE_SECONDS, BUSY_POLL_SECONDS, UNCOUNTED_BYTES_MAX
from barnabas.wire import headers, registry
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.wire.generated.produce import ProduceResponse
from barnabas.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.wire.regions import Chunk, FileRegion

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, CONSUMER_GROUP_HEARTBEAT = 11, 12, 13, 14, 68
API_VERSIONS, INIT_PRODUCER_ID = 18, 22
VERSIONS = {
    PRODUCE: (0, 8),  # librdkafka compresses only for brokers that serve v0, and sends the highest version
    FETCH: (4, 11),
    LIST_OFFSETS: (1, 2),
    METADATA: (0, 8),
    OFFSET_COMMIT: (2, 9),
    FIND_COORDINATOR: (0, 2),
    OFFSET_FETCH: (1, 9),
    JOIN_GROUP: (0, 2),
    HEARTBEAT: (0, 1),
    LEAVE_GROUP: (0, 1),
    SYNC_GROUP: (0, 1),
    API_VERSIONS: (0, 3),
    INIT_PRODUCER_ID: (0, 1),
    CONSUMER_GROUP_HEARTBEAT: (0, 0),
}
"""Advertised versions, in which the patched fields have fixed positions. They suffice for producers, and for consumers
without a group, which check that a broker serves groups but do not use them."""
NODE_ID = 1
PRODUCER_ID = 1
LATEST = -1
BUFFER_BYTES = 4 * 1024 * 1024
SCRATCH_BYTES = 64 * 1024
"""Bytes to receive while the size of the next request is unknown."""

_SIZE = Struct(">i")
_OFFSET = Struct(">q")
_CORRELATION_ID = slice(8, 12)  # of a request with its size field
_CORRELATION_ID_OF_ANSWER = slice(4, 8)
_CHECKSUM, _CHECKED, _RECORD_COUNT = 17, 21, 57  # of a batch
_MARK = 0x0102030405060708


class Topic:
    """State of a topic, shared by all connections: its number of records, and its largest batch."""

    def __init__(self, *, looks: bool = False, reads: bool = False) -> None:
        """With `looks`, `write` goes over the records; with `reads`, it notes where each batch is, for `region`."""
        self._looks = looks
        self._reads = reads
        self._offsets: list[int] = []
        self._positions: list[int] = []
        self.end = 0
        self.batch = b""
        self.batch_records = 0
        self._file = -1
        self._written = 0

    def write(self, path: Path, batch: memoryview) -> None:
        """Check a batch and append it to the file of the topic. Raises ValueError for a wrong checksum, RecordsError."""
        if crc32c(batch[_CHECKED:]) != int.from_bytes(batch[_CHECKSUM:_CHECKED], "big"):
            raise ValueError("the checksum of a batch is wrong")
        if self._looks:
            header = read_header(batch)
            body: Buffer = batch[HEADER_SIZE:]
            if header.codec:
                body = read_body(batch, 0, header, decompressed_bytes_max=BUFFER_BYTES)
            scan_body(body, header.records_count, header.base_timestamp)
        if self._file < 0:
            self._file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDWR)
        if self._reads:
            _OFFSET.pack_into(batch, 0, self.end)  # which the checksum leaves out
            self._offsets.append(self.end)
            self._positions.append(self._written)
        self._written += os.pwrite(self._file, batch, self._written)

    @property
    def has_regions(self) -> bool:
        """Return whether Fetch responses come from the file."""
        return bool(self._offsets)

    def region(self, offset: int, size_max: int) -> FileRegion:
        """Return up to `size_max` bytes of the file from the batch of an offset on; empty at the log's end.

        The log must not be empty.
        """
        number = bisect_right(self._offsets, offset) - 1
        position = self._positions[number] if offset < self.end else self._written
        return FileRegion(self._file, position, min(size_max, self._written - position), self)


class Answers:
    """The responses of a connection, which writes to one topic, or reads one."""

    def __init__(self, port: int, topics: defaultdict[str, Topic], directory: Path | None = None) -> None:
        """`topics` are shared by all connections; produced batches are written to files in `directory`, if given."""
        self._port = port
        self._directory = directory
        self._topics = topics
        self._topic = Topic()
        self._path: Path | None = None
        self._produced = bytearray()
        self._base_offset = self._batch = 0
        self._fetched = bytearray()
        self._batches: list[int] = []
        self._committed = bytearray()
        self._generation = 0

    def chunks_to(self, request: memoryview) -> list[Chunk]:
        """Return the whole response as `to` does; a part of it may be a region of a file."""
        if request[5] != FETCH:
            return [self.to(request)]
        header, asked = _fetch_in(request)
        topic = self._topics[asked.topics[0].topic]
        if not topic.has_regions:
            return [self.to(request)]
        partition = asked.topics[0].partitions[0]
        region = topic.region(partition.fetch_offset, partition.partition_max_bytes)
        start = self._fetched = self._fetched or self._fetch_answer(asked, header, b"")
        _SIZE.pack_into(start, 0, len(start) - 4 + region.size)
        _SIZE.pack_into(start, len(start) - 4, region.size)
        start[_CORRELATION_ID_OF_ANSWER] = request[_CORRELATION_ID]
        return [bytes(start), region] if region.size else [b""]

    def to(self, request: memoryview) -> bytes | bytearray:
        """Return the response with its size field; empty if the request waits for records that never come."""
        key = request[5]
        if key == PRODUCE:
            answer = self._to_produce(request)
        elif key == FETCH:
            answer = self._to_fetch(request)
        elif key == OFFSET_COMMIT:
            answer = self._committed = self._committed or bytearray(self._answer(request[4:]))
        else:
            return self._answer(request[4:])
        if answer:
            answer[_CORRELATION_ID_OF_ANSWER] = request[_CORRELATION_ID]
        return answer

    def _to_produce(self, request: memoryview) -> bytearray:
        answer = self._produced = self._produced or self._prepared(request)
        topic = self._topic
        _OFFSET.pack_into(answer, self._base_offset, topic.end)
        count = _SIZE.unpack_from(request, self._batch + _RECORD_COUNT)[0]
        if self._path is not None:
            topic.write(self._path, request[self._batch :])
        topic.end += count
        if len(request) - self._batch > len(topic.batch):
            topic.batch, topic.batch_records = bytes(request[self._batch :]), count
        return answer

    def _prepared(self, request: memoryview) -> bytearray:
        """Answer a first Produce; note where base offset and batch are."""
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
        self._topic = self._topics[topic.name]
        self._path = self._directory / topic.name if self._directory is not None else None
        self._base_offset = answer.index(_OFFSET.pack(_MARK))
        self._batch = len(request) - len(partition.records)
        return answer

    def _to_fetch(self, request: memoryview) -> bytearray:
        header, asked = _fetch_in(request)
        if not self._fetched:
            self._topic = self._topics[asked.topics[0].topic]
            if not self._topic.batch:
                return self._fetched
            self._fetched = self._prepared_fetch(asked, header)
        count = self._topic.batch_records
        offset = asked.topics[0].partitions[0].fetch_offset // count * count
        for position in self._batches:
            _OFFSET.pack_into(self._fetched, position, offset)
            offset += count
        return self._fetched

    def _prepared_fetch(self, asked: FetchRequest, header: headers.RequestHeader) -> bytearray:
        """Answer a first Fetch; note where its batches are."""
        size = len(self._topic.batch)
        copies = max(asked.topics[0].partitions[0].partition_max_bytes // size, 1)
        answer = self._fetch_answer(asked, header, self._topic.batch * copies)
        first = len(answer) - copies * size
        self._batches = [first + number * size for number in range(copies)]
        return answer

    def _fetch_answer(self, asked: FetchRequest, header: headers.RequestHeader, records: bytes) -> bytearray:
        """Return an answer to a Fetch, with the records at its end."""
        (topic,) = asked.topics
        (partition,) = topic.partitions
        data = FetchResponse.PartitionData(
            partition_index=partition.partition,
            high_watermark=_MARK,
            last_stable_offset=_MARK,
            records=records,
        )
        response = FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic=topic.topic, partitions=[data])]
        )
        return bytearray(_joined(FETCH, header.api_version, header.correlation_id, response))

    def _answer(self, frame: memoryview) -> bytes:
        header = headers.parse_request_header(frame)
        key, version = header.api_key, header.api_version
        request: object = None
        if key != API_VERSIONS:  # clients may send it in an unknown version
            request, _ = registry.request_codec(key).decode(frame, header.body_position, version)
        return _joined(key, version, header.correlation_id, self._response(request))

    def _response(self, request: object) -> object:
        match request:
            case ListOffsetsRequest():
                return self._offsets(request)
            case MetadataRequest():
                return self._metadata(request)
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(node_id=NODE_ID, host="127.0.0.1", port=self._port)
            case InitProducerIdRequest():
                return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=0)
            case OffsetCommitRequest():
                return _committed(request)
            case JoinGroupRequest():
                return self._alone(request)
            case SyncGroupRequest():
                return SyncGroupResponse(assignment=request.assignments[0].assignment)
            case HeartbeatRequest():
                return HeartbeatResponse()
        return _versions()

    def _alone(self, request: JoinGroupRequest) -> JoinGroupResponse:
        """Return a join response with a new generation, of which the member is leader and only member."""
        self._generation += 1
        member_id = request.member_id or "the-only-one"
        (protocol,) = request.protocols
        member = JoinGroupResponse.JoinGroupResponseMember(member_id=member_id, metadata=protocol.metadata)
        return JoinGroupResponse(
            generation_id=self._generation,
            protocol_name=protocol.name,
            leader=member_id,
            member_id=member_id,
            members=[member],
        )

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        for topic in request.topics:
            partitions = [
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=partition.partition_index,
                    offset=self._topics[topic.name].end if partition.timestamp == LATEST else 0,
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


def _committed(request: OffsetCommitRequest) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for topic in request.topics:
        partitions = [
            OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=partition.partition_index)
            for partition in topic.partitions
        ]
        response.topics.append(
            OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=partitions)
        )
    return response


def _fetch_in(request: memoryview) -> tuple[headers.RequestHeader, FetchRequest]:
    """Return the header and the body of a Fetch frame with its size field."""
    frame = request[4:]
    header = headers.parse_request_header(frame)
    asked, _ = registry.request_codec(FETCH).decode(frame, header.body_position, header.api_version)
    return header, asked


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


# --- three ways to wait -----------------------------------------------------------------------------------------


def _whole(view: memoryview, used: int) -> int:
    """Return the size of the request at the start of the buffer, 0 if it is incomplete."""
    if used < 4:
        return 0
    size: int = 4 + _SIZE.unpack_from(view)[0]
    return size if used >= size else 0


def _missing(view: memoryview, used: int) -> int:
    """Return how many bytes of the request at the start of the buffer are not there yet, 0 where that is not known."""
    return max(4 + _SIZE.unpack_from(view)[0] - used, 0) if used >= 4 else 0


def serve_blocking(listening: socket.socket) -> None:
    """Serve each connection in a thread that waits in the kernel."""
    port, topics = listening.getsockname()[1], defaultdict[str, Topic](Topic)
    while True:
        accepted, _ = listening.accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_serve_blocking, args=(accepted, Answers(port, topics)), daemon=True).start()


def _serve_blocking(accepted: socket.socket, answers: Answers) -> None:
    view, used = memoryview(bytearray(BUFFER_BYTES)), 0
    with accepted:
        while received := accepted.recv_into(view[used:]):
            used += received
            while size := _whole(view, used):
                accepted.sendall(answers.to(view[:size]))
                view[: used - size] = view[size:used]
                used -= size


def serve_epoll(listening: socket.socket) -> None:
    """Serve all connections in one loop; each turn handles the received bytes of ready connections."""
    port, topics = listening.getsockname()[1], defaultdict[str, Topic](Topic)
    served: dict[int, tuple[socket.socket, Answers, bytearray]] = {}
    buffer = memoryview(bytearray(BUFFER_BYTES))
    with select.epoll() as poll:
        poll.register(listening, select.EPOLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == listening.fileno():
                    accepted, _ = listening.accept()
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    served[accepted.fileno()] = accepted, Answers(port, topics), bytearray()
                    poll.register(accepted, select.EPOLLIN)
                    continue
                accepted, answers, rest = served[descriptor]
                received = accepted.recv_into(buffer)
                if not received:
                    del served[descriptor]
                    accepted.close()
                    continue
                rest += buffer[:received]
                while size := _whole(memoryview(rest), len(rest)):
                    request = memoryview(rest[:size])
                    del rest[:size]
                    accepted.sendall(answers.to(request))


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


def serve_trio(
    listening: socket.socket, directory: Path | None = None, *, looks: bool = False, reads: bool = False
) -> None:
    """Serve each connection in a task, over the broker's transport."""
    port, topics = (
        listening.getsockname()[1],
        defaultdict[str, Topic](lambda: Topic(looks=looks, reads=reads)),
    )
    ready = ReadySockets()

    async def serve(accepted: socket.socket) -> None:
        transport, answers = PlainTransport(accepted, ready=ready), Answers(port, topics, directory)
        view, used, look_s = memoryview(bytearray(BUFFER_BYTES)), 0, BUSY_POLL_SECONDS
        while True:
            if not transport.is_only_readable(look_s):
                await transport.wait_readable()
            # Read no more than the request, so that few bytes remain to be moved.
            room = max(_missing(view, used), SCRATCH_BYTES)
            received = transport.receive_now(view[used : used + room])
            if received == 0:
                return transport.close()
            used += received or 0
            transport.expect(_missing(view, used))
            while size := _whole(view, used):
                look_s = BUSY_POLL_SECONDS if size <= UNCOUNTED_BYTES_MAX else BUSY_POLL_AFTER_LARGE_SECONDS
                await transport.send(answers.chunks_to(view[:size]) if reads else [answers.to(view[:size])])
                view[: used - size] = view[size:used]
                used -= size

    serve_each(listening, serve)


WAYS: dict[str, Callable[[socket.socket, Path], None]] = {
    "blocking": lambda listening, _: serve_blocking(listening),
    "trio": lambda listening, _: serve_trio(listening),
    "epoll": lambda listening, _: serve_epoll(listening),
    "writes": serve_trio,
    "looks": lambda listening, directory: serve_trio(listening, directory, looks=True),
    "reads": lambda listening, directory: serve_trio(listening, directory, reads=True),
}

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as bound:
        WAYS[sys.argv[2]](bound, Path(sys.argv[3]))
