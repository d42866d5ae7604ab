"""One case while it runs: its connections, its exchanges, and its requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.tools.conformance import expecting
from barnabas.tools.conformance.cases import DiffersError, NotApplicableError
from barnabas.tools.conformance.fixture import PAUSE_S, READY_S, Fixture, make_topic
from barnabas.tools.inspection.errors import code_name
from barnabas.tools.probing.exchanges import COORDINATOR_COMES, Exchange, Wire
from barnabas.tools.probing.messages import make

JOURNAL_MAX = 400


@dataclass(slots=True, eq=False)
class Trial:
    """Lifecycle: one case. `journal` has the requests and responses, for a report."""

    fixture: Fixture
    number: int
    """The case's own number, from which its random choices follow."""
    journal: list[Exchange] = field(default_factory=list)
    _wire: Wire | None = None
    _controller: Wire | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    lent: Wire | None = None
    """A connection that stays open for the next case."""

    # --- names ----------------------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The topic with three partitions, ten records in the first, that no case changes."""
        return self.fixture.topic

    @property
    def topic_id(self) -> bytes:
        """The topic's id; zeros if the broker has none."""
        return self.fixture.topic_id

    @property
    def unknown(self) -> str:
        """A name of no existing topic or group; this broker coordinates the group."""
        return self.fixture.unknown

    @property
    def unknown_transaction(self) -> str:
        """A transactional id that no producer has; this broker coordinates it."""
        return self.fixture.unknown_transaction

    @property
    def is_kafka_4(self) -> bool:
        """True for the rules of 4.x, false for those of 3.9."""
        return self.fixture.is_kafka_4

    def fresh(self, what: str = "name") -> str:
        """Return a name that is not in use."""
        return self.fixture.fresh(what)

    async def group(self, what: str = "group") -> str:
        """Return the id of a new group that this broker coordinates."""
        return await self._coordinated(what, 0)

    async def transactional_id(self) -> str:
        """Return a new transactional id that this broker coordinates."""
        return await self._coordinated("transaction", 1)

    async def _coordinated(self, what: str, key_type: int) -> str:
        """Look up a coordinator until one is available: the first lookup makes a broker create its topic."""
        name = self.fresh(what)
        self.fixture.groups.add(name)
        if not self.fixture.serves("FindCoordinator"):
            return name
        with trio.move_on_after(READY_S):
            while True:
                answer = await self.ask(
                    "FindCoordinator", {"key": name, "coordinator_keys": [name], "key_type": key_type}
                )
                coordinator = answer.coordinators[0] if answer.coordinators else answer
                if not coordinator.error_code and (
                    self.fixture.brokers == 1 or coordinator.node_id == self.fixture.node_id
                ):
                    return name
                if not coordinator.error_code:
                    name = self.fresh(what)
                elif coordinator.error_code not in COORDINATOR_COMES:
                    raise DiffersError(f"FindCoordinator is answered {code_name(coordinator.error_code)}")
                else:
                    await trio.sleep(PAUSE_S)
        raise DiffersError(f"no coordinator in {READY_S:g} s")

    async def new_topic(self, partitions: int = 1, **configs: str) -> tuple[str, bytes]:
        """Make a topic of the case's own; return name and id. Settings have `_` for `.`."""
        name = self.fresh("topic")
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        try:
            wire, controller = await self.wire(), await self.wire("CreateTopics")
            topic_id = await make_topic(wire, self.fixture, name, partitions, settings, controller=controller)
            return name, topic_id
        except OSError as error:
            raise NotApplicableError(str(error)) from None

    # --- asking ---------------------------------------------------------------------------------------------

    async def wire(self, api: str = "") -> Wire:
        """Return the case's own connection to the broker; for an API of the controller's, that to the controller."""
        target = self.fixture.target_of(api)
        if target is not self.fixture.target:
            if self._controller is None or not self._controller.is_open:
                self._controller = await self._stack.enter_async_context(target.connect(self.journal))
            return self._controller
        if self._wire is None or not self._wire.is_open:
            if self.lent is not None and self.lent.is_open and self._wire is None:
                self._wire = self.lent
                self._wire.journal = self.journal
            else:
                self._wire = await self._stack.enter_async_context(self.fixture.target.connect(self.journal))
        return self._wire

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Wire]:
        """Open another connection; its exchanges are in the same journal."""
        async with self.fixture.target.connect(self.journal) as wire:
            yield wire

    async def ask(
        self, api: str, values: Mapping[str, Any], version: int | None = None, *, wire: Wire | None = None
    ) -> Any:
        """Send a request, by default in the newest version, and return the answer. Raises ExchangeError."""
        if version is None:
            if not self.fixture.serves(api):
                raise NotApplicableError(f"{api} is not served")
            version = self.fixture.newest(api)
        wire = wire or await self.wire(api)
        if len(self.journal) > JOURNAL_MAX:
            del self.journal[: JOURNAL_MAX // 2]
        return await wire.ask(make(api, version, values), version)

    async def until(
        self,
        api: str,
        values: Mapping[str, Any],
        holds: Callable[[Any], bool],
        what: str,
        version: int | None = None,
    ) -> Any:
        """Repeat a request until `holds` accepts the answer. Raises DiffersError if that takes too long."""
        answer = None
        with trio.move_on_after(READY_S):
            while True:
                answer = await self.ask(api, values, version)
                if holds(answer):
                    return answer
                await trio.sleep(PAUSE_S)
        raise DiffersError(f"{what}: not after {READY_S:g} s; the last answer was {answer!r:.300}")

    # --- judging --------------------------------------------------------------------------------------------

    def expect(self, answer: Any, expected: Mapping[str, Any]) -> None:
        """Raise DiffersError unless all values in an answer are as expected."""
        expecting.check(answer, expected)

    def check(self, holds: bool, otherwise: str) -> None:
        """Raise DiffersError with the observed behaviour, unless a condition holds."""
        if not holds:
            raise DiffersError(otherwise)

    async def expecting(
        self,
        api: str,
        values: Mapping[str, Any],
        expected: Mapping[str, Any],
        version: int | None = None,
        *,
        wire: Wire | None = None,
    ) -> Any:
        """Ask, and compare the answer."""
        answer = await self.ask(api, values, version, wire=wire)
        self.expect(answer, expected)
        return answer

    async def close(self) -> None:
        """Close the case's connections."""
        with trio.CancelScope(shield=True):
            await self._stack.aclose()
