"""Walks beside a simulated quorum end with what it committed; a bug that is planted is noticed."""

from collections.abc import Callable

import pytest

from barnabas.cluster.kraft import durable_log, follower, loader, observer, snapshots
from barnabas.cluster.kraft.applying import ImageApplier
from barnabas.cluster.kraft.decisions import Append
from barnabas.cluster.kraft.download import Download
from barnabas.cluster.kraft.durable_log import DurableLog
from barnabas.cluster.kraft.image import EMPTY
from barnabas.cluster.kraft.keeping import LogKeeper
from barnabas.cluster.kraft.loader import Loader
from barnabas.cluster.kraft.observer import Observer
from barnabas.cluster.kraft.replay import Replay
from barnabas.log.epochs import LeaderEpochs
from tests.support.effort import daily
from tests.support.quorum_walks import run_walk
from tests.support.slips import FittingPatch

SEEDS = 4
"""Walks of `make test`, a second or two each; the planted bugs have their own, that notice them."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_walk_ends_with_what_was_committed(seed):
    run_walk(seed)


# --- planted bugs -------------------------------------------------------------------------------------------------------


def high_watermark_beyond_the_log(patch):
    """The high watermark of the leader is taken as it comes, also where records are missing yet."""
    commit = Observer.commit

    def planted(self, leaders):
        end, self._end_offset = self._end_offset, max(self._end_offset, leaders)
        try:
            return commit(self, leaders)
        finally:
            self._end_offset = end

    patch.setattr(Observer, "commit", planted)


def uncommitted_is_applied(patch):
    """The loader reads up to the end of the log."""
    carry_out = LogKeeper.carry_out

    async def planted(self, decision, machine):
        is_done = await carry_out(self, decision, machine)
        if isinstance(decision, Append):
            self._applier.committed(decision.end_offset)
        return is_done

    patch.setattr(LogKeeper, "carry_out", planted)


def snapshot_is_taken_as_additions(patch):
    """Entries that a fetched snapshot lacks stay in the subscribers."""
    load = Loader.load

    def planted(self, snapshot):
        load(self, snapshot)
        self._is_compared = False

    patch.setattr(Loader, "load", planted)


def cut_is_not_carried_out(patch):
    """A log that diverges stays on the disk, and the observer believes it is cut."""
    patch.setattr(DurableLog, "truncate", lambda *_: None)


def epochs_survive_a_cut(patch):
    """The epochs of what was cut are still asked for."""
    patch.setattr(LeaderEpochs, "truncate_from_end", lambda *_: False)


def checksums_are_not_checked(patch):
    """Batches of answers are taken as they come."""
    patch.setattr(observer, "require_crc", lambda *_: None)


def gaps_are_appended(patch):
    """A batch that begins after the end of the log is appended."""
    patch.setattr(Observer, "_require_next", lambda *_: None)


def transaction_counts_at_once(patch):
    """Records of a metadata transaction change the image before its end."""
    apply = Replay.apply

    def planted(self, record):
        if type(record).__name__.endswith("TransactionRecord"):
            return ()
        return apply(self, record)

    patch.setattr(Replay, "apply", planted)


def snapshot_is_named_for_a_later_record(patch):
    """A snapshot says that it has a record more than it has."""
    write = ImageApplier._write_snapshot

    async def planted(self, image, leadership):
        position = image.position._replace(offset=image.position.offset + 1)
        await write(self, image._replace(position=position), leadership)

    patch.setattr(ImageApplier, "_write_snapshot", planted)


def snapshot_is_renamed_before_it_is_synced(patch):
    """After a power cut a snapshot has its name and not its bytes."""

    def planted(self, snapshot_id):
        self._disk.rename(self._path(snapshot_id, durable_log.PART), self._path(snapshot_id))
        self._disk.sync_dir(self.path)

    patch.setattr(DurableLog, "finish_snapshot", planted)


def log_stays_before_a_snapshot(patch):
    """A fetched snapshot is kept, and the log goes on at its old end."""
    patch.setattr(durable_log.PartitionLog, "truncate_fully_and_start_at", lambda *_args, **_: None)


def snapshot_is_removed_with_its_successor(patch):
    """Retention removes one snapshot too many."""
    remove = DurableLog._remove_before

    def planted(self, snapshot_id, now_ms):
        remove(self, snapshot_id._replace(end_offset=snapshot_id.end_offset + 1), now_ms)

    patch.setattr(DurableLog, "_remove_before", planted)


def changes_of_a_batch_are_lost(patch):
    """A delta has the changes of its last record only."""
    patch.setattr(loader, "_changes_of", lambda steps: steps[-1].changes if steps else ())


def first_image_is_early(patch):
    """An image is published before the first high watermark is reached."""
    publish = ImageApplier._publish

    async def planted(self, nursery):
        self._loader.has_published = True
        self._loader.published = EMPTY
        await publish(self, nursery)

    patch.setattr(ImageApplier, "_publish", planted)


def snapshot_of_an_older_offset_is_taken(patch):
    """The image goes back to a snapshot of before."""

    def planted(self, snapshot_id):
        self._download = Download(snapshot_id, self.leader)

    patch.setattr(Observer, "_begin_download", planted)
    patch.setattr(Observer, "_fetch", _asking_from_the_beginning(Observer._fetch))


def _asking_from_the_beginning(fetch):
    def planted(self, offset, last_epoch, max_wait_ms, version):
        self.planted_count = getattr(self, "planted_count", 0) + 1
        return fetch(self, 0 if self.planted_count % 10 == 0 else offset, last_epoch, max_wait_ms, version)

    return planted


def leader_is_not_left(patch):
    """An answer that names no leader leaves the observer at the last one for ever."""
    patch.setattr(follower.Contacts, "answered", lambda *_: None)
    patch.setattr(follower.Contacts, "failed", lambda *_: None)


def election_is_not_saved(patch):
    """The file of the quorum's state stays as it was."""
    patch.setattr(DurableLog, "save_election", lambda *_: None)


def settings_are_left_out_of_snapshots(patch):
    """A snapshot of one's own lacks entries."""
    records = snapshots.image_records
    patch.setattr(snapshots, "image_records", lambda image: records(image._replace(settings={})))


PLANTED: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    high_watermark_beyond_the_log: 0,
    uncommitted_is_applied: 0,
    snapshot_is_taken_as_additions: 0,
    cut_is_not_carried_out: 1,
    epochs_survive_a_cut: 19,
    checksums_are_not_checked: 1,
    gaps_are_appended: 0,
    transaction_counts_at_once: 0,
    snapshot_is_named_for_a_later_record: 1,
    snapshot_is_renamed_before_it_is_synced: 0,
    log_stays_before_a_snapshot: 0,
    snapshot_is_removed_with_its_successor: 0,
    changes_of_a_batch_are_lost: 0,
    first_image_is_early: 0,
    snapshot_of_an_older_offset_is_taken: 0,
    leader_is_not_left: 0,
    election_is_not_saved: 0,
    settings_are_left_out_of_snapshots: 0,
}
"""Bugs, each with the seed of a walk that notices it."""


def test_planted_bugs_are_noticed(monkeypatch):
    missed, today = [], daily(PLANTED, 4)
    for plant in PLANTED:
        with monkeypatch.context() as patch:
            plant(FittingPatch(patch))
            if plant not in today:
                continue
            try:
                run_walk(PLANTED[plant])
            except Exception:
                continue
        missed.append(plant.__name__)
    assert missed == []
