"""Dead letter queues of share groups: topics to which the leader of a partition writes the records that a group gives up
(KIP-1191).

The rule: records that cannot be written are logged and archived, so that a group never waits long for its queue. The
broker itself writes: the group's members need no permission, but the topic must have
`errors.deadletterqueue.group.enable`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from barnabas.cluster.metadata.image import TOPIC
from barnabas.cluster.replicas.appends_elsewhere import TRANSIENT
from barnabas.config import broker as settings
from barnabas.config import topic as topic_settings
from barnabas.coordinators.share.counts import ShareCounts
from barnabas.coordinators.share.dead_letters import DeadLetters, Origin, Original, next_batch
from barnabas.errors import RequestError, StorageError
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.records.errors import DecompressedTooLargeError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.metadata.topic_creation import TopicCreation
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.share.ports import LetterWriter
    from barnabas.coordinators.share.settings import ShareSettings
    from barnabas.environment import Entropy
    from barnabas.records.record import Record
    from barnabas.serving.log_limit import LogLimit
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

T = TypeVar("T")

GROUP_ENABLE = "errors.deadletterqueue.group.enable"
OWN_SETTINGS = {GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
"""Settings of a queue topic that the broker creates."""
ATTEMPTS = 5
BACKOFF_SECONDS = 1.0
"""Pause before the second attempt, doubled for each further one, with up to a fifth of jitter."""
JITTER_PERCENT = 20
READ_BYTES_MAX = 1 << 20
RECORDS_PER_CHECKPOINT = 250
_TRANSIENT = (*TRANSIENT, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


@dataclass(frozen=True, slots=True)
class DeadLetterQueues:
    """Writes to the queues of all share groups.

    `writer` appends to a partition on any broker; `are_on` says whether the cluster's `share.version` has dead letter
    queues.
    """

    config: BrokerConfig
    metadata: MetadataStore
    creation: TopicCreation
    writer: LetterWriter
    entropy: Entropy
    budget: LoopBudget
    now_ms: Callable[[], int]
    are_on: Callable[[], bool]
    log_limit: LogLimit
    counts: ShareCounts = field(default_factory=ShareCounts)

    async def write(
        self, origin: Origin, led: Replica, letters: DeadLetters, group: Callable[[], ShareSettings]
    ) -> bool:
        """Write records of a partition that is led here; returns whether all were written. Failures are logged.

        `group` returns the group's present settings.
        """
        try:
            while letters.first <= letters.last:
                letters = await self._write_some(origin, led, letters, group)
        except (RequestError, StorageError) as error:
            self.log_limit.log(
                log, logging.WARNING, "lost dead letters", origin.group_id,
                "share group %s: offsets %d to %d of %s-%d, %d times delivered, are not in the dead letter queue, and "
                "are given up all the same: %s",
                origin.group_id, letters.first, letters.last, origin.topic, origin.partition, letters.deliveries,
                error,
            )  # fmt: skip
            return False
        return True

    async def _write_some(
        self, origin: Origin, led: Replica, letters: DeadLetters, group: Callable[[], ShareSettings]
    ) -> DeadLetters:
        """Write one batch; returns the remaining records. Raises RequestError."""
        topic, count = await self._retried(lambda: self._ensured(group().dead_letter_topic))
        bytes_max = self._setting(topic, "max.message.bytes")
        originals: dict[int, Original] = {}
        end = letters.last
        if group().copies_dead_letters:
            originals, end = await self._originals(led, letters, bytes_max)
        batch, next_offset = next_batch(
            origin, letters._replace(last=end), originals, now_ms=self.now_ms(), bytes_max=bytes_max
        )
        counts = self.counts.of_group(origin.group_id)
        counts.letter_appends += 1
        try:
            await self._retried(partial(self.writer.append, topic, origin.partition % count, batch))
        except (RequestError, StorageError):
            counts.failed_letter_appends += 1
            raise
        counts.letters += next_offset - letters.first
        return letters._replace(first=next_offset)

    async def _ensured(self, name: str) -> tuple[str, int]:
        """Return the topic, and the number of its partitions; creates it if it is missing and allowed.

        Raises RequestError.
        """
        prefix = self.config.get(settings.ERRORS_DEADLETTERQUEUE_TOPIC_NAME_PREFIX)
        image = self.metadata.image
        why = ""
        if not name:
            why = "the group has none any more"
        elif name.startswith("__"):
            why = f"topic {name} has the name of an internal one"
        elif name in image.topics and not self._setting(name, GROUP_ENABLE):
            why = f"topic {name} does not allow it: {GROUP_ENABLE} is false"
        elif name not in image.topics and not self.config.get(
            settings.ERRORS_DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE
        ):
            setting = settings.ERRORS_DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE.name
            why = f"there is no topic {name}, and {setting} is false"
        elif not name.startswith(prefix):
            why = f"topic {name} does not begin with {prefix}"
        if why:
            raise RequestError(ErrorCode.INVALID_CONFIG, why)
        if name not in image.topics:
            await self.creation.ensure(name, OWN_SETTINGS)
        info = self.metadata.image.topics.get(name)
        if info is None:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name} is being made")
        return name, len(info.partitions)

    def _setting(self, topic: str, name: str) -> Any:
        """Return the value of a topic's setting."""
        own = self.metadata.image.settings_of(TOPIC, topic)
        if name in own:
            return topic_settings.stored(name).parse(own[name])
        return self.config.topic_default(topic_settings.SETTINGS[name])[0]

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try an operation up to five times, while its error is retriable. Raises the last RequestError."""
        for number in range(ATTEMPTS - 1):
            try:
                return await attempt()
            except RequestError as error:
                if error.code not in _TRANSIENT:
                    raise
            jitter = 1 + (self.entropy.below(2 * JITTER_PERCENT + 1) - JITTER_PERCENT) / 100
            await trio.sleep(BACKOFF_SECONDS * 2**number * jitter)
        return await attempt()

    async def _originals(
        self, led: Replica, letters: DeadLetters, bytes_max: int
    ) -> tuple[dict[int, Original], int]:
        """Read keys and values of records, up to `bytes_max` in all; also returns the last offset examined.

        Missing, damaged and larger records are omitted.
        """
        originals: dict[int, Original] = {}
        size = count = 0
        try:
            read = led.log.read(
                letters.first,
                max_bytes=READ_BYTES_MAX,
                upper_offset=led.log.high_watermark,
                is_end_wanted=False,
            )
            data = read.to_bytes()
            last = letters.first if data else letters.last
            for position, header in iter_batches(data):
                if header.base_offset > letters.last:
                    return originals, letters.last
                for record in _records_of(data, position, bytes_max) if not header.is_control else ():
                    count += 1
                    if not count % RECORDS_PER_CHECKPOINT:
                        await self.budget.checkpoint()
                    if not letters.first <= record.offset <= letters.last:
                        continue
                    own_size = len(record.key or b"") + len(record.value or b"")
                    if own_size > bytes_max:
                        continue
                    if size + own_size > bytes_max:
                        return originals, max(record.offset - 1, letters.first)
                    size += own_size
                    originals[record.offset] = Original(record.key, record.value)
                last = max(last, min(header.last_offset, letters.last))
        except (RequestError, StorageError) as error:
            self.log_limit.log(
                log, logging.WARNING, "dead letters without originals", led.log.name,
                "records of %s from %d on are not copied: %s", led.log.name, letters.first, error,
            )  # fmt: skip
            return originals, letters.last
        return originals, last


def _records_of(data: bytes, position: int, bytes_max: int) -> Iterable[Record]:
    """Return the records of a batch; none if they exceed `bytes_max` decompressed."""
    try:
        return iter_any_records(data, position, decompressed_bytes_max=bytes_max)
    except DecompressedTooLargeError:
        return ()
