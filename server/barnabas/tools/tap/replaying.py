"""Replay of recorded requests to another broker: on as many connections, in order, each after the responses before it.

The rule: a request is sent once all responses have arrived that preceded it in the recording, so that reactions of a client
to responses are preserved.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from barnabas.client.connection import Connection, start_connection
from barnabas.client.errors import ClientError
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.tools.faults import naming
from barnabas.tools.tap.comparison import Difference, differences
from barnabas.tools.tap.exchange import Exchange
from barnabas.tools.tap.recording import Recorded, Recording
from barnabas.tools.tap.substitution import Substitutes
from barnabas.wire.errors import EncodeError

ANSWER_SECONDS = 30.0
Connect = Callable[[trio.Nursery, Endpoint, ClientSettings], Awaitable[Connection]]


@dataclass(slots=True)
class Outcome:
    """Result of one replayed request."""

    exchange: Exchange
    differences: list[Difference] = field(default_factory=list)
    failure: str = ""
    """The reason for a missing response, if one was recorded."""


@dataclass(slots=True)
class Result:
    """Result of a replay."""

    sent: int = 0
    compared: int = 0
    seconds: float = 0.0
    different: list[Outcome] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Standins:
    """The brokers that replace the recorded ones."""

    endpoints: dict[str, Endpoint]
    """By recorded address."""
    nodes: dict[int, int]
    """Their ids, by recorded id."""


class Replay:
    """Sends a recording again; `run` returns when all is answered."""

    def __init__(
        self,
        recording: Recording,
        brokers: Standins,
        settings: ClientSettings,
        *,
        is_timed: bool = False,
        allowed: Collection[str] = (),
        on_outcome: Callable[[Outcome], None] = lambda _: None,
        connect: Connect = start_connection,
    ) -> None:
        """`brokers` replace the recorded ones; with `is_timed` requests keep their times."""
        self._recording = recording
        self._endpoints = brokers.endpoints
        self._settings = settings
        self._is_timed = is_timed
        self._allowed = tuple(allowed)
        self._on_outcome = on_outcome
        self._connect = connect
        self._substitutes = Substitutes(brokers.nodes)
        self._result = Result()
        self._numbers = {id(exchange): number for number, exchange in enumerate(recording.answered)}
        self._is_answered = [False] * len(recording.answered)
        self._answered = 0  # number of first responses received without a gap
        self._changed = trio.Event()
        self._begun_at = 0.0

    async def run(self) -> Result:
        """Send all requests. Errors of connections are outcomes of their requests."""
        self._begun_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            for requests in self._recording.connections.values():
                nursery.start_soon(self._connection, requests)
        self._result.seconds = trio.current_time() - self._begun_at
        return self._result

    async def _connection(self, requests: list[Recorded]) -> None:
        """Send the requests of one recorded connection."""
        first = requests[0]
        connection: Connection | None = None
        failure = ""
        async with trio.open_nursery() as reading:
            async with trio.open_nursery() as nursery:
                for recorded in requests:
                    await self._wait_for_turn(recorded)
                    if connection is None and not failure:
                        try:
                            connection = await self._connect(
                                reading, self._endpoint(first), self._client(first)
                            )
                        except ClientError as error:
                            failure = str(error)
                    if connection is None:
                        self._settle(recorded, failure=failure)
                        continue
                    nursery.start_soon(self._ask, connection, recorded)
                    # Requests are sent in the order in which their tasks began to wait: two checkpoints ensure it.
                    await trio.lowlevel.checkpoint()
                    await trio.lowlevel.checkpoint()
            if connection is not None:
                connection.close()

    async def _wait_for_turn(self, recorded: Recorded) -> None:
        while self._answered < recorded.after:
            await self._changed.wait()
        if self._is_timed:
            due_s = recorded.exchange.sent_at - self._recording.begun_at
            await trio.sleep_until(self._begun_at + due_s)

    def _endpoint(self, recorded: Recorded) -> Endpoint:
        return self._endpoints[recorded.exchange.connection.broker]

    def _client(self, recorded: Recorded) -> ClientSettings:
        exchange = recorded.exchange
        name, _, version = exchange.connection.software.partition(" ")
        return replace(
            self._settings,
            client_id=exchange.request.client_id or "",
            software_name=name or self._settings.software_name,
            software_version=version or self._settings.software_version,
        )

    async def _ask(self, connection: Connection, recorded: Recorded) -> None:
        exchange = recorded.exchange
        scope = next(iter(naming.groups(recorded.message)), "")
        request = deepcopy_of(recorded.message)
        self._substitutes.apply(exchange.connection.id, scope, request)
        try:
            live = await connection.ask(
                request, version=exchange.request.version, timeout_ms=self._patience_ms(request)
            )
        except (ClientError, EncodeError) as error:
            self._settle(recorded, failure=str(error))
            return
        self._result.sent += 1
        answer = recorded.answer
        different: list[Difference] = []
        if answer is not None and live is not None:
            self._substitutes.learn(exchange.connection.id, scope, answer, live)
            self._result.compared += 1
            different = differences(
                answer, live, self._substitutes, exchange.connection.id, scope, allowed=self._allowed
            )
        self._settle(recorded, different)

    def _patience_ms(self, request: Any) -> float:
        """Return the timeout for a response: the longest wait that the request allows the broker, plus a margin."""
        waits = [getattr(request, name, 0) for name in ("max_wait_ms", "timeout_ms", "rebalance_timeout_ms")]
        return ANSWER_SECONDS * 1000 + max(0, *waits)

    def _settle(
        self, recorded: Recorded, different: list[Difference] | None = None, *, failure: str = ""
    ) -> None:
        """Count an outcome, and wake the requests that waited for it."""
        exchange = recorded.exchange
        if exchange.response is None:
            failure = ""  # it was not answered when it was recorded either
        if different or failure:
            outcome = Outcome(exchange, different or [], failure)
            self._result.different.append(outcome)
            self._on_outcome(outcome)
        number = self._numbers.get(id(exchange))
        if number is None:
            return
        self._is_answered[number] = True
        while self._answered < len(self._is_answered) and self._is_answered[self._answered]:
            self._answered += 1
        self._changed.set()
        self._changed = trio.Event()


def deepcopy_of(message: Any) -> Any:
    """Return a copy of a request that may be changed; records, which are views of bytes, are shared."""
    memo: dict[int, Any] = {}

    def share(value: Any) -> None:
        from dataclasses import fields, is_dataclass

        if isinstance(value, list):
            for item in value:
                share(item)
        elif isinstance(value, memoryview):
            memo[id(value)] = value
        elif is_dataclass(value):
            for entry in fields(value):
                share(getattr(value, entry.name))

    share(message)
    return deepcopy(message, memo)


async def brokers_of(
    endpoints: list[Endpoint], settings: ClientSettings, connect: Connect = start_connection
) -> dict[int, Endpoint]:
    """Return the brokers of a cluster by their ids, in order. Raises ClientError."""
    from barnabas.wire.generated.metadata import MetadataRequest

    failure: ClientError | None = None
    for endpoint in endpoints:
        async with trio.open_nursery() as nursery:
            try:
                connection = await connect(nursery, endpoint, settings)
                answer = await connection.ask(MetadataRequest(topics=[]), version_max=12)
                connection.close()
                nodes = sorted(answer.brokers, key=lambda node: node.node_id)
                return {node.node_id: Endpoint(node.host, node.port) for node in nodes} or {0: endpoint}
            except ClientError as error:
                failure = error
            finally:
                nursery.cancel_scope.cancel()
    assert failure is not None
    raise failure


def standins(recording: Recording, brokers: dict[int, Endpoint]) -> Standins:
    """Map recorded addresses to brokers, in the order of node ids if the recording has them."""
    live = list(brokers.values())
    ids: dict[int, int] = {}
    for exchange in recording.answered:
        message = exchange.response.message if exchange.response is not None else None
        for node in getattr(message, "brokers", None) or ():
            ids.setdefault(node.port, getattr(node, "node_id", getattr(node, "broker_id", 0)))
    addresses = dict.fromkeys(
        exchanges[0].exchange.connection.broker for exchanges in recording.connections.values()
    )
    order = sorted(set(ids.values()))
    chosen = {}
    for number, address in enumerate(addresses):
        port = int(address.rpartition(":")[2])
        place = order.index(ids[port]) if port in ids else number
        chosen[address] = live[place % len(live)]
    numbers = list(brokers)
    return Standins(chosen, {number: numbers[place % len(numbers)] for place, number in enumerate(order)})
