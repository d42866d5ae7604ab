"""Committed offsets of the source's groups, committed in the target for the groups of the same names.

The rule: an active group is not changed: a group with members in the target, or with a greater offset there. An offset
beyond the mirrored records waits for the next round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from barnabas.client import ClientError
from barnabas.client.admin import CommittedOffset
from barnabas.client.administration.words import CLASSIC, CONSUMER
from barnabas.wire.topic_partitions import TopicPartition
from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError
from barnabas_pipeline.jobs.choices import compile_pattern
from barnabas_pipeline.jobs.mirror.model import GROUP_PREFIX, MirrorOptions, MirrorSummary, Place
from barnabas_pipeline.jobs.mirror.translating import Translator
from barnabas_pipeline.jobs.sites import Site
from barnabas_pipeline.log.model import Bounds, Log
from barnabas_pipeline.log.transports import open_log

EMPTY = ("Empty", "Dead")
PROBE_BYTES = 64 << 10
"""Size of a fetch for a single record."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A partition of a source's topic, and how far it is mirrored."""

    place: Place
    position: int


class Groups:
    """Offsets of groups, over all rounds; unchanged offsets are skipped."""

    def __init__(self, target: Site, options: MirrorOptions) -> None:
        self._target = target
        self._options = options
        self._seen: dict[tuple[str, TopicPartition, str], int] = {}
        """Source offsets that were processed, by group, partition and ids of both topics."""
        self._logs: dict[str, Log] = {}
        self._bounds: dict[str, dict[int, Bounds]] = {}

    def move(self, source: Site, mirrored: Mapping[TopicPartition, Mirrored], summary: MirrorSummary) -> None:
        """Commit the offsets of a source's groups for mirrored partitions in the target. Raises IncompleteError."""
        pattern = compile_pattern(self._options.groups)
        listed, failures = source.ask(lambda admin: admin.list_groups(kinds=(CLASSIC, CONSUMER)))
        names = [group for group in listed if pattern.fullmatch(group) and not group.startswith(GROUP_PREFIX)]
        committed = source.ask(lambda admin: admin.committed(names))
        changed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for group, offsets in committed.items():
            if isinstance(offsets, ClientError):
                failures[-1] = offsets
                continue
            for partition, offset in offsets.items():
                if not isinstance(offset, CommittedOffset) or partition not in mirrored:
                    continue
                if self._seen.get(_key(group, partition, mirrored[partition])) != offset.offset:
                    changed.setdefault(group, {})[partition] = offset
        try:
            self._move_changed(changed, mirrored, summary)
        finally:
            for log in self._logs.values():
                log.close()
            self._logs.clear()
            self._bounds.clear()
        for error in failures.values():
            raise IncompleteError(f"groups of {source.cluster}: {error}")

    def _move_changed(
        self,
        changed: Mapping[str, Mapping[TopicPartition, CommittedOffset]],
        mirrored: Mapping[TopicPartition, Mirrored],
        summary: MirrorSummary,
    ) -> None:
        if not changed:
            return
        there, _ = self._target.ask(lambda admin: admin.list_groups())
        for group, offsets in changed.items():
            if group in there and there[group].state not in EMPTY:
                summary.groups_live += 1
                continue
            have = self._target.committed(group)
            targets: dict[TopicPartition, CommittedOffset] = {}
            keys = {}
            for partition, offset in offsets.items():
                place = mirrored[partition].place
                translated = self._translated(mirrored[partition], offset.offset)
                if translated is None:
                    summary.groups_waiting += 1
                    continue
                goal = (place.target, place.partition)
                keys[goal] = _key(group, partition, mirrored[partition]), offset.offset
                if goal in have and have[goal].offset == translated:
                    self._seen[keys[goal][0]] = offset.offset
                elif goal in have and have[goal].offset > translated and not self._options.moves_groups_back:
                    summary.groups_kept += 1
                    self._seen[keys[goal][0]] = offset.offset
                else:
                    targets[goal] = CommittedOffset(translated, metadata=offset.metadata)
            if targets:
                self._commit(group, targets, keys, summary)

    def _commit(
        self,
        group: str,
        targets: Mapping[TopicPartition, CommittedOffset],
        keys: Mapping[TopicPartition, tuple[tuple[str, TopicPartition, str], int]],
        summary: MirrorSummary,
    ) -> None:
        faults.point("mirror.before_groups")
        outcomes = self._target.ask(lambda admin: admin.commit_offsets(group, targets))
        for goal, error in outcomes.items():
            if error is None:
                key, offset = keys[goal]
                self._seen[key] = offset
                summary.groups_committed += 1
            else:  # the group has members by now
                summary.groups_live += 1
        faults.point("mirror.after_groups")

    def _translated(self, mirrored: Mirrored, offset: int) -> int | None:
        """Return the target's offset for a source offset; None while earlier records are not mirrored, or not visible."""
        if offset > mirrored.position:
            return None
        place = mirrored.place
        if place.target not in self._logs:
            options = replace(self._target.cluster.log(place.target), fetch_bytes_max=PROBE_BYTES)
            log = self._logs[place.target] = open_log(options)
            self._bounds[place.target] = log.bounds()
        bound = self._bounds[place.target].get(place.partition)
        if bound is None:
            return None
        translator = Translator(self._logs[place.target], place, bound)
        return translator.offset_of(offset) if translator.is_settled else None


def _key(group: str, partition: TopicPartition, mirrored: Mirrored) -> tuple[str, TopicPartition, str]:
    return (
        group,
        partition,
        f"{mirrored.place.cluster_id}/{mirrored.place.topic_id}/{mirrored.place.target_id}",
    )
