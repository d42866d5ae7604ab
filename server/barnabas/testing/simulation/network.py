"""A network in memory that delays, splits, cuts and refuses, by a seed.

The rule: only TCP's promises hold (bytes arrive in order, once, or the connection breaks): delays, the split into
pieces, and whether both ends see a break at the same time, are random. Hosts are names. An isolated host detects only
silence, unless the cut resets connections.
"""

from __future__ import annotations

import errno
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import trio

from barnabas.network.transport import Address, Reader
from barnabas.testing.simulation.clock import VirtualClock, Waiters
from barnabas.wire.regions import Chunk, FileRegion

CONNECTIONS_BEFORE_A_SWEEP = 100
FIRST_FREE_PORT = 40_000
RECEIVED_BYTES_MAX = 64 * 1024
SOCKET_BUFFER_BYTES = 64 * 1024
"""Bytes in flight in one direction at which the sender must wait."""


@dataclass(slots=True)
class Weather:
    """Behaviour of the network; times in seconds of the simulated clock."""

    latency_min_s: float = 0.000_1
    latency_max_s: float = 0.001
    split_probability: float = 0.1
    """Probability that bytes of one send arrive in two pieces."""


class _Pipe:
    """One direction of a connection: bytes in flight, and arrived bytes."""

    def __init__(self, network: SimulatedNetwork, source: str, target: str) -> None:
        self._network = network
        self._clock = network.clock
        self._source = source
        self._target = target
        self._underway: deque[tuple[float, bytes]] = deque()  # (time of arrival, bytes); b"" is the end
        self._arrived = bytearray()
        self._readers = Waiters()
        self._writers = Waiters()
        self._woken_s = math.inf  # when readers are woken next
        self._size = 0
        self._last_arrival_s = 0.0
        self.is_ended = False
        self.is_broken = False

    @property
    def room(self) -> int:
        return max(SOCKET_BUFFER_BYTES - self._size, 0)

    def put(self, data: bytes) -> None:
        """Send bytes; b"" is the end."""
        network = self._network
        network.sent += 1
        random, weather = network.random, network.weather
        if len(data) > 1 and random.random() < weather.split_probability:
            cut = random.randrange(1, len(data))
            self._put_piece(data[:cut])
            data = data[cut:]
        self._put_piece(data)
        if self._readers:
            self._wake_readers_in_time()

    def _put_piece(self, piece: bytes) -> None:
        weather = self._network.weather
        arrival_s = self._clock.now_s + self._network.random.uniform(
            weather.latency_min_s, weather.latency_max_s
        )
        if arrival_s > self._last_arrival_s:
            self._last_arrival_s = arrival_s
        self._underway.append((self._last_arrival_s, piece))
        self._size += len(piece)

    def _wake_readers_in_time(self) -> None:
        """Schedule a wake-up of the readers for the arrival of the next piece; before that they need not run."""
        if not self._underway or self._network.is_cut(self._source, self._target):
            return
        arrival_s = self._underway[0][0]
        if arrival_s < self._woken_s:
            self._woken_s = arrival_s
            self._clock.at(arrival_s, self._arrive)

    def _arrive(self) -> None:
        self._woken_s = math.inf
        self._readers.wake()

    def break_off(self) -> None:
        """Lose the bytes in flight; both ends get an error."""
        self.is_broken = True
        self._underway.clear()
        self.look_again()

    def look_again(self) -> None:
        """Wake readers and writers: a cut has begun or ended."""
        self._readers.wake()
        self._writers.wake()

    def take_now(self, size: int) -> bytes | None:
        """Return the arrived bytes, b"" at the end, None if no bytes have arrived. Raises ConnectionResetError."""
        if self.is_broken:
            raise ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
        self._let_in()
        if self._arrived:
            data = bytes(self._arrived[:size])
            del self._arrived[:size]
            was_full = not self.room
            self._size -= len(data)
            if was_full:
                self._writers.wake()
            return data
        return b"" if self.is_ended else None

    def _let_in(self) -> None:
        """Move due bytes in flight to the arrived ones."""
        underway, now_s = self._underway, self._clock.now_s
        if underway and underway[0][0] <= now_s and not self._network.is_cut(self._source, self._target):
            while underway and underway[0][0] <= now_s:
                _, piece = underway.popleft()
                if not piece:
                    self.is_ended = True
                self._arrived += piece

    async def wait_arrived(self) -> None:
        """Wait until `take_now` may return something."""
        has_waited = False
        while not self.is_broken:
            self._let_in()
            if self._arrived or self.is_ended:
                break
            has_waited = True
            self._wake_readers_in_time()
            await self._readers.wait()
        if not has_waited:
            await trio.lowlevel.checkpoint()

    async def wait_room(self) -> None:
        """Wait until more can be sent."""
        while not self.room and not self.is_broken:
            await self._writers.wait()
        await trio.lowlevel.checkpoint()


