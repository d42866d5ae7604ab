"""Walks of an observer beside a simulated quorum: its real shell, log and disk on virtual time, with power cuts.

The rule: published images, stored logs and delivered records are compared with a plain replay of the committed records: at
each delta, after each power cut, and at the end, when the quorum is calm.
"""

import random as randoms

import trio

from barnabas.client import ClientSettings
from barnabas.cluster.kraft.durable_log import DurableLog
from barnabas.cluster.kraft.joining import observing
from barnabas.config.metadata_log import LogSettings
from barnabas.config.quorum import QuorumSettings
from barnabas.log.format.properties import MetaProperties
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.world import run_world
from tests.support.simulated_quorum import ADDRESSES, CLUSTER, SimulatedQuorum, Unreliable

DIR = "/data"
CALM_SECONDS_MAX = 30
LOG = LogSettings(
    segment_bytes=3_000,
    retention_bytes=12_000,
    snapshot_bytes=2_500,
    snapshot_interval_ms=20_000,
    delete_delay_ms=5_000,
)
SETTINGS = QuorumSettings(
    node_id=10,
    log_dir=DIR,
    bootstrap=ADDRESSES,
    static_voters={},
    fetch_timeout_ms=2_000,
    request_timeout_ms=2_000,
    retry_backoff_ms=20,
    fetch_bytes_max=1 << 20,
    snapshot_bytes_max=1 << 20,
    log=LOG,
)
STATIC_VOTERS = {number + 1: address for number, address in enumerate(ADDRESSES)}


class WalkError(Exception):
    """An observer's data differ from the records that the quorum committed."""


class Folding:
    """A subscriber that builds its state from the changes alone."""

    def __init__(self, quorum):
        self.quorum = quorum
        self.entries = {}
        self.position = None

    async def prepare(self, delta):
        await trio.lowlevel.checkpoint()

    def publish(self, delta):
        expected = self.quorum.images.get(delta.after.position.offset)
        if expected is None or expected != delta.after:
            raise WalkError(f"another image at {delta.after.position}")
        for change in delta.changes:
            before = self.entries.get((change.kind, change.key))
            if before != change.before:
                raise WalkError(f"{change} does not follow")
            if change.after is None:
                del self.entries[change.kind, change.key]
            else:
                self.entries[change.kind, change.key] = change.after
        if self.entries != {(kind, key): value for kind, key, value in delta.after.entries()}:
            raise WalkError(f"the changes do not lead to the image at {delta.after.position}")

    async def clean_up(self, delta):
        await trio.lowlevel.checkpoint()


class PowerCutError(OSError):
    """The machine has lost power."""


def formatted_disk():
    disk = MemoryDisk()
    disk.make_dirs(DIR)
    meta = MetaProperties(1, CLUSTER, 10, bytes(range(16)))
    disk.replace(f"{DIR}/meta.properties", meta.encode(), sync=True)
    disk.sync_dir("/")
    return disk


def check_directory(disk, quorum, now_ms, *, observer, is_whole):
    """Compare a disk with the committed log and, after a clean stop, with the observer's state. Raises WalkError."""
    stored = DurableLog(disk.fork(), DIR, LOG)
    state = stored.open(now_ms)
    if stored.loaded is not None:
        expected = quorum.images[stored.loaded.end_offset - 1]
        if stored.loaded.image != expected._replace(position=stored.loaded.image.position):
            raise WalkError(f"another image in the snapshot at {stored.loaded.end_offset}")
    if observer is not None and is_other(observer.leadership, state.controls[-1][1]):
        raise WalkError("other voters than in the log")
    has_leader = observer is not None and observer.leader.id >= 0
    if has_leader and (state.election is None or state.election[1:3] != observer.leader[:2]):
        raise WalkError("another leader in quorum-state")
    offset = stored.log.log_start_offset
    log = b""
    while offset < state.end_offset:
        piece = stored.log.read(offset, max_bytes=1 << 30, upper_offset=state.end_offset)
        log += piece.to_bytes()
        offset = piece.next_offset
    committed = [batch for batch in quorum.committed if batch.base_offset >= stored.log.log_start_offset]
    if is_whole and log != b"".join(batch.data for batch in committed):
        raise WalkError("another log than what is committed")


def is_other(leadership, other):
    """Return whether kraft.version differs, or, if it is above 0, the voters in the log."""
    is_other_level = leadership.kraft_version != other.kraft_version
    return is_other_level or bool(leadership.kraft_version and leadership.voters != other.voters)


async def walk(world, *, lives):
    random = randoms.Random(world.seed)
    quorum = SimulatedQuorum(random, is_dynamic=world.seed % 2 == 0)
    settings = SETTINGS if quorum.is_dynamic else SETTINGS._replace(static_voters=STATIC_VOTERS)
    disk = formatted_disk()
    for life in range(lives):
        way = Unreliable(quorum, random)
        environment = world.environment(f"observer-{life}", disk)
        folding = Folding(quorum)
        is_last = life == lives - 1
        asked_max = random.randrange(20, 120)
        if not is_last and random.random() < 0.7:
            operations_max = [random.randrange(30, 500)]

            def fault(operation, path, operations_max=operations_max):
                operations_max[0] -= 1
                return PowerCutError("cut") if operations_max[0] < 0 else None

            disk.fault = fault
        ended = None
        try:
            async with observing(settings, environment, ClientSettings(), controllers=way) as follower:
                follower.subscribe(folding)
                while way.asked < asked_max:
                    await trio.sleep(0.05)
                if is_last:
                    way.is_calm = True
                    while quorum.leader is None:
                        quorum.elect()
                    for _ in range(50):
                        quorum.append()
                        quorum.replicate()
                    while quorum.committed_end < quorum.leader.end_offset:
                        quorum.replicate()
                    await _become_equal(follower, quorum)
            ended = follower.observer
        except Exception as error:  # a copy of the disk at the power cut
            if not _is_of_the_cut(error):
                raise
        disk.fault = None
        now_ms = environment.wall_clock_ms()
        check_directory(disk, quorum, now_ms, observer=ended, is_whole=is_last)
        if not is_last and random.random() < 0.8:
            disk = disk.crash(random)
            check_directory(disk, quorum, now_ms, observer=None, is_whole=False)


def _is_of_the_cut(error):
    while error is not None:
        if isinstance(error, PowerCutError):
            return True
        error = error.__cause__ or error.__context__ or getattr(error, "cause", None)
    return False


async def _become_equal(follower, quorum):
    with trio.move_on_after(CALM_SECONDS_MAX) as scope:
        while (
            follower.image != quorum.truth.image or follower.observer.end_offset != quorum.leader.end_offset
        ):
            await trio.sleep(0.1)
    if scope.cancelled_caught:
        raise WalkError(
            f"not caught up: {follower.image.position}, {follower.observer.high_watermark}, {quorum.truth.image.position}"
        )
    if follower.fault:
        raise WalkError(follower.fault)
    if is_other(follower.observer.leadership, quorum.pending.leadership):
        raise WalkError("other voters")


def run_walk(seed, *, lives=3):
    """Run the walk of a seed. Raises WalkError."""
    run_world(seed, lambda world: walk(world, lives=lives), seconds_max=3600)
