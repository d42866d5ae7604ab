"""The ledger of a table: an entry for each commit, with its offsets and the state after it; chained by SHA-256.

The rule: an entry that no commit of the catalog names does not exist. A load begins for each partition exactly where the
entries before it ended. Offsets count within one incarnation of the topic (cluster id and topic id); another incarnation
begins with an entry of kind `restart` that names what was lost.

    <location of the table>/_ledger/00000000000000000007-<uuid>.json

Kinds: `load` (new offsets), `restart`, `compact` (other files, same rows), `redrive` (rows that were dead letters),
`backfill` (hours replaced), `seal` (hours found complete by an audit), `erase` (rows removed on purpose), `retain` (rows
removed for their age).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Document, Row

FORMAT = 2  # 1: manifests of a lake without a catalog, see `old`
KINDS = ("load", "restart", "compact", "redrive", "backfill", "seal", "erase", "retain")
SAME_ROWS = ("compact",)
EPOCH = datetime(1970, 1, 1)
HOUR_MS = 3_600_000


class BrokenLakeError(PipelineError):
    """The ledger contradicts itself: it was changed by hand."""

    exit_code = 3


def hour_name(hour: int) -> str:
    """Return a name such as `2023-11-14T22` for hours since 1970, in the years 1 to 9999."""
    return (EPOCH + timedelta(hours=hour)).isoformat()[: len("2023-11-14T22")]


def hour_number(name: str) -> int:
    """Return the hours since 1970 of a name that `hour_name` returned. Raises ValueError."""
    return (datetime.fromisoformat(f"{name}:00") - EPOCH) // timedelta(hours=1)


@dataclass(slots=True)
class PartitionCommit:
    """Offsets [start, end) of a partition, and the outcome of each of them; the five counts add up."""

    start: int
    end: int
    leader_epoch: int
    high_watermark: int
    loaded: int
    dead: int
    control: int
    aborted: int
    compacted: int
    log_digest: str = ""  # digest of the batches that were read, see `log.digest`

    @property
    def span(self) -> int:
        """The number of offsets that are accounted for."""
        return self.loaded + self.dead + self.control + self.aborted + self.compacted


@dataclass(slots=True)
class DataFile:
    """A Parquet file by its URI; times in ms, hours since 1970. `dead` files hold dead letters, by reason.

    `iceberg` is the catalog's description of a data file; it is not part of the entry.
    """

    path: str
    rows: int
    size: int
    sha256: str
    topic_id: str
    partition: int = -1
    hours: list[int] = field(default_factory=list)
    offset_min: int = -1
    offset_max: int = -1
    event_time_min: int = -1
    event_time_max: int = -1
    offsets: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    iceberg: Row = field(default_factory=dict, compare=False, repr=False)

    def may_have(self, partition: int, start: int, end: int) -> bool:
        """Return whether rows of offsets [start, end) may be in the file; old files of dead letters lack bounds."""
        return self.partition in (partition, -1) and (
            self.offset_max < 0 or (self.offset_min < end and start <= self.offset_max)
        )


@dataclass(slots=True)
class State:
    """The table after an entry."""

    version: int = 0
    path: str = ""
    digest: str = ""
    cluster_id: str = ""
    topic: str = ""
    topic_id: str = ""
    schema: Document = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    high_watermarks: dict[int, int] = field(default_factory=dict)
    leader_epochs: dict[int, int] = field(default_factory=dict)
    totals: dict[int, PartitionCommit] = field(default_factory=dict)
    hours: set[int] = field(default_factory=set)  # hours with rows
    sealed: set[int] = field(default_factory=set)
    reopened: set[int] = field(default_factory=set)
    redriven: int = 0
    erased: int = 0  # rows that were removed on purpose
    dead_version: int = 0  # version of the last entry that changed the dead letters

    def copy(self) -> State:
        """Return a deep copy."""
        changed: Document = {
            name: value.copy()
            for name in self.__slots__
            if isinstance(value := getattr(self, name), dict | set)
        }
        changed["totals"] = {partition: replace(total) for partition, total in self.totals.items()}
        return replace(self, **changed)

    def apply(self, entry: Entry) -> None:
        """Apply the next entry, but for its path and digest. Raises BrokenLakeError if it does not follow."""
        where = f"entry {entry.version}"
        if (entry.version, entry.previous, entry.previous_path) != (
            self.version + 1,
            self.digest,
            self.path,
        ):
            raise BrokenLakeError(f"{where} does not follow {self.version}")
        incarnation = (entry.cluster_id, entry.topic, entry.topic_id)
        if self.version and incarnation != (self.cluster_id, self.topic, self.topic_id):
            if entry.kind != "restart":
                raise BrokenLakeError(f"{where} is of another incarnation of {self.topic}")
            self.starts, self.ends, self.high_watermarks, self.leader_epochs = {}, {}, {}, {}
        elif entry.kind == "restart":
            for partition, (_, end) in entry.lost.items():
                if end is not None:
                    self.ends[int(partition)] = end
        self.cluster_id, self.topic, self.topic_id = incarnation
        for key, commit in entry.partitions.items():
            self._apply_partition(where, int(key), commit)
        self._apply_files(entry)
        self.schema = entry.schema
        self.version, self.path, self.digest = entry.version, "", ""

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

    def _apply_files(self, entry: Entry) -> None:
        for hour in {hour for file in entry.add for hour in file.hours}:
            self.hours.add(hour)
            if entry.kind in ("load", "redrive") and hour in self.sealed:
                self.sealed.discard(hour)
                self.reopened.add(hour)
        for hour in map(hour_number, entry.sealed):
            self.sealed.add(hour)
            self.reopened.discard(hour)
        if entry.kind == "redrive":
            self.redriven += sum(file.rows for file in entry.add)
        self.erased += sum(file.offsets for file in entry.erased)
        if entry.dead_add or entry.dead_remove:
            self.dead_version = entry.version

    def to_dict(self) -> Document:
        """Return the stored form: sets of hours as ranges [first, last]; without the entry's own fields."""
        document = {name: value for name in _KEPT if (value := getattr(self, name)) != _ADDED.get(name)}
        document["totals"] = {partition: _row(total) for partition, total in self.totals.items()}
        for name in _HOURS:
            document[name] = _ranges(getattr(self, name))
        return document