class SimulatedTransport:
    """One end of a connection, as `network.transport.Transport`."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe, local: Address, peer: Address) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._reader: Reader | None = None
        self._is_closed = False
        self.local_address = local
        self.peer_address = peer

    def report_to(self, reader: Reader) -> None:
        """Tell `reader` how the peer reads."""
        self._reader = reader

    async def receive_into(self, view: memoryview) -> int:
        """Read at least one byte into `view`; 0 means that the peer has closed."""
        data = await self.receive(len(view))
        view[: len(data)] = data
        return len(data)

    async def receive(self, size: int) -> bytes:
        """Read at least one byte, and `size` at most; b"" means that the peer has closed."""
        self._check()
        while True:
            await self._incoming.wait_arrived()
            self._check()
            data = self._incoming.take_now(size)
            if data is not None:
                return data

    def is_only_readable(self, seconds: float) -> bool:  # noqa: ARG002
        """Return False: in a simulated world all tasks wait for the event loop; a seed decides its order."""
        return False

    async def wait_readable(
        self,
        *,
        soon: bool = True,  # noqa: ARG002 (all may wake)
        is_crowded: bool = False,  # noqa: ARG002
        arrived: Callable[[], bool] | None = None,  # noqa: ARG002
    ) -> None:
        """Wait until data may be readable, or the peer has closed."""
        await self._incoming.wait_arrived()

    def expect(self, size: int) -> None:
        """Do nothing: any data that arrives wakes a reader."""

    def wake(self) -> None:
        """Do nothing: a reader may keep waiting."""

    def receive_now(self, view: memoryview) -> int | None:
        """Read arrived bytes into `view`."""
        self._check()
        data = self._incoming.take_now(len(view))
        if data is None:
            return None
        view[: len(data)] = data
        return len(data)

    def send_now(self, data: bytes | bytearray | memoryview) -> int:
        """Send as much as there is room for; returns how many bytes."""
        self._check()
        if self._outgoing.is_broken or self._outgoing.is_ended:
            raise BrokenPipeError(errno.EPIPE, "broken pipe")
        taken = bytes(data[: self._outgoing.room])
        if taken:
            self._outgoing.put(taken)
        return len(taken)

    async def send(self, chunks: list[Chunk]) -> None:
        """Send all chunks in order; if there is room for all, without a checkpoint, like a socket."""
        pieces: list[bytes | bytearray | memoryview] = []
        for chunk in chunks:
            assert not isinstance(chunk, FileRegion), "a simulated disk has no files that a kernel could send"
            pieces.append(chunk)
        await self.send_bytes(b"".join(pieces))

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes, waiting for room."""
        is_behind = False
        while data:
            self._check()
            if self._outgoing.is_broken or self._outgoing.is_ended:
                raise BrokenPipeError(errno.EPIPE, "broken pipe")
            room = self._outgoing.room
            if not room:
                if not is_behind and self._reader is not None:
                    self._reader.fell_behind(len(data))
                is_behind = True
                await self._outgoing.wait_room()
                continue
            self._outgoing.put(data[:room])
            data = data[room:]
            if is_behind and self._reader is not None:
                self._reader.took_some()
        if is_behind and self._reader is not None:
            self._reader.caught_up()

    def reset(self) -> None:
        """Break the connection for both ends."""
        self._incoming.break_off()
        self._outgoing.break_off()

    @property
    def is_closed(self) -> bool:
        """True once this end has been closed."""
        return self._is_closed

    def close(self) -> None:
        """Close the connection."""
        if not self._is_closed:
            self._is_closed = True
            if not self._outgoing.is_broken:
                self._outgoing.put(b"")
            self._incoming.look_again()
            self._outgoing.look_again()

    def _check(self) -> None:
        if self._is_closed:
            raise trio.ClosedResourceError


class SimulatedStream(trio.abc.Stream):
    """The same end as a trio stream, for clients."""

    def __init__(self, transport: SimulatedTransport) -> None:
        self.transport = transport

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; where there is room for them, no other task runs meanwhile."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            await self.transport.send_bytes(bytes(data))
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def wait_send_all_might_not_block(self) -> None:
        """Return immediately."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes, b"" at the end."""
        try:
            return await self.transport.receive(max_bytes or RECEIVED_BYTES_MAX)
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Close it."""
        self.transport.close()
        await trio.lowlevel.checkpoint()


class SimulatedAcceptor:
    """A bound address of one host."""

    def __init__(self, network: SimulatedNetwork, address: Address) -> None:
        self._network = network
        self._waiting: deque[SimulatedTransport] = deque()
        self._changed = trio.Event()
        self.address = address
        self.is_listening = False
        self._is_closed = False

    def listen(self) -> None:
        """Begin to accept connections."""
        self.is_listening = True

    def offer(self, transport: SimulatedTransport) -> None:
        """Queue a connection for `accept`."""
        self._waiting.append(transport)
        self._changed.set()

    async def wait_acceptable(self) -> None:
        """Wait until there may be a connection to accept."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._is_closed:
                raise trio.ClosedResourceError
            self._changed = trio.Event()
            await self._changed.wait()

    def accept_now(self) -> SimulatedTransport | None:
        """Return the next connection; None if none is waiting."""
        return self._waiting.popleft() if self._waiting else None

    def vanish(self) -> None:
        """Stop listening without waking the waiting task; connections not yet accepted are reset."""
        if self._network.acceptors.get(self.address) is self:  # not that of a successor
            del self._network.acceptors[self.address]
        while self._waiting:
            self._waiting.popleft().reset()

    def close(self) -> None:
        """Stop listening; connections not yet accepted are reset."""
        self.vanish()
        self._is_closed = True
        self._changed.set()


