"""One commit of a table: which offsets it covers, which files it adds and removes, chained to the one before.

The rule: a load begins for each partition exactly where the manifests before it ended. Offsets count within one
incarnation of the topic (cluster id and topic id); another incarnation begins with a manifest of kind `restart` that
names what was lost.

    _log/00000000000000000007.json

Kinds: `load` (new offsets), `restart`, `compact` (other files, same rows), `redrive` (rows that were dead letters),
`backfill` (hours replaced), `seal` (hours found complete by an audit).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from barnabas_pipeline.errors import PipelineError

FORMAT = 1
KINDS = ("load", "restart", "compact", "redrive", "backfill", "seal")


class BrokenLakeError(PipelineError):
    """The manifests contradict each other: somebody changed them by hand."""

    exit_code = 3


@dataclass(slots=True)
class PartitionCommit:
    """Offsets [start, end) of a partition, and what became of each of them; the five counts add up."""

    start: int
    end: int
    leader_epoch: int
    high_watermark: int
    loaded: int
    dead: int
    control: int
    aborted: int
    compacted: int
    log_digest: str = ""  # of the batches that were read, see `log.digest`

    @property
    def span(self) -> int:
        """The offsets that are accounted for."""
        return self.loaded + self.dead + self.control + self.aborted + self.compacted


@dataclass(slots=True)
class DataFile:
    """A Parquet file, by its path below the table; times in ms. `dead` files hold dead letters, by reason."""

    path: str
    rows: int
    size: int
    sha256: str
    topic_id: str
    partition: int = -1
    hour: str = ""
    offset_min: int = -1
    offset_max: int = -1
    event_time_min: int = -1
    event_time_max: int = -1
    offsets: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    def may_have(self, partition: int, start: int, end: int) -> bool:
        """Say whether rows of offsets [start, end) may be in it; older dead letters do not say which they are."""
        return self.partition in (partition, -1) and (
            self.offset_max < 0 or (self.offset_min < end and start <= self.offset_max)
        )


@dataclass(slots=True)
class Manifest:
    """A commit; see the module's head for the kinds."""

    version: int
    kind: str
    cluster_id: str
    topic: str
    topic_id: str
    previous: str
    job: dict[str, Any]
    schema: dict[str, Any]
    partitions: dict[str, PartitionCommit] = field(default_factory=dict)
    add: list[DataFile] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    dead_add: list[DataFile] = field(default_factory=list)
    dead_remove: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    lost: dict[str, list[int | None]] = field(default_factory=dict)
    redriven: dict[str, list[int]] = field(default_factory=dict)  # offsets by partition, of kind `redrive`
    note: str = ""
    format: int = FORMAT

    def encode(self) -> bytes:
        """As it is stored."""
        return (json.dumps(asdict(self), sort_keys=True, indent=1) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """Read a stored one. Raises BrokenLakeError."""
        try:
            raw = json.loads(data)
            if raw["format"] != FORMAT or raw["kind"] not in KINDS:
                raise BrokenLakeError(
                    f"a manifest of format {raw['format']}, kind {raw['kind']!r} is not known here"
                )
            raw["partitions"] = {key: PartitionCommit(**one) for key, one in raw["partitions"].items()}
            for name in ("add", "dead_add"):
                raw[name] = [DataFile(**one) for one in raw[name]]
            return cls(**raw)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrokenLakeError(f"a manifest cannot be read: {error!r}") from None


def digest(data: bytes) -> str:
    """Return the SHA-256 of a manifest in hex, which the next manifest names."""
    return hashlib.sha256(data).hexdigest()


@dataclass(slots=True)
class TableState:
    """All manifests up to a version, folded into one."""

    version: int = 0
    digest: str = ""
    cluster_id: str = ""
    topic: str = ""
    topic_id: str = ""
    schema: dict[str, Any] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    high_watermarks: dict[int, int] = field(default_factory=dict)
    leader_epochs: dict[int, int] = field(default_factory=dict)
    totals: dict[int, PartitionCommit] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)
    dead: dict[str, DataFile] = field(default_factory=dict)
    sealed: set[str] = field(default_factory=set)
    reopened: set[str] = field(default_factory=set)
    redriven: int = 0

    @property
    def hours(self) -> list[str]:
        """All hours that have rows."""
        return sorted({file.hour for file in self.files.values()})

    def copy(self) -> TableState:
        """One that can be applied to without changing this one."""
        changed: dict[str, Any] = {
            name: value.copy()
            for name in self.__slots__
            if isinstance(value := getattr(self, name), dict | set)
        }
        changed["totals"] = {partition: replace(one) for partition, one in self.totals.items()}
        return replace(self, **changed)

    def apply(self, manifest: Manifest, data: bytes) -> None:
        """Take in the next manifest. Raises BrokenLakeError if it does not follow."""
        where = f"manifest {manifest.version}"
        if manifest.version != self.version + 1 or manifest.previous != self.digest:
            raise BrokenLakeError(f"{where} does not follow {self.version}")
        incarnation = (manifest.cluster_id, manifest.topic, manifest.topic_id)
        if self.version and incarnation != (self.cluster_id, self.topic, self.topic_id):
            if manifest.kind != "restart":
                raise BrokenLakeError(f"{where} is of another incarnation of {self.topic}")
            self.starts, self.ends, self.high_watermarks, self.leader_epochs = {}, {}, {}, {}
        elif manifest.kind == "restart":
            for partition, (_, end) in manifest.lost.items():
                if end is not None:
                    self.ends[int(partition)] = end
        self.cluster_id, self.topic, self.topic_id = incarnation
        for key, commit in manifest.partitions.items():
            self._apply_partition(where, int(key), commit)
        self._apply_files(where, manifest)
        self.schema = manifest.schema
        self.version, self.digest = manifest.version, digest(data)

    def _apply_partition(self, where: str, partition: int, commit: PartitionCommit) -> None:
        if commit.start != self.ends.get(partition, commit.start):
            raise BrokenLakeError(
                f"{where}, partition {partition}: {self.ends[partition]} is next, not {commit.start}"
            )
        if commit.span != commit.end - commit.start:
            raise BrokenLakeError(f"{where}, partition {partition}: its counts do not add up")
        self.starts.setdefault(partition, commit.start)
        self.ends[partition] = commit.end
        self.high_watermarks[partition] = commit.high_watermark
        self.leader_epochs[partition] = commit.leader_epoch
        total = self.totals.get(partition)
        if total is None:
            self.totals[partition] = replace(commit, log_digest="")
            return
        total.end, total.leader_epoch, total.high_watermark = (
            commit.end,
            commit.leader_epoch,
            commit.high_watermark,
        )
        for name in ("loaded", "dead", "control", "aborted", "compacted"):
            setattr(total, name, getattr(total, name) + getattr(commit, name))

    def _apply_files(self, where: str, manifest: Manifest) -> None:
        for path in manifest.remove:
            if self.files.pop(path, None) is None:
                raise BrokenLakeError(f"{where} removes {path}, which is not there")
        for path in manifest.dead_remove:
            if self.dead.pop(path, None) is None:
                raise BrokenLakeError(f"{where} removes {path}, which is not there")
        for file in manifest.add:
            self.files[file.path] = file
            if manifest.kind in ("load", "redrive") and file.hour in self.sealed:
                self.sealed.discard(file.hour)
                self.reopened.add(file.hour)
        for file in manifest.dead_add:
            self.dead[file.path] = file
        for hour in manifest.sealed:
            self.sealed.add(hour)
            self.reopened.discard(hour)
        if manifest.kind == "redrive":
            self.redriven += sum(file.rows for file in manifest.add)
