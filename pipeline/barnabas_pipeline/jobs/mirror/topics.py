"""Topics of the target: created, enlarged and configured like those of the source.

The rule: a topic has the source's number of partitions, or more; only settings of retention and compaction are copied, if
they are set for the topic itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from barnabas.client import ClientError
from barnabas.client.admin import Admin, ConfigChange, ConfigEntry, NewTopic, Resource, TopicInfo
from barnabas.client.administration.words import DELETE, SET
from barnabas.client.errors import ResponseError
from barnabas.wire.generated.errors import ErrorCode
from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, PipelineError, UsageError
from barnabas_pipeline.jobs.mirror.model import MirrorOptions, MirrorSummary
from barnabas_pipeline.jobs.sites import Site, Topic

COPIED = frozenset((
    "cleanup.policy", "compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
    "delete.retention.ms", "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio", "min.compaction.lag.ms",
    "retention.bytes", "retention.ms", "segment.bytes", "segment.jitter.ms", "segment.ms",
))  # fmt: skip
"""Settings that are copied; others concern replicas, disks and brokers of one cluster."""
READY_SECONDS_MAX = 30.0
READY_POLL_SECONDS = 0.05


def settings_of(site: Site, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the settings to copy, by topic: settings of the topic itself, no defaults. Raises IncompleteError."""
    resources = [Resource("topic", name) for name in topics]
    answers = site.ask(lambda admin: admin.describe_configs(resources, names=sorted(COPIED)))
    configs = {}
    for resource, entries in answers.items():
        if isinstance(entries, ClientError):
            raise IncompleteError(f"{site.cluster}: {entries}")
        configs[resource.name] = {
            entry.name: entry.value for entry in entries if _is_own(entry) and entry.value is not None
        }
    return configs


def _is_own(entry: ConfigEntry) -> bool:
    return entry.name in COPIED and entry.source == "topic"


class TargetTopics:
    """Topics of the target, over all rounds."""

    def __init__(self, target: Site, options: MirrorOptions) -> None:
        self._target = target
        self._options = options

    def prepare(
        self,
        targets: Mapping[str, tuple[Site | None, Topic]],
        summary: MirrorSummary,
    ) -> dict[str, Topic | PipelineError]:
        """Return the target's topic for each name, created and enlarged as the source's, or the error that prevents that.

        `targets` has, for each name in the target, the source (None: log dirs, without settings) and its topic there.
        """
        there = self._target.topics()
        prepared: dict[str, Topic | PipelineError] = {}
        missing = [name for name in targets if name not in there]
        short = {
            name: topic.partitions
            for name, (_, topic) in targets.items()
            if name in there and there[name].partitions < topic.partitions
        }
        if not self._options.creates_topics:
            prepared |= {
                name: UsageError(f"{self._target.cluster} has no topic {name!r}") for name in missing
            }
            for name, count in short.items():
                have = there[name].partitions
                prepared[name] = UsageError(
                    f"{name} has {have} partitions, {targets[name][1].name} has {count}"
                )
            missing, short = [], {}
        for name in missing:
            try:
                summary.created_topics += self._create(name, *targets[name])
            except PipelineError as error:
                prepared[name] = error
        if short:
            prepared |= self._grow(short, there, summary)
        if self._options.syncs_configs:
            prepared |= self._sync([name for name in targets if name in there], targets, summary)
        if missing or short:
            faults.point("mirror.after_topics")
            there = self._wait_for(
                {name: targets[name][1].partitions for name in (*missing, *short) if name not in prepared}
            )
        return {
            name: prepared.get(name) or there[name] for name in targets if name in prepared or name in there
        }

    def _create(self, name: str, source: Site | None, topic: Topic) -> int:
        """Create a topic; returns the number of created topics.

        Raises IncompleteError, UsageError if the target refuses.
        """
        configs = {} if source is None else settings_of(source, [topic.name])[topic.name]
        new_topic = NewTopic(name, topic.partitions, self._options.replication_factor, configs)
        error = self._target.ask(lambda admin: admin.create_topics([new_topic]))[name]
        if isinstance(error, ResponseError):
            if (
                error.code == ErrorCode.TOPIC_ALREADY_EXISTS
            ):  # another mirror was faster, or the response was lost
                return 0
            if not error.is_retriable:
                raise UsageError(str(error))
        if error is not None:
            raise IncompleteError(str(error))
        return 1

    def _grow(
        self, short: Mapping[str, int], there: Mapping[str, Topic], summary: MirrorSummary
    ) -> dict[str, PipelineError]:
        failed: dict[str, PipelineError] = {}
        for name, error in self._target.ask(lambda admin: admin.create_partitions(short)).items():
            if error is not None:
                failed[name] = IncompleteError(str(error))
            else:
                summary.added_partitions += short[name] - there[name].partitions
        return failed

    def _sync(
        self, names: list[str], targets: Mapping[str, tuple[Site | None, Topic]], summary: MirrorSummary
    ) -> dict[str, PipelineError]:
        """Set differing settings, and reset settings that the source no longer has."""
        failed: dict[str, PipelineError] = {}
        mine = settings_of(self._target, names)
        changes: dict[Resource, list[ConfigChange]] = {}
        by_source: dict[Site, list[str]] = {}
        for name in names:
            source, topic = targets[name]
            if source is not None:
                by_source.setdefault(source, []).append(topic.name)
        theirs = {source: settings_of(source, topics) for source, topics in by_source.items()}
        for name in names:
            source, topic = targets[name]
            if source is None:
                continue
            have, want = mine[name], theirs[source][topic.name]
            change = [
                ConfigChange(name, SET, value) for name, value in want.items() if have.get(name) != value
            ]
            change += [ConfigChange(name, DELETE, None) for name in have if name not in want]
            if change:
                changes[Resource("topic", name)] = change
        if not changes:
            return failed
        for resource, error in self._target.ask(lambda admin: admin.alter_configs(changes)).items():
            if error is not None:
                failed[resource.name] = IncompleteError(str(error))
            else:
                summary.changed_settings += len(changes[resource])
        return failed

    def _wait_for(self, counts: Mapping[str, int]) -> dict[str, Topic]:
        """Wait until all brokers have the topics' metadata, with leaders. Raises IncompleteError."""
        deadline = time.monotonic() + READY_SECONDS_MAX

        async def ready(admin: Admin) -> bool:
            infos = await admin.topics(counts)
            return all(
                isinstance(info, TopicInfo)
                and len(info.partitions) >= counts[name]
                and all(partition.leader >= 0 for partition in info.partitions)
                for name, info in infos.items()
            )

        while counts and not self._target.ask(ready):
            if time.monotonic() > deadline:
                raise IncompleteError(f"topics are not ready yet: {', '.join(sorted(counts))}")
            time.sleep(READY_POLL_SECONDS)
        return self._target.topics()
