"""Connections in a capture, reported to observers like live ones. Pure, except for the file.

The rule: missing data (packets, ends of packets, beginnings of connections) is reported, and reading resumes at the next
recognizable frame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import IO

from barnabas.environment.terminal import counted
from barnabas.tools.inspection.frames import looks_like_request
from barnabas.tools.tap.capture_reading import CaptureReader
from barnabas.tools.tap.capture_writing import FIN, RST, SYN
from barnabas.tools.tap.cutting import Budget
from barnabas.tools.tap.exchange import Connection, Observer, TopicNames
from barnabas.tools.tap.packets import Segment, segment_of
from barnabas.tools.tap.reassembly import Piece, Reassembly
from barnabas.tools.tap.session import Keeper, Session

MEMORY_BYTES = 512 << 20
ACK = 16
Endpoint = tuple[str, int]


@dataclass(slots=True)
class Report:
    """Figures of a capture: its contents and its gaps."""

    packets: int = 0
    connections: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """Packets that could not be read, by reason."""
    other_segments: int = 0
    """TCP segments of other connections."""
    missing_bytes: int = 0
    repeated_bytes: int = 0
    early_segments: int = 0
    lost_bytes: int = 0
    """Bytes that were there but belong to no frame that could be found."""
    problem: str = ""

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report."""
        yield f"{counted(self.packets, 'packet')}, {counted(self.connections, 'connection')} with Kafka brokers"
        for reason, count in self.skipped.most_common():
            yield f"{count} {reason}"
        if self.other_segments:
            yield f"{counted(self.other_segments, 'TCP segment')} of other connections"
        if self.repeated_bytes or self.early_segments:
            early = counted(self.early_segments, "segment")
            yield f"{self.repeated_bytes} bytes were sent again, {early} came out of order"
        if self.missing_bytes:
            yield f"{self.missing_bytes} bytes are missing: packets were not captured, or cut off (capture with -s 0)"
        if self.lost_bytes:
            yield f"{self.lost_bytes} bytes lie before the first frame that could be found"
        if self.problem:
            yield self.problem


class _Flow:
    """One TCP connection of the capture."""

    def __init__(self, connection: Connection, session: Session, client: Endpoint, *, is_whole: bool) -> None:
        self.connection = connection
        self.session = session
        self.client = client
        self.key: frozenset[Endpoint] = frozenset()
        self.streams = (Reassembly(), Reassembly())  # of client and broker
        self.is_lost = [
            not is_whole,
            not is_whole,
        ]  # whether the beginning of the next frame must be searched for
        self.ends = [False, False]
        self.last_at = connection.opened_at


MakeKeeper = Callable[[Connection], Keeper]


