"""Bugs of replication and of controllers that are planted in brokers, to see that the histories of clusters find them.

The rule: each is one that a broker could have, in place of one function for the time of a block. Where two guards stand
behind each other, the bug takes both: one alone is not seen by anybody.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.cluster.controller import elections
from barnabas.cluster.controller.active_controller import ActiveController
from barnabas.cluster.controller.runtime import ControllerRuntime
from barnabas.cluster.controller.state import ControllerState
from barnabas.cluster.controller.znodes import ControllerZnodes
from barnabas.cluster.metadata import control_requests
from barnabas.cluster.replicas.following import FollowerLog
from barnabas.cluster.replicas.own_logs import OwnLogs
from barnabas.cluster.replicas.replica import Replica
from barnabas.cluster.replication.leader import LeaderState
from barnabas.cluster.zookeeper.session import (
    ANY_VERSION,
    ConnectionLostError,
    Operation,
    SessionExpiredError,
    SessionState,
    SetData,
)
from barnabas.cluster.zookeeper.store import ZooKeeperStore
from barnabas.log.manager import LogManager
from barnabas.log.opening import Opener
from barnabas.testing.simulation.broker import SimulatedBroker
from barnabas.testing.simulation.zookeeper import SimulatedZooKeeper
from barnabas.wire.ids import new_uuid
from tests.simulation import cluster
from tests.simulation.cluster import Kind, judged

Patch = tuple[Any, str, Any]


def _commit_before_in_sync() -> list[Patch]:
    """A leader commits what it has itself."""

    def advance(state: LeaderState, leader_end_offset: int, **_: Any) -> bool:
        if leader_end_offset <= state.high_watermark:
            return False
        state.high_watermark = leader_end_offset
        return True

    return [(LeaderState, "advance_high_watermark", advance)]


def _commit_with_one_follower() -> list[Patch]:
    """A leader commits what `min.insync.replicas` replicas have, not all that are in sync."""

    def advance(state: LeaderState, leader_end_offset: int, *, min_isr: int = 1, **_: Any) -> bool:
        ends = sorted((follower.end_offset for follower in state._followers.values()), reverse=True)
        reached = min([leader_end_offset, *ends[: max(min_isr - 1, 0)]])
        if reached <= state.high_watermark:
            return False
        state.high_watermark = reached
        return True

    return [(LeaderState, "advance_high_watermark", advance)]


def _truncate_to_high_watermark() -> list[Patch]:
    """A follower cuts its log off at its high watermark, as before KIP-101."""
    begin = FollowerLog.__init__

    def begin_at_high_watermark(log: FollowerLog, replica: Replica, now_ms: Callable[[], int]) -> None:
        begin(log, replica, now_ms)
        log._truncate(replica.log.high_watermark)

    return [(FollowerLog, "__init__", begin_at_high_watermark)]


def _never_truncate() -> list[Patch]:
    """A follower keeps what its new leader does not have."""
    return [(FollowerLog, "_truncate", lambda *_: None)]


def _joiners_do_not_count() -> list[Patch]:
    """A replica counts for the high watermark only once the leader has heard that it is in sync."""

    def advance(state: LeaderState, leader_end_offset: int, *, min_isr: int = 1, **_: Any) -> bool:
        if not state.has_enough_in_sync(min_isr):
            return False
        ends = [follower.end_offset for broker, follower in state._followers.items() if broker in state.isr]
        reached = min([leader_end_offset, *ends])
        if reached <= state.high_watermark:
            return False
        state.high_watermark = reached
        return True

    return [(LeaderState, "advance_high_watermark", advance)]


def _leavers_do_not_count() -> list[Patch]:
    """A replica does not count any more as soon as the leader has proposed to do without it."""

    def maximal_isr(state: LeaderState) -> frozenset[int]:
        pending = state._pending
        return pending.isr if pending is not None else state.isr

    return [(LeaderState, "maximal_isr", property(maximal_isr))]


def _join_before_the_high_watermark() -> list[Patch]:
    """A follower joins the ISR with its first fetch, however far it has come."""

    def propose(state: LeaderState, replica_id: int) -> Any:
        if state._pending is not None or state.follower(replica_id) is None or replica_id in state.isr:
            return None
        return state._propose(state.isr | {replica_id})

    return [(LeaderState, "propose_expansion", propose)]


def _elect_anybody() -> list[Patch]:
    """The controller elects the first replica that lives, in sync or not."""

    def after_loss(replicas: Any, now: Any, online: Any, **_: Any) -> Any:
        leader = next(filter(online, replicas), None)
        if leader is None:
            return None
        return now.next_epoch(leader, dict.fromkeys((leader, *filter(online, now.isr))))

    return [(elections, "after_loss", after_loss)]


_NOBODY_WAS_AWAY: Patch = (ControllerState, "was_away", lambda *_: False)
"""A controller that begins does not see brokers that come and go: behind a broker that waits, this is the second guard."""


def _come_back_at_once() -> list[Patch]:
    """A broker that was not stopped cleanly registers without waiting for others to take over."""

    async def wait(*_: Any) -> None:
        pass

    return [(ZooKeeperStore, "wait_for_successors", wait), _NOBODY_WAS_AWAY]


def _obey_old_controllers() -> list[Patch]:
    """Brokers do what any controller says, however old its epoch, the partition's and the broker's are."""

    def refusal(image_topic: Any, topic_id: bytes, before: Any, state: Any, broker_id: int) -> Any:
        return None

    return [
        (ZooKeeperStore, "check_controller", lambda *_: None),
        (control_requests, "_refusal", refusal),
        (control_requests, "_is_older", lambda *_: False),
    ]


def _zombie_controllers() -> list[Patch]:
    """A controller with an ended session goes on, in its next session, as if it still were elected; and is obeyed."""

    async def ask(controller: ControllerZnodes, request: Callable[[], Any]) -> Any:
        while True:
            try:
                return await request()
            except (ConnectionLostError, SessionExpiredError):
                await controller._zookeeper.wait_connected()

    async def write(controller: ControllerZnodes, operations: Sequence[Operation]) -> Any:
        unchecked = [
            SetData(step.path, step.data, ANY_VERSION) if isinstance(step, SetData) else step
            for step in operations
        ]
        return await ask(controller, lambda: controller._zookeeper.multi(unchecked))

    def session_changed(runtime: ControllerRuntime, state: SessionState) -> None:
        if state is SessionState.CONNECTED and not runtime.is_active:
            runtime._stand_soon()

    return [
        (ControllerZnodes, "ask", ask),
        (ControllerZnodes, "write", write),
        (ControllerRuntime, "_session_changed", session_changed),
        *_obey_old_controllers(),
    ]


def _acknowledge_when_deposed() -> list[Patch]:
    """A leader that leads no longer tells clients that wait for replicas that all is well."""

    def close_waiters(replica: Replica, *_: Any) -> None:
        for waiters in (replica._committed, replica._flushed, replica._low_watermark):
            for waiter in waiters:
                waiter.event.set()

    return [(Replica, "close_waiters", close_waiters)]


def _follow_before_registered() -> list[Patch]:
    """A broker that is back, and not registered, does what a controller sends to the one before it."""
    follow = ZooKeeperStore.follow

    async def follow_at_once(store: ZooKeeperStore, decide: Any) -> Any:
        store._is_registered.set()
        return await follow(store, decide)

    return [(ZooKeeperStore, "follow", follow_at_once)]


def _clean_after_a_broken_start() -> list[Patch]:
    """A broker that is stopped while it waits for others to take over marks its log dirs as closed cleanly."""
    close = LogManager.close

    def close_cleanly(logs: LogManager) -> None:
        logs.stays_unclean = False
        close(logs)

    return [(LogManager, "close", close_cleanly), _NOBODY_WAS_AWAY]


def _lost_logs_are_none() -> list[Patch]:
    """A broker without any of its logs is taken for one that has never had any."""
    open_dir = Opener.open_dir

    def open_dir_with_logs(opener: Opener, path: str, now_ms: int) -> bool:
        return open_dir(opener, path, now_ms) or not any(entry.is_dir for entry in opener._disk.list(path))

    return [(Opener, "open_dir", open_dir_with_logs), _NOBODY_WAS_AWAY]


def _forget_who_waits_for_zookeeper() -> list[Patch]:
    """A simulated client with a session that ended while no ZooKeeper could be reached connects no more."""
    return [(SimulatedZooKeeper, "wait_for_start", lambda *_: None)]


def _start_beside_who_stops() -> list[Patch]:
    """A simulated broker is started while the one before it, with a stop that is not awaited any more, still ends."""

    async def stop(machine: SimulatedBroker) -> None:
        if machine.broker is not None:
            machine.broker.stop()
            machine.broker = None
        await machine._ended.wait()

    return [(SimulatedBroker, "stop", stop)]


def _leave_who_lost_its_disk() -> list[Patch]:
    """At the end of a simulated history a broker that is ending by itself, since its disk fails, is not started again."""
    return [(cluster._Run, "_needs_start", staticmethod(lambda _: False))]


def _lost_topic_ids_are_new_topics() -> list[Patch]:
    """A controller gives a topic with a lost id another one, and brokers take that for a topic made again."""

    async def read_topics(active: ActiveController, names: Sequence[str]) -> dict[str, Any]:
        read = await active.znodes.topics(names, active._topic_watch)
        for name, (topic_id, assignments) in list(read.items()):
            if topic_id is None:
                new_id = await active.znodes.give_topic_id(name, new_uuid(active._entropy))
                read[name] = (new_id, assignments)
        return read

    async def keep(*_: Any) -> None:
        """Leave the znode as it is."""

    return [
        (ActiveController, "_read_topics", read_topics),
        (ActiveController, "_keep_topic_id", keep),
        (OwnLogs, "_does_without", lambda *_: True),
    ]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    "committed before the ISR has it": _commit_before_in_sync,
    "committed once min.insync.replicas have it": _commit_with_one_follower,
    "truncated to the high watermark": _truncate_to_high_watermark,
    "not truncated": _never_truncate,
    "joining replicas do not count": _joiners_do_not_count,
    "leaving replicas do not count": _leavers_do_not_count,
    "in sync before the high watermark": _join_before_the_high_watermark,
    "elected out of sync": _elect_anybody,
    "back before others have taken over": _come_back_at_once,
    "requests of old controllers are obeyed": _obey_old_controllers,
    "controllers go on after their session": _zombie_controllers,
    "acknowledged when deposed": _acknowledge_when_deposed,
    "following before it is registered": _follow_before_registered,
    "clean after a start that was broken off": _clean_after_a_broken_start,
    "lost logs taken for none": _lost_logs_are_none,
    "lost topic ids taken for new topics": _lost_topic_ids_are_new_topics,
    "simulation: clients forgotten by a ZooKeeper that was down": _forget_who_waits_for_zookeeper,
    "simulation: started beside one that stops": _start_beside_who_stops,
    "simulation: left without its disk": _leave_who_lost_its_disk,
}


@dataclass(frozen=True, slots=True)
class Found:
    """The one fault that brings a bug out, and the first history with nothing but it that has found the bug."""

    fault: str
    seed: int
    kind: Kind = Kind.DIRECTED


FOUND_BY = {
    "committed before the ISR has it": Found("lose_leader_of_lagging", 0),
    "committed once min.insync.replicas have it": Found("lose_leader_of_lagging", 0),
    "truncated to the high watermark": Found("lose_two_leaders", 0),
    "not truncated": Found("leave_with_more", 0),
    "joining replicas do not count": Found("lose_leader_of_joining_controller", 2),
    "leaving replicas do not count": Found("lose_leader_of_lagging_controller", 0),
    "in sync before the high watermark": Found("lose_leader_of_joining", 11),
    "elected out of sync": Found("lose_leader_of_lagging", 5),
    "back before others have taken over": Found("power_of_controller", 8),
    "requests of old controllers are obeyed": Found("late_requests", 10),
    "controllers go on after their session": Found("two_controllers", 0),
    "acknowledged when deposed": Found("leave_with_more", 0),
    "following before it is registered": Found("power_of_controller", 3),
    "clean after a start that was broken off": Found("stop_of_starting", 8),
    "lost logs taken for none": Found("disk_of_controller", 1),
    "lost topic ids taken for new topics": Found("rewritten", 0, Kind.HARSH),
    "simulation: clients forgotten by a ZooKeeper that was down": Found("zookeeper_down", 83, Kind.HARSH),
    "simulation: started beside one that stops": Found("stop", 65, Kind.HARSH),
    "simulation: left without its disk": Found("disk", 1247, Kind.HARSH),
}
FORMER_BUGS = (
    "back before others have taken over",
    "following before it is registered",
    "clean after a start that was broken off",
    "lost logs taken for none",
    "lost topic ids taken for new topics",
    "simulation: clients forgotten by a ZooKeeper that was down",
    "simulation: started beside one that stops",
    "simulation: left without its disk",
)
"""Histories have found these in the broker, or in what it is simulated with: their seeds are kept."""


@contextmanager
def planted(bug: str) -> Iterator[None]:
    """Have brokers do wrong what `bug` names."""
    patches = [(owner, name, owner.__dict__[name], wrong) for owner, name, wrong in BUGS[bug]()]
    for owner, name, _, wrong in patches:
        setattr(owner, name, wrong)
    try:
        yield
    finally:
        for owner, name, right, _ in patches:
            setattr(owner, name, right)


def seeds_until_found(
    bug: str, first: int, count_max: int, kind: Kind, faults: Sequence[str] = ()
) -> tuple[int, str] | None:
    """Return how many histories of a kind it takes until a planted bug is found, and what is said of it; None if it is not.

    `faults` are the only ones to draw from.
    """
    with planted(bug):
        for count in range(1, count_max + 1):
            _, broken = judged(first + count - 1, kind, faults=faults)
            if broken:
                return count, broken[0]
    return None


ROOT = Path(__file__).parents[2]
_SEARCH = """
import sys
from barnabas.testing.simulation.broker import quiet_logs
from tests.simulation.cluster import Kind
from tests.simulation.planted_cluster import seeds_until_found
with quiet_logs():
    found = seeds_until_found(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Kind(sys.argv[4]), sys.argv[5:])
print(found[0] if found else 0)
"""


def search(bug: str, count_max: int) -> int | None:
    """Return the first seed from the kept one on with a history that finds a planted bug, None if none of so many does.

    It runs in a process with the sources: a compiled class does not see that one of its methods was replaced.
    Raises AssertionError for what goes wrong there.
    """
    kept = FOUND_BY[bug]
    done = subprocess.run(
        [sys.executable, "-c", _SEARCH, bug, str(kept.seed), str(count_max), kept.kind, kept.fault],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'server'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count = int(done.stdout)
    return kept.seed + count - 1 if count else None
