"""A live quorum for `barnabas metadata`: its controllers are asked as an observer asks them, without a node id.

The rule: the node that leads is asked; while none is known, the named controllers in turn, until a deadline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import cycle

import trio

from barnabas.client import ConnectionLostError, Endpoint
from barnabas.client.connection import Connection, open_connection
from barnabas.cluster.kraft.controllers import FETCH, reason_against
from barnabas.cluster.kraft.describing import ChangeNames
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.cluster.kraft.memory_log import MemoryObserver
from barnabas.cluster.kraft.observer import first_records
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.replica_values import PLACE
from barnabas.cluster.kraft.state import Step
from barnabas.commands.connection import Connecting
from barnabas.commands.errors import CommandError

WAIT_MS = 500
"""Time that a controller may hold a Fetch when nothing is new, as Kafka's observers have it."""
PAUSE_SECONDS = 0.1


async def observe(
    connecting: Connecting,
    reader: MemoryObserver,
    on_steps: Callable[[tuple[Step, ...]], bool],
    at_end: Callable[[Connection], Awaitable[None]] | None = None,
) -> None:
    """Follow a quorum until `on_steps`, called with the steps of each answer, returns true.

    Raises CommandError if no leader answers within the time of a request, MetadataLogError, ClientError.
    """
    observer = reader.observer
    seconds = connecting.settings.request_timeout_ms / 1000
    addresses = cycle(connecting.bootstrap)
    address = next(addresses)
    untried = len(connecting.bootstrap)  # until one of them has answered, each is tried once
    deadline = trio.current_time() + seconds
    while True:
        untried -= 1
        leader = None  # a leader that does not answer is not asked again before another node has named one
        try:
            async with open_connection(address, connecting.settings) as connection:
                reason = reason_against(connection.versions)
                if reason:
                    raise CommandError(f"{address} {reason}")
                untried = len(connecting.bootstrap) << 30
                while True:
                    request = observer.request(
                        max_wait_ms=WAIT_MS if reader.is_caught_up else 0,
                        fetch_version=connection.version_of(FETCH),
                    )
                    taken = reader.take(await connection.ask(request))
                    if taken.asks_elsewhere:
                        leader = observer.leader
                        break
                    if taken.must_wait:
                        await trio.sleep(PAUSE_SECONDS)
                        continue
                    deadline = trio.current_time() + seconds
                    if on_steps(taken.steps):
                        if at_end is not None:
                            await at_end(connection)
                        return
        except (ConnectionLostError, OSError) as error:
            if untried <= 0 or trio.current_time() > deadline:
                raise CommandError(f"no controller answers: {error}") from None
        if trio.current_time() > deadline:
            raise CommandError(f"no controller leads the quorum, as far as {address} knows")
        if leader is not None and leader.id >= 0 and leader.host:
            address = Endpoint(leader.host, leader.port)
        else:
            address = next(addresses)
        await trio.sleep(PAUSE_SECONDS)


def state_of(connecting: Connecting) -> tuple[QuorumImage, Leadership]:
    """Return the committed state of a quorum. Raises CommandError, MetadataLogError, ClientError."""
    reader = MemoryObserver()
    observer, state = reader.observer, reader.state

    async def ask_since_when(connection: Connection) -> None:
        if state.leadership.epoch < observer.leader.epoch:
            version = connection.version_of(FETCH)
            answer = await connection.ask(observer.epoch_start_request(version))
            request = observer.first_record_request(answer, version)
            if request is not None:
                state.note_leader_of(first_records(await connection.ask(request)), PLACE)

    trio.run(observe, connecting, reader, lambda _: reader.is_caught_up, ask_since_when)
    leadership, leader = state.leadership, observer.leader
    if leader.epoch > leadership.epoch and leader.id >= 0:  # the record that says since when has gone
        leadership = leadership._replace(leader_id=leader.id, epoch=leader.epoch)
    return state.image, leadership


def watch(connecting: Connecting, on_step: Callable[[Step, ChangeNames], bool]) -> None:
    """Call `on_step` for each newly committed record, until it returns true. Raises as `state_of`."""
    reader = MemoryObserver()
    names: ChangeNames | None = None

    def on_steps(steps: tuple[Step, ...]) -> bool:
        nonlocal names
        if names is not None:
            return any(on_step(step, names) for step in steps)
        if reader.is_caught_up:
            names = ChangeNames(reader.state.image.topics)
        return False

    trio.run(observe, connecting, reader, on_steps)
