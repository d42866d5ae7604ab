"""The directory of a replica of the quorum in memory, which loses unsynced data in a crash."""

from barnabas.cluster.kraft.quorum import Leadership, decode_control
from barnabas.cluster.kraft.replica_values import StoredLog
from barnabas.cluster.kraft.state import snapshot_steps
from barnabas.log.format.quorum_state import QuorumState
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches


class Batch:
    __slots__ = ("base", "data", "end", "epoch", "is_control")

    def __init__(self, header, data):
        self.base, self.end = header.base_offset, header.next_offset
        self.epoch, self.is_control, self.data = header.leader_epoch, header.is_control, bytes(data)


def batches_of(data):
    return [Batch(header, data[at : at + header.size]) for at, header in iter_batches(data)]


class Disk:
    """A directory: the written batches, and the synced ones. Implements `requests.LogFiles`."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.log, self.synced = [], []
        self.start_offset = 0
        self.snapshots = {}
        self.parts = {}
        self.election = None

    @property
    def end_offset(self):
        return self.log[-1].end if self.log else self.start_offset

    @property
    def snapshot_ids(self):
        return sorted(self.snapshots)

    def read_log(self, offset, bytes_max):
        pieces = []
        for batch in self.log:
            if batch.end > offset:
                if pieces and bytes_max < len(batch.data):
                    break
                bytes_max -= len(batch.data)
                pieces.append(batch.data)
        return b"".join(pieces)

    def snapshot_size(self, snapshot_id):
        return len(self.snapshots[snapshot_id])

    def read_snapshot(self, snapshot_id, position, size):
        return self.snapshots[snapshot_id][position : position + size]

    def sync(self):
        self.synced = list(self.log)

    def has_synced(self, offset, data):
        """Return whether the committed batch at an offset survives a crash here."""
        if offset < self.start_offset:
            return True
        return any(batch.base == offset and batch.data == data for batch in self.synced)

    def crash(self, random):
        """Lose all unsynced batches, or some of the last."""
        shared = 0
        for old, new in zip(self.synced, self.log, strict=False):
            if old is not new:
                break
            shared += 1
        if random.random() < 0.5:
            self.log = list(self.synced)
        else:
            self.log = self.log[: random.randint(min(len(self.synced), shared), len(self.log))]
            if len(self.log) < len(self.synced) and shared == len(self.log):
                self.log = list(self.synced)
        self.synced = list(self.log)
        self.parts = {}

    def leadership_at(self, end_offset):
        leadership = Leadership()
        for _, leadership in self._controls(end_offset):  # noqa: B007
            pass
        return leadership

    def _controls(self, end_offset):
        ids = self.snapshot_ids
        leadership, start = self.bootstrap, 0
        if ids:
            leadership, start = self.decode(ids[-1]).leadership, ids[-1].end_offset
            if end_offset < start:
                leadership, start = self.decode(ids[0]).leadership, ids[0].end_offset
        yield start - 1, leadership
        for batch in self.log:
            if batch.is_control and batch.base >= start and batch.end <= end_offset:
                for entry in iter_any_records(batch.data):
                    leadership = leadership.after(decode_control(entry)[1], batch.epoch, entry)
                    yield entry.offset, leadership

    def decode(self, snapshot_id, data=None):
        data = self.snapshots[snapshot_id] if data is None else data
        batches = [(header, data[at : at + header.size]) for at, header in iter_batches(data)]
        return [*snapshot_steps(snapshot_id, "simulated", batches)][-1]

    def stored(self):
        ids = self.snapshot_ids
        epochs = []
        for batch in self.log:
            if not epochs or epochs[-1][0] != batch.epoch:
                epochs.append((batch.epoch, batch.base))
        election = None if self.election is None else QuorumState.decode(self.election)
        return StoredLog(
            self.end_offset, tuple(epochs), ids[-1] if ids else None, tuple(self._controls(1 << 62)), election
        )
