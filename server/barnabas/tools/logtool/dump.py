"""`dump`: the content of a file, row by row.

The rule: all readable content is shown, in the order of the file; an error is a row of kind "problem" at its place, and
only then a file ends early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct

from barnabas.errors import RequestError
from barnabas.log.disk import Disk
from barnabas.log.format import (
    CorruptFileError,
    checkpoints,
    names,
    offset_index,
    properties,
    snapshot,
    time_index,
    txn_index,
)
from barnabas.log.format.quorum_state import QUORUM_STATE, QuorumState
from barnabas.log.scan import iter_checked
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import BatchHeader
from barnabas.records.compression import CODEC_NAMES, Codec
from barnabas.tools.logtool.payloads import describe_record
from barnabas.tools.logtool.places import CHECKPOINTS, PartitionPlace, PlaceError
from barnabas.tools.logtool.rows import Row

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
OFFSET_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Dumper:
    """Shows files. `deep` shows each record too; only batches that reach into `first` to `last` are shown."""

    disk: Disk
    deep: bool = False
    first: int = 0
    last: int = OFFSET_MAX

    def partition(self, place: PartitionPlace) -> Iterator[Row]:
        """Yield all files of a partition: the segments in order, then the files of the whole partition."""
        for name in sorted(place.file_names, key=_order):
            if _can_dump(name):
                yield {"kind": "file", "path": f"{place.path}/{name}"}
                yield from self.file(f"{place.path}/{name}", place.topic)

    def log_dir(self, path: str, file_names: list[str]) -> Iterator[Row]:
        """The files that stand in a log dir itself."""
        for name in sorted(file_names):
            if _can_dump(name):
                yield {"kind": "file", "path": f"{path}/{name}"}
                yield from self.file(f"{path}/{name}")

    def file(self, path: str, topic: str = "") -> Iterator[Row]:
        """Yield one file, by its name. Raises PlaceError for an unknown name, OSError."""
        name = path.rpartition("/")[2]
        parsed = names.parse_file_name(name.partition(names.DAMAGED)[0])
        if parsed is not None:
            readers: dict[str, Callable[[str, int, str], Iterator[Row]]] = {
                names.LOG: self._log,
                names.OFFSET_INDEX: self._offset_index,
                names.TIME_INDEX: self._time_index,
                names.TXN_INDEX: self._txn_index,
                names.SNAPSHOT: self._snapshot,
            }
            return readers[parsed.suffix](path, parsed.base_offset, topic)
        if is_metadata_snapshot(name):
            return self._log(path, 0, names.CLUSTER_METADATA_TOPIC)
        if name in _TEXT_FILES:
            return self._text_file(path, name)
        raise PlaceError(f"{path}: there is no file of this name in a log dir")

    # --- the log --------------------------------------------------------------------------------------------

    def _log(self, path: str, base_offset: int, topic: str) -> Iterator[Row]:
        file = self.disk.open(path)
        size = file.size()
        problems: list[Row] = []

        def on_problem(position: int, text: str) -> None:
            problems.append(
                {"kind": "problem", "position": position, "text": text, "bytes_left": size - position}
            )

        for position, header in iter_checked(file, size, base_offset=base_offset, on_problem=on_problem):
            if header.base_offset > self.last:
                return
            if header.last_offset < self.first:
                continue
            yield describe_batch(position, header)
            if self.deep:
                yield from self._records(file.read(header.size, position), header, topic)
        yield from problems

    def _records(self, data: bytes, header: BatchHeader, topic: str) -> Iterator[Row]:
        try:
            for record in iter_any_records(data):
                if self.first <= record.offset <= self.last:
                    yield describe_record(topic, header, record)
        except RequestError as error:
            yield {"kind": "problem", "offset": header.base_offset, "text": error.message}

    # --- what belongs to a segment --------------------------------------------------------------------------

    def _offset_index(self, path: str, base_offset: int, _: str) -> Iterator[Row]:
        data = self.disk.read(path)
        for offset, position in _entries(_OFFSET_ENTRY, data):
            if self.first <= base_offset + offset <= self.last:
                yield {"kind": "offset_index_entry", "offset": base_offset + offset, "position": position}
        yield from _remainder(data, offset_index.ENTRY_SIZE)

    def _time_index(self, path: str, base_offset: int, _: str) -> Iterator[Row]:
        data = self.disk.read(path)
        for timestamp, offset in _entries(_TIME_ENTRY, data):
            if self.first <= base_offset + offset <= self.last:
                yield {"kind": "time_index_entry", "timestamp": timestamp, "offset": base_offset + offset}
        yield from _remainder(data, time_index.ENTRY_SIZE)

    def _txn_index(self, path: str, base_offset: int, _: str) -> Iterator[Row]:
        try:
            for entry in txn_index.decode(self.disk.read(path), base_offset):
                yield {"kind": "aborted_transaction", **entry._asdict()}
        except CorruptFileError as error:
            yield {"kind": "problem", "text": str(error)}

    def _snapshot(self, path: str, _: int, __: str) -> Iterator[Row]:
        try:
            for entry in snapshot.decode(self.disk.read(path)):
                yield {"kind": "producer", **entry._asdict()}
        except CorruptFileError as error:
            yield {"kind": "problem", "text": str(error)}

    # --- what belongs to a partition or a log dir -----------------------------------------------------------

    def _text_file(self, path: str, name: str) -> Iterator[Row]:
        try:
            yield from _TEXT_FILES[name](self.disk.read(path))
        except CorruptFileError as error:
            yield {"kind": "problem", "text": str(error)}


def describe_batch(position: int, header: BatchHeader) -> Row:
    """A batch as a row; sizes in bytes, timestamps in ms."""
    row: Row = {
        "kind": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.records_count,
        "position": position,
        "size": header.size,
        "magic": header.magic,
        "crc": header.crc,
        "codec": CODEC_NAMES[Codec(header.codec)] if header.codec <= Codec.ZSTD else header.codec,
        "timestamp_type": header.timestamp_type,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
    }
    if header.magic == 2:
        row |= {
            "leader_epoch": header.leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "last_sequence": header.last_sequence,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "delete_horizon_ms": header.delete_horizon_ms,
        }
    return row


def padding(data: bytes) -> int:
    """Return the number of zero bytes at the end of a preallocated file that was not closed."""
    return len(data) - len(data.rstrip(b"\0"))


def _entries(entry: Struct, data: bytes) -> Iterator[tuple[int, ...]]:
    """The entries of an index, without the zeros of a file that was preallocated and not closed."""
    whole = len(data) - len(data) % entry.size
    used = len(data) - padding(data)
    end = min(whole, -(-used // entry.size) * entry.size)
    return entry.iter_unpack(memoryview(data)[:end])


def _remainder(data: bytes, entry_size: int) -> Iterator[Row]:
    if len(data) % entry_size:
        yield {"kind": "problem", "text": f"{len(data)} bytes are no whole number of entries"}


def _dump_offsets(data: bytes) -> Iterator[Row]:
    for (topic, partition), offset in checkpoints.decode_offsets(data).items():
        yield {"kind": "checkpoint", "topic": topic, "partition": partition, "offset": offset}


def _dump_epochs(data: bytes) -> Iterator[Row]:
    for epoch, start_offset in checkpoints.decode_epochs(data):
        yield {"kind": "leader_epoch", "epoch": epoch, "start_offset": start_offset}


def _dump_meta(data: bytes) -> Iterator[Row]:
    meta = properties.MetaProperties.decode(data)
    directory_id = meta.directory_id
    yield {
        "kind": "meta",
        "version": meta.version,
        "cluster_id": meta.cluster_id,
        "node_id": meta.node_id,
        "directory_id": None if directory_id is None else properties.encode_uuid(directory_id),
        **meta.others,
    }


def _dump_topic_id(data: bytes) -> Iterator[Row]:
    topic_id = properties.decode_partition_metadata(data)
    yield {"kind": "partition", "topic_id": properties.encode_uuid(topic_id)}


def _dump_clean(data: bytes) -> Iterator[Row]:
    yield {"kind": "clean_shutdown", "content": data}


def _dump_quorum_state(data: bytes) -> Iterator[Row]:
    state = QuorumState.decode(data)
    yield {
        "kind": "quorum_state",
        "data_version": state.data_version,
        "leader_id": state.leader_id,
        "leader_epoch": state.leader_epoch,
        "voted_id": state.voted_id,
        "voted_directory_id": properties.encode_uuid(state.voted_directory_id),
        "voters": state.voters,
    }


_TEXT_FILES: dict[str, Callable[[bytes], Iterator[Row]]] = {
    **dict.fromkeys(CHECKPOINTS, _dump_offsets),
    names.LEADER_EPOCH_CHECKPOINT: _dump_epochs,
    names.PARTITION_METADATA: _dump_topic_id,
    names.META_PROPERTIES: _dump_meta,
    names.CLEAN_SHUTDOWN: _dump_clean,
    QUORUM_STATE: _dump_quorum_state,
}


def _can_dump(name: str) -> bool:
    return name in _TEXT_FILES or is_metadata_snapshot(name) or names.parse_file_name(name) is not None


def is_metadata_snapshot(name: str) -> bool:
    """Return whether a file is a snapshot of the metadata or a quorum's bootstrap file, both in the form of a log."""
    return name == names.BOOTSTRAP_CHECKPOINT or names.parse_checkpoint_name(name) is not None


_SUFFIX_ORDER = (*names.SEGMENT_SUFFIXES, names.SNAPSHOT)


def _order(name: str) -> tuple[int, int, str]:
    parsed = names.parse_file_name(name)
    checkpoint = names.parse_checkpoint_name(name)
    if checkpoint is not None:
        return (checkpoint[0], len(_SUFFIX_ORDER), name)
    if parsed is None:
        return (1 << 63, 0, name)
    return (parsed.base_offset, _SUFFIX_ORDER.index(parsed.suffix), name)