class SimulatedNetwork:
    """All hosts and their connections. Lifecycle: created inside a run; uses the run's clock."""

    def __init__(self, random: Random, clock: VirtualClock, weather: Weather | None = None) -> None:
        self.random = random
        self.clock = clock
        self.weather = weather or Weather()
        self.acceptors: dict[Address, SimulatedAcceptor] = {}
        self._connections: list[tuple[str, str, SimulatedTransport, SimulatedTransport]] = []
        self._connections_max = CONNECTIONS_BEFORE_A_SWEEP
        self._cuts: set[tuple[str, str]] = set()
        self._healed = Waiters()
        self._next_port = FIRST_FREE_PORT
        self.sent = 0
        """Number of sends of all hosts."""

    def host(self, name: str) -> SimulatedHost:
        """Return a host's view of the network."""
        return SimulatedHost(self, name)

    # --- faults ---------------------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether bytes from `source` to `target` are held back now."""
        return (source, target) in self._cuts

    def cut(self, source: str, target: str, *, both_ways: bool = True) -> None:
        """Hold back bytes between two hosts; they arrive once the cut is healed."""
        self._cuts.add((source, target))
        if both_ways:
            self._cuts.add((target, source))

    def heal(self) -> None:
        """End all cuts."""
        self._cuts.clear()
        self._healed.wake()
        for _, _, dialled, accepted in self._connections:
            for transport in (dialled, accepted):
                transport._incoming.look_again()

    def reset(self, choose: Callable[[str, str], bool] = lambda *_: True) -> None:
        """Break the open connections for which `choose` returns true, given the connecting host and the accepting one."""
        kept = []
        for entry in self._connections:
            if choose(entry[0], entry[1]):
                entry[2].reset()
            else:
                kept.append(entry)
        self._connections = kept

    def crash(self, name: str) -> None:
        """Crash a host: its addresses are free, its connections break."""
        for acceptor in [acceptor for acceptor in self.acceptors.values() if acceptor.address[0] == name]:
            acceptor.vanish()
        self.reset(lambda dialled, accepted: name in (dialled, accepted))

    def _forget_closed(self) -> None:
        """Drop connections closed at both ends; the next sweep is due when their number has doubled."""
        self._connections = [
            connection
            for connection in self._connections
            if not (connection[2].is_closed and connection[3].is_closed)
        ]
        self._connections_max = max(CONNECTIONS_BEFORE_A_SWEEP, 2 * len(self._connections))

    # --- connecting -----------------------------------------------------------------------------------------

    def free_port(self) -> int:
        """Return a port that was never used."""
        self._next_port += 1
        return self._next_port

    async def connect(self, source: str, target: Address) -> SimulatedTransport:
        """Dial from one host to an address. Raises OSError."""
        await self.clock.sleep(self.random.uniform(self.weather.latency_min_s, self.weather.latency_max_s))
        while self.is_cut(source, target[0]) or self.is_cut(target[0], source):
            await self._healed.wait()  # or until the caller gives up
            await self.clock.sleep(self.random.uniform(0, self.weather.latency_max_s * 10))
        acceptor = self.acceptors.get(target)
        if acceptor is None or not acceptor.is_listening:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{target[0]}:{target[1]} refuses")
        there, back = _Pipe(self, source, target[0]), _Pipe(self, target[0], source)
        address = (source, self.free_port())
        ours = SimulatedTransport(back, there, address, target)
        theirs = SimulatedTransport(there, back, target, address)
        if len(self._connections) >= self._connections_max:
            self._forget_closed()
        self._connections.append((source, target[0], ours, theirs))
        acceptor.offer(theirs)
        return ours


class SimulatedHost:
    """A host's view of the network, as a `network.transport.Network`."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self._network = network
        self.name = name

    def host_name(self) -> str:
        """Return the host's name."""
        return self.name

    def bind(self, host: str, port: int) -> Sequence[SimulatedAcceptor]:  # noqa: ARG002 (a host has one address)
        """Bind a port of this host."""
        address = (self.name, port or self._network.free_port())
        if address in self._network.acceptors:
            raise OSError(errno.EADDRINUSE, "address already in use")
        acceptor = self._network.acceptors[address] = SimulatedAcceptor(self._network, address)
        return [acceptor]

    async def dial(self, host: str, port: int) -> SimulatedStream:
        """Connect to an address."""
        return SimulatedStream(await self._network.connect(self.name, (host, port)))
