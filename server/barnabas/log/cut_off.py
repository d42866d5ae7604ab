"""Copies of logs from interrupted moves to another log dir, after a crash or a failed log dir.

The rule: while the log is at its old place, its copy is removed, unless that log was created anew. Otherwise the copy
becomes the log only if it is complete and the log's directory was renamed for it. An incomplete copy is kept and
reported: it is removed with its partition, and set aside when the log is created anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from barnabas.errors import StorageError
from barnabas.log import logdir
from barnabas.log.disk import Disk, file_names
from barnabas.log.format import names
from barnabas.log.format.names import DirKind
from barnabas.log.moving import Move, Moves
from barnabas.log.registry import LogRegistry
from barnabas.wire.topic_partitions import TopicPartition

log = logging.getLogger(__name__)


class MarkedDir(NamedTuple):
    """A directory with a suffix to a log's name; a long topic name in it is truncated."""

    log_dir: str
    name: str
    topic: str
    partition: int

    @property
    def path(self) -> str:
        """Path of the directory."""
        return f"{self.log_dir}/{self.name}"

    @property
    def may_be_cut_short(self) -> bool:
        """True if the topic's name may be truncated."""
        return len(self.name) == names.DIR_NAME_LENGTH_MAX

    def may_be_of(self, key: TopicPartition) -> bool:
        """Return whether the directory may belong to that partition."""
        topic, partition = key
        is_topic = topic == self.topic or (self.may_be_cut_short and topic.startswith(self.topic))
        return is_topic and partition == self.partition