class Captured:
    """Reads a capture; `read` hands its connections to the observer."""

    def __init__(
        self, observer: Observer, *, ports: Collection[int] = (), make_keeper: MakeKeeper | None = None
    ) -> None:
        """`ports` are those of brokers; without them every connection that begins with a Kafka request is read."""
        self._observer = observer
        self._ports = frozenset(ports)
        self._make_keeper = make_keeper
        self._flows: dict[frozenset[Endpoint], _Flow] = {}
        self._budget = Budget(MEMORY_BYTES)
        self._names = TopicNames()
        self._opened: dict[frozenset[Endpoint], tuple[Endpoint, int, int]] = {}
        """Connections with a SYN in the capture: client, sequence numbers of client and broker."""
        self.report = Report()

    def read(self, file: IO[bytes]) -> Report:
        """Read a whole file. Raises CaptureError, OSError."""
        reader = CaptureReader(file)
        for packet in reader.packets():
            self.report.packets += 1
            segment = segment_of(packet)
            if isinstance(segment, str):
                self.report.skipped[segment] += 1
            elif segment is not None:
                self._segment(segment)
        for flow in list(self._flows.values()):
            self._finish(flow, "the capture ends")
        self.report.problem = reader.problem
        return self.report

    # --- segments ---------------------------------------------------------------------------------------------

    def _segment(self, segment: Segment) -> None:
        key = frozenset((segment.source, segment.target))
        flow = self._flows.get(key)
        if segment.flags & SYN:
            self._syn(key, flow, segment)
            return
        if flow is None:
            flow = self._begin(key, segment)
            if flow is None:
                self.report.other_segments += 1
                return
        side = 0 if segment.source == flow.client else 1
        flow.last_at = segment.at
        if segment.acknowledged is not None:
            for piece in flow.streams[1 - side].acknowledged(segment.acknowledged):
                self._piece(flow, 1 - side, piece)
        for piece in flow.streams[side].feed(segment.at, segment.sequence, segment.payload, segment.missing):
            self._piece(flow, side, piece)
        if segment.flags & RST:
            self._finish(flow, "reset by the " + ("client" if side == 0 else "broker"))
        elif segment.flags & FIN:
            flow.ends[side] = True
            if all(flow.ends):
                self._finish(flow, "closed")

    def _syn(self, key: frozenset[Endpoint], flow: _Flow | None, segment: Segment) -> None:
        is_answer = bool(segment.flags & ACK)
        if flow is not None:
            side = 0 if segment.source == flow.client else 1
            if flow.streams[side].has_begun:
                self._finish(flow, "the address was used again")
            else:
                flow.streams[side].begin(segment.sequence)
                return
        client = segment.target if is_answer else segment.source
        _, first, _ = self._opened.get(key, (client, -1, -1))
        if not is_answer:
            self._opened[key] = (client, segment.sequence, -1)
        else:
            self._opened[key] = (client, first, segment.sequence)

    def _begin(self, key: frozenset[Endpoint], segment: Segment) -> _Flow | None:
        """Begin a connection with its first segment after the SYN; None if it is not a connection to a broker."""
        if len(key) != 2:
            return None
        opened = self._opened.get(key)
        client = opened[0] if opened is not None else self._client_of(segment)
        if client is None:
            return None
        broker = next(end for end in key if end != client)
        if self._ports and broker[1] not in self._ports:
            return None
        if not self._ports and opened is not None:
            if not segment.payload:
                return self._flows.get(key)
            if segment.source != client or not _begins_request(segment.payload):
                return None
        self._opened.pop(key, None)
        self.report.connections += 1
        connection = Connection(self.report.connections, _text(client), _text(broker), segment.at)
        keeper = self._make_keeper(connection) if self._make_keeper is not None else None
        session = Session(connection, self._observer, budget=self._budget, names=self._names, keeper=keeper)
        flow = _Flow(connection, session, client, is_whole=opened is not None)
        for number, sequence in enumerate(opened[1:] if opened is not None else ()):
            if sequence >= 0:
                flow.streams[number].begin(sequence)
            else:
                flow.is_lost[number] = True
        flow.key = key
        self._flows[key] = flow
        self._observer.opened(connection, segment.at)
        if opened is None:
            self._observer.noted(
                connection, segment.at, "the capture begins in the middle of this connection"
            )
        return flow

    def _client_of(self, segment: Segment) -> Endpoint | None:
        """Return the client's endpoint of a connection without a captured SYN."""
        if self._ports:
            if segment.target[1] in self._ports:
                return segment.source
            return segment.target if segment.source[1] in self._ports else None
        return segment.source if _begins_request(segment.payload) else None

    # --- bytes ------------------------------------------------------------------------------------------------

    def _piece(self, flow: _Flow, side: int, piece: Piece) -> None:
        session, is_client = flow.session, side == 0
        if piece.gap:
            self.report.missing_bytes += piece.gap
            if not flow.is_lost[side] and not session.skip(piece.gap, from_client=is_client):
                session.begin_again(from_client=is_client)
                flow.is_lost[side] = True
                self._observer.noted(
                    flow.connection,
                    piece.at,
                    f"{piece.gap} bytes of the {_SIDES[side]} are missing in the capture",
                )
            return
        if not is_client and not session.has_asked:
            # The request of this response is missing; the next response may belong to a captured request.
            flow.is_lost[side] = True
        if flow.is_lost[side]:
            if not session.may_begin(piece.data, from_client=is_client):
                self.report.lost_bytes += len(piece.data)
                return
            flow.is_lost[side] = False
        if is_client:
            session.from_client(piece.data, piece.at)
        else:
            session.from_broker(piece.data, piece.at)
            session.sent()

    def _finish(self, flow: _Flow, reason: str) -> None:
        for side, stream in enumerate(flow.streams):
            for piece in stream.finish():
                self._piece(flow, side, piece)
            self.report.repeated_bytes += stream.repeated_bytes
            self.report.early_segments += stream.early
        flow.session.close(flow.last_at, reason)
        self._flows.pop(flow.key, None)


_SIDES = ("client", "broker")


def _begins_request(data: bytes) -> bool:
    size = int.from_bytes(data[:4], "big", signed=True)
    return len(data) >= 12 and size >= 8 and looks_like_request(data[4:], size)


def _text(endpoint: Endpoint) -> str:
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
