"""The controller of a cluster on ZooKeeper: stands for election, and handles events while it is elected.

The rule: events are handled one at a time, each on the state of that time; the core decides, and this module writes
znodes and sends requests. When the session is lost, or another controller is found, all state is dropped immediately.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import trio

from barnabas.cluster.controller import brokers, in_sync, leaders, reassignment
from barnabas.cluster.controller.active_controller import ActiveController
from barnabas.cluster.controller.election import NOBODY, Elected, Elections
from barnabas.cluster.controller.events import Call, Event, EventQueue, not_controller
from barnabas.cluster.controller.znodes import ControllerMovedError
from barnabas.cluster.metadata.ports import (
    AcceptedState,
    ElectionType,
    ProposedState,
    Reassignment,
    Results,
)
from barnabas.cluster.zookeeper.session import SessionExpiredError, SessionState, ZooKeeperError
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.cluster.controller.channels import ControlChannels
    from barnabas.cluster.controller.core import ControllerSettings, Core
    from barnabas.cluster.controller.state import Broker
    from barnabas.cluster.controller.steps import Steps
    from barnabas.cluster.metadata.image import ClusterImage
    from barnabas.cluster.zookeeper.session import ZooKeeper
    from barnabas.environment import Entropy
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

T = TypeVar("T")

REBALANCE_FIRST_SECONDS = 5.0
"""Time after which a new controller first looks for leaders that are not the preferred ones."""
PRODUCER_IDS_PER_BLOCK = 1_000
IMAGE_SECONDS = 0.01
"""Time between two looks whether this broker knows of new leaders, while a caller waits for that."""
RETRY_SECONDS = 1.0
"""The wait before this broker stands for election once more, after ZooKeeper has refused something."""


class ControllerRuntime:
    """Implements `cluster.metadata.ports.Controller`. Lifecycle: `run` in a task, as the channels."""

    def __init__(
        self,
        settings: ControllerSettings,
        zookeeper: ZooKeeper,
        channels: ControlChannels,
        *,
        budget: LoopBudget,
        entropy: Entropy,
        wall_clock_ms: Callable[[], int],
        allows_unclean: Callable[[Mapping[str, str]], bool],
        known_topic_id: Callable[[str], bytes | None],
        image: Callable[[], ClusterImage] | None = None,
    ) -> None:
        """`allows_unclean`: whether a topic with these overrides allows unclean elections.

        `known_topic_id` returns the id of a topic that this broker knows; `image` is its metadata image.
        """
        self._settings = settings
        self._zookeeper = zookeeper
        self._channels = channels
        self._budget = budget
        self._entropy = entropy
        self._allows_unclean = allows_unclean
        self._known_topic_id = known_topic_id
        self._image = image
        self._elections = Elections(settings.broker_id, zookeeper, wall_clock_ms)
        channels.on_contact(self._contact_changed)
        self._events = EventQueue()
        self._active: ActiveController | None = None
        self._in_hand: Event | None = None
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self.controller_id = NOBODY
        """Id of the controller, as last read by this broker."""

    # --- life -----------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """True while this broker is the controller."""
        return self._active is not None

    @property
    def epoch(self) -> int:
        """The epoch of the controller that is here, 0 if it is not."""
        return self._active.core.state.epoch if self._active is not None else 0

    async def run(self) -> None:
        """Stand for election, and be the controller while elected; until cancelled."""
        self._zookeeper.watch_session(self._session_changed)
        self._stand_soon()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                while True:
                    await self._deal_with(await self._events.next())
            finally:
                self._resign("the broker stops")

    def _stand_soon(self) -> None:
        self._events.put(Event("election", self._stand, key="election", needs_controller=False))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.controller_id = NOBODY
            self._resign("the session with ZooKeeper has expired")
        elif state is SessionState.CONNECTED:
            self._stand_soon()

    def _resign(self, why: str) -> None:
        """Stop being the controller, immediately: the present event is interrupted, pending ones are dropped."""
        if self._active is None:
            return
        log.warning("this broker is not the controller any more, epoch %d: %s", self.epoch, why)
        self._active = None
        self._channels.stop()
        self._events.drop()
        if self._in_hand is not None and self._in_hand.needs_controller:
            if self._in_hand.call is not None:
                self._in_hand.call.settle(error=not_controller())
            self._scope.cancel()

    async def _deal_with(self, event: Event) -> None:
        if event.call is not None and not event.call.is_wanted:
            return
        self._in_hand = event
        failure: Exception | None = None
        active = self._active
        with trio.CancelScope() as self._scope:
            try:
                await event.act()
            except ControllerMovedError as error:
                self._resign(str(error))
                self._stand_soon()
            except SessionExpiredError:
                self._resign("the session with ZooKeeper is over")
            except (ZooKeeperError, ValueError) as error:
                failure = error
                log.error("the controller gives up, since %s has failed: %s", event.name, error)
            except Exception as error:
                failure = error
                log.exception("the controller gives up, since %s has failed", event.name)
        self._in_hand = None
        if failure is not None:
            if event.call is not None:
                event.call.settle(error=RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failure)))
            if active is not None:
                version = active.znodes.epoch_version
                self._resign(f"{event.name} has failed")
                await self._elections.give_up(version)
            await trio.sleep(RETRY_SECONDS)
            self._stand_soon()

    # --- election -------------------------------------------------------------------------------------------

    async def _stand(self) -> None:
        if self._zookeeper.state is SessionState.EXPIRED:
            return  # a new session comes, and with it this event
        elected = await self._elections.stand(self._stand_soon)
        self.controller_id = elected.controller_id
        if not elected.is_here:
            if self._active is not None:
                self._resign(f"broker {elected.controller_id} is it now")
            return
        if self._active is not None and self.epoch == elected.epoch:
            return
        self._resign("it was elected once more")
        self._begin(elected)

    def controller_gone(self, controller_id: int) -> None:
        """Start the election of another controller: the process of this one has ended, but its session has not."""
        if self._active is None and controller_id != self._settings.broker_id:
            self._events.put(
                Event(
                    "a controller that is gone",
                    lambda: self._elections.depose(controller_id),
                    key=f"gone {controller_id}",
                    needs_controller=False,
                )
            )

    def _begin(self, elected: Elected) -> None:
        log.info("this broker is the controller now, epoch %d", elected.epoch)

        def put(name: str, act: Callable[[], Awaitable[None]], key: str = "") -> None:
            if self._active is active:  # a watch of an earlier one may come late
                self._put(name, act, key)

        self._active = active = ActiveController(
            self._settings,
            elected,
            self._zookeeper,
            self._channels,
            budget=self._budget,
            entropy=self._entropy,
            allows_unclean=self._allows_unclean,
            known_topic_id=self._known_topic_id,
            put=put,
        )
        self._put("start", active.start)
        if self._settings.auto_leader_rebalance_enable and self._nursery is not None:
            self._nursery.start_soon(self._rebalance_periodically, active)

    def _put(self, name: str, act: Callable[[], Awaitable[None]], key: str = "") -> None:
        """Add an event of the controller that is here now."""
        active = self._active

        async def while_elected() -> None:
            if self._active is active:
                await act()

        if active is not None:
            self._events.put(Event(name, while_elected, key))

    def _contact_changed(self, broker: Broker, is_there: bool) -> None:
        active = self._active
        if active is not None and broker.id != self._settings.broker_id:
            act = active.broker_answers if is_there else active.broker_refuses
            self._put(f"contact with broker {broker.id}", lambda: act(broker))

    async def _rebalance_periodically(self, active: ActiveController) -> None:
        await trio.sleep(REBALANCE_FIRST_SECONDS)
        while self._active is active:
            self._put("rebalance", active.rebalance, key="rebalance")
            await trio.sleep(self._settings.leader_imbalance_check_interval_s)

    # --- questions ------------------------------------------------------------------------------------------

    async def _ask(
        self,
        name: str,
        steps: Callable[[Core], Steps[T]],
        then: Callable[[Core, T], Steps[None]] | None = None,
    ) -> T:
        """Run the core's steps as an event, and return their result; `then` runs after the caller has it."""
        return await self.ask_active(name, lambda active: active.run(steps(active.core)), then)

    async def ask_active(
        self,
        name: str,
        act: Callable[[ActiveController], Awaitable[T]],
        then: Callable[[Core, T], Steps[None]] | None = None,
    ) -> T:
        """Return the active controller's answer, after the steps `then`. Raises RequestError."""
        active = self._active
        if active is None:
            raise not_controller()
        call = Call()

        async def answer() -> None:
            try:
                answered = await act(active)
            except RequestError as error:
                call.settle(error=error)
                return
            call.settle(answered)
            if then is not None:
                await active.run(then(active.core, answered))

        self._events.put(Event(name, answer, call=call))
        try:
            await call.done.wait()
        except trio.Cancelled:
            call.is_wanted = False
            raise
        if call.error is not None:
            raise call.error
        answer_found: T = call.answer
        return answer_found

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Iterable[TopicPartition] | None, timeout_ms: int
    ) -> Results:
        """See Controller."""
        asked = None if partitions is None else list(partitions)
        deadline = trio.current_time() + timeout_ms / 1000
        epochs: dict[TopicPartition, int] = {}

        def elect(core: Core) -> Steps[Results]:
            results = yield from leaders.elect(core, election_type, asked)
            for partition, error in results.items():
                state = core.state.states.get(partition)
                if error is None and state is not None:
                    epochs[partition] = state.leader_epoch
            return results

        results = await self._ask("an election", elect)
        late = await self._unknown_here(epochs, deadline)
        for partition in late:
            results[partition] = RequestError(
                ErrorCode.REQUEST_TIMED_OUT, "a leader was elected, and this broker does not know of it yet"
            )
        return results

    async def _unknown_here(self, epochs: dict[TopicPartition, int], deadline: float) -> list[TopicPartition]:
        """Wait until this broker has these leader epochs; returns the partitions without them at the deadline."""
        waiting = dict(epochs) if self._image is not None else {}
        while waiting and self._image is not None:
            image = self._image()
            for (topic, index), epoch in list(waiting.items()):
                info = image.topics.get(topic)
                partition_infos = info.partitions[index : index + 1] if info is not None else ()
                if partition_infos and partition_infos[0].leader_epoch >= epoch:
                    del waiting[topic, index]
                await self._budget.checkpoint()
            if not waiting or trio.current_time() >= deadline:
                break
            await trio.sleep(IMAGE_SECONDS)
        return list(waiting)

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, keeps_factor: bool
    ) -> Results:
        """See Controller."""
        return await self._ask(
            "a reassignment", lambda core: reassignment.alter(core, targets, keeps_factor=keeps_factor)
        )

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, Reassignment]:
        """See Controller."""

        async def found(active: ActiveController) -> dict[TopicPartition, Reassignment]:
            state = active.core.state
            moving = {}
            for partition in list(state.reassigning) if partitions is None else partitions:
                assignment = state.assignment(partition)
                if assignment is not None and assignment.is_reassigned:
                    moving[partition] = Reassignment(
                        assignment.replicas, assignment.adding, assignment.removing
                    )
                await self._budget.checkpoint()
            return moving

        return await self.ask_active("a list of reassignments", found)

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[ProposedState]
    ) -> list[AcceptedState | RequestError]:
        """See Controller."""
        return await self._ask(
            "ISR changes",
            lambda core: in_sync.alter(core, broker_id, broker_epoch, proposals),
            lambda core, answers: in_sync.after(core, answers, proposals),
        )

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """See Controller."""

        async def allocate(active: ActiveController) -> tuple[int, int]:
            in_sync.check_broker(active.core, broker_id, broker_epoch, ErrorCode.BROKER_ID_NOT_REGISTERED)
            first = await active.znodes.allocate_producer_ids(broker_id, PRODUCER_IDS_PER_BLOCK)
            return first, PRODUCER_IDS_PER_BLOCK

        return await self.ask_active("producer ids", allocate)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """See Controller."""
        return await self._ask(
            f"the shutdown of broker {broker_id}",
            lambda core: brokers.shut_down(core, broker_id, broker_epoch),
        )

    def unclean_election_allowed(self, topic: str | None) -> None:
        """Elect where that is now allowed: in a topic, or in all (None). Called when the setting has changed."""
        active = self._active
        if active is not None:
            self._put("unclean elections", lambda: active.run(leaders.unclean_enabled(active.core, topic)))