_HOURS = ("hours", "sealed", "reopened")
_BY_PARTITION = ("starts", "ends", "high_watermarks", "leader_epochs", "totals")
_ADDED = {"erased": 0}  # fields added by later releases, with their defaults
_KEPT = (*_BY_PARTITION, *_HOURS, "redriven", "dead_version", *_ADDED)


_FILES = ("add", "dead_add", "erased")


@dataclass(slots=True)
class Entry:
    """A commit, see the module's head for the kinds; `after` is the state after it, as returned by `State.to_dict`."""

    version: int
    kind: str
    cluster_id: str
    topic: str
    topic_id: str
    previous: str
    previous_path: str
    job: Document
    schema: Document
    partitions: dict[str, PartitionCommit] = field(default_factory=dict)
    add: list[DataFile] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    dead_add: list[DataFile] = field(default_factory=list)
    dead_remove: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    lost: dict[str, list[int | None]] = field(default_factory=dict)
    redriven: dict[str, list[int]] = field(default_factory=dict)  # offsets by partition, of kind `redrive`
    erased: list[DataFile] = field(default_factory=list)  # files of the offsets of removed rows
    note: str = ""
    after: Document = field(default_factory=dict)
    format: int = FORMAT

    def encode(self) -> bytes:
        """Return the stored form."""
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        document["partitions"] = {key: asdict(partition) for key, partition in self.partitions.items()}
        for name in _FILES:
            document[name] = [_plain(entry) for entry in getattr(self, name)]
        if not self.erased:
            del document["erased"]  # as written by releases without erasures
        return (json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n").encode()

    @classmethod
    def decode(cls, data: bytes) -> Entry:
        """Decode an entry from its stored form. Raises BrokenLakeError."""
        try:
            raw = json.loads(data)
            if raw["format"] != FORMAT or raw["kind"] not in KINDS:
                raise BrokenLakeError(
                    f"an entry of format {raw['format']}, kind {raw['kind']!r} is not known here"
                )
            raw["partitions"] = {
                key: PartitionCommit(**partition) for key, partition in raw["partitions"].items()
            }
            for name in _FILES:
                raw[name] = [
                    DataFile(**entry) for entry in (raw.get(name, ()) if name == "erased" else raw[name])
                ]
            return cls(**raw)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrokenLakeError(f"an entry of the ledger cannot be read: {error!r}") from None

    def state(self, path: str, data: bytes) -> State:
        """Return the state after this entry, which is stored as `data` at `path`. Raises BrokenLakeError."""
        kept = {**_ADDED, **self.after}
        try:
            values: Document = {name: kept[name] for name in _KEPT}
            for name in _BY_PARTITION:
                values[name] = {int(partition): value for partition, value in kept[name].items()}
            values["totals"] = {
                partition: PartitionCommit(*row) for partition, row in values["totals"].items()
            }
            for name in _HOURS:
                values[name] = {hour for first, last in kept[name] for hour in range(first, last + 1)}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrokenLakeError(f"the state after entry {self.version} cannot be read: {error!r}") from None
        identity = (self.cluster_id, self.topic, self.topic_id)
        return State(self.version, path, digest(data), *identity, schema=self.schema, **values)


@dataclass(slots=True)
class Files:
    """All files with rows that entries have ever named, those of erased offsets, and the dead letters that count, by path.

    The catalog's snapshot decides which files have the rows: another engine may have replaced files.
    """

    rows: dict[str, DataFile] = field(default_factory=dict)
    dead: dict[str, DataFile] = field(default_factory=dict)
    erased: dict[str, DataFile] = field(default_factory=dict)

    def apply(self, entry: Entry) -> None:
        """Apply the next entry. Raises BrokenLakeError if it removes unknown files of dead letters."""
        self.rows |= {file.path: file for file in entry.add}
        self.erased |= {file.path: file for file in entry.erased}
        for path in entry.dead_remove:
            if self.dead.pop(path, None) is None:
                raise BrokenLakeError(f"entry {entry.version} removes {path}, which is not there")
        self.dead |= {file.path: file for file in entry.dead_add}


def digest(data: bytes) -> str:
    """Return the SHA-256 of an entry in hex, which the next entry names."""
    return hashlib.sha256(data).hexdigest()


def _row(commit: PartitionCommit) -> list[object]:
    return [getattr(commit, field.name) for field in fields(commit) if field.name != "log_digest"]


def _plain(file: DataFile) -> Document:
    """Return a file in the form stored in an entry, without empty members."""
    return {
        field.name: value
        for field in fields(file)
        if field.name != "iceberg" and (value := getattr(file, field.name)) not in (-1, [], {})
    }


def _ranges(hours: Iterable[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for hour in sorted(hours):
        if ranges and ranges[-1][1] == hour - 1:
            ranges[-1][1] = hour
        else:
            ranges.append([hour, hour])
    return ranges