class CutOffCopies:
    """Interrupted moves found at a start, and the copies that may be incomplete.

    Lifecycle: `found` and `renamed` are filled while log dirs are opened, then `end` is called once.
    """

    def __init__(
        self,
        disk: Disk,
        registry: LogRegistry,
        moves: Moves,
        missing: Mapping[TopicPartition, str],
        offline: Mapping[str, StorageError],
    ) -> None:
        self.found: list[MarkedDir] = []
        """Copies."""
        self.renamed: list[MarkedDir] = []
        """Directories of logs that were renamed, to be removed or kept."""
        self.left_alone: dict[str, tuple[str, TopicPartition]] = {}
        """Copies of logs that are not here, with their log dirs and partitions."""
        self._disk = disk
        self._registry = registry
        self._moves = moves
        self._missing = missing
        self._offline = offline

    # --- at a start -----------------------------------------------------------------------------------------

    def end(
        self,
        adopt: Callable[[str, TopicPartition], object],
        fail: Callable[[str, StorageError], object],
        now_ms: int,
    ) -> None:
        """Decide about all copies, once all log dirs are open.

        `adopt` opens the log that a copy has become; `fail` is called for log dirs that fail.
        """
        for copy in self.found:
            if copy.log_dir not in self._offline:
                try:
                    self._end(copy, adopt, now_ms)
                except OSError as error:
                    fail(copy.log_dir, StorageError(copy.log_dir, error))
                except StorageError as error:
                    fail(copy.log_dir, error)
        self.found.clear()
        self.renamed.clear()

    def _end(self, copy: MarkedDir, adopt: Callable[[str, TopicPartition], object], now_ms: int) -> None:
        owner = self._owner(copy)
        if owner is not None and owner in self._registry:
            self._end_beside_log(copy, owner, now_ms)
            return
        key = owner or (copy.topic, copy.partition)
        if self._offline:
            log.warning("%s is left alone: the log itself may be in a dir that is offline", copy.path)
        elif owner is None:
            log.error(
                "%s is left alone: the name of its topic was cut short, and there is no log, or more than one, that it "
                "may be a copy of",
                copy.path,
            )  # fmt: skip
        elif self._is_whole(copy, key):
            self._disk.rename(copy.path, f"{copy.log_dir}/{names.dir_name(*key)}")
            self._disk.sync_dir(copy.log_dir)
            adopt(copy.log_dir, key)
            return
        else:
            log.error(
                "%s is left alone: the log of %s-%d is gone from where it was, and this copy may lack records. To use it "
                "all the same, stop the broker and rename it to %s/%s; if the partition was deleted while %s was offline, "
                "remove it",
                copy.path, *key, copy.log_dir, names.dir_name(*key), copy.log_dir,
            )  # fmt: skip
        self.left_alone[copy.path] = copy.log_dir, key

    def _owner(self, copy: MarkedDir) -> TopicPartition | None:
        """Return the partition of a copy; None if its name is truncated, and does not match exactly one known log."""
        if not copy.may_be_cut_short:
            return copy.topic, copy.partition
        keys = {*self._missing, *((log.topic, log.partition) for log in self._registry)}
        owners = [key for key in keys if copy.may_be_of(key)]
        return owners[0] if len(owners) == 1 and not self._offline else None

    def _end_beside_log(self, copy: MarkedDir, key: TopicPartition, now_ms: int) -> None:
        partition_log = self._registry[key]
        if logdir.ends_after(self._disk, copy.path, partition_log.log_end_offset):
            kept = logdir.rename_away(self._disk, key, copy.log_dir, copy.path, DirKind.STRAY)
            log.error(
                "%s-%d in %s ends at offset %d, and a copy that was on its way to %s has more: it is kept as %s",
                *key, partition_log.log_dir, partition_log.log_end_offset, copy.log_dir, kept,
            )  # fmt: skip
            return
        log.info(
            "the move of %s-%d to %s was cut off: it stays in %s", *key, copy.log_dir, partition_log.log_dir
        )
        self._moves.discard_copy(key, copy.log_dir, copy.path, now_ms)

    def _is_whole(self, copy: MarkedDir, key: TopicPartition) -> bool:
        """Return whether everything was copied, and the log's own directory renamed for the copy. Raises OSError.

        The topic id alone does not show that: some logs have none, and a directory that is being removed has lost it.
        """
        # the file that is copied last
        if names.LEADER_EPOCH_CHECKPOINT not in file_names(self._disk, copy.path):
            return False
        topic_id = logdir.read_topic_id(self._disk, copy.path)
        return any(
            renamed_dir.may_be_of(key) and logdir.read_topic_id(self._disk, renamed_dir.path) == topic_id
            for renamed_dir in self.renamed
        )

    # --- later ----------------------------------------------------------------------------------------------

    def lose(self, log_dir: str, ended: Iterable[Move]) -> None:
        """Note a failed log dir, which has `ended` moves from and to it."""
        for path, (place, _) in list(self.left_alone.items()):
            if place == log_dir:
                del self.left_alone[path]
        for move in ended:
            if move.target_dir not in self._offline:
                key = (move.partition_log.topic, move.partition_log.partition)
                self.left_alone[move.directory] = move.target_dir, key

    def discard(self, key: TopicPartition, now_ms: int) -> None:
        """Remove the kept copies of a partition that is being deleted."""
        for path, log_dir in self._take(key):
            self._moves.discard_copy(key, log_dir, path, now_ms)

    def set_aside(self, key: TopicPartition) -> None:
        """Rename the kept copies of a partition that gets a new log, so that they do not count as copies of the new log.

        Raises StorageError.
        """
        for path, log_dir in self._take(key):
            kept = logdir.rename_away(self._disk, key, log_dir, path, DirKind.STRAY)
            log.error(
                "%s-%d begins anew; a copy of the log that it had, which was on its way to %s, is kept as %s",
                *key, log_dir, kept,
            )  # fmt: skip

    def _take(self, key: TopicPartition) -> list[tuple[str, str]]:
        taken = [(path, log_dir) for path, (log_dir, owner) in self.left_alone.items() if owner == key]
        for path, _ in taken:
            del self.left_alone[path]
        return taken
