"""Requests to a leader on another broker: Fetch, OffsetForLeaderEpoch, ListOffsets, in the leader's versions.

The rule: values in, values out; `fetching` chooses the partitions, and handles the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.cluster.replicas.following import FetchPosition
from barnabas.cluster.replication.fetch_session import FetcherSession, PartitionKey, SessionRequest, Wanted
from barnabas.cluster.replication.follower import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET, EpochEnd
from barnabas.config import broker as settings
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest
from barnabas.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.wire.topic_partitions import TopicPartition

FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH = 1, 2, 23
SESSIONS_SINCE = 7
DIVERGING_EPOCH_SINCE = 12
TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
PENDING_UPLOAD_SINCE = 11
LATEST, EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD = -1, -2, -4, -6
NO_TOPIC_ID = bytes(16)
PARTITIONS_PER_STEP = 100

PartitionData = FetchResponse.PartitionData


class Ask(NamedTuple):
    """One partition of a fetch."""

    topic: str
    partition: int
    topic_id: bytes
    position: FetchPosition


class FetchAnswer(NamedTuple):
    """Answer of the leader: by topic and partition, for as many as it has news of."""

    partitions: list[tuple[TopicPartition, PartitionData]]
    failure: str = ""
    """Why the answer as a whole is of no use, if it is not."""


class EpochAnswer(NamedTuple):
    """The end of a leader epoch, or an error."""

    error_code: int
    end: EpochEnd


UNKNOWN_END: Final = EpochAnswer(0, EpochEnd(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET))


class OffsetAnswer(NamedTuple):
    """An end of the leader's log, or an error."""

    error_code: int
    offset: int
    leader_epoch: int = -1
    """Leader epoch of the offset, -1 where the leader does not say."""


class Selection:
    """Partitions that are fetched from a leader, as its session names them; kept from one request to the next."""

    def __init__(self) -> None:
        self.by_key: dict[PartitionKey, Wanted] = {}
        """Partitions that have changed are last."""
        self.names: dict[PartitionKey, TopicPartition] = {}
        self.uses_ids = False
        self._keys: dict[TopicPartition, PartitionKey] = {}
        self._without_id: set[TopicPartition] = set()
        self._form: tuple[bool, bool, int] | None = None

    async def update(
        self,
        asks: Mapping[TopicPartition, Ask],
        changed: Iterable[TopicPartition] | None,
        *,
        version: int,
        max_bytes: int,
        budget: LoopBudget,
    ) -> list[PartitionKey] | None:
        """Update to `asks`, of which these keys have changed (None: any); return the keys that may differ, None for any."""
        if changed is None:
            self._without_id = {partition for partition, ask in asks.items() if ask.topic_id == NO_TOPIC_ID}
        else:
            changed = tuple(changed)
            for topic_partition in changed:
                ask = asks.get(topic_partition)
                if ask is not None and ask.topic_id == NO_TOPIC_ID:
                    self._without_id.add(topic_partition)
                else:
                    self._without_id.discard(topic_partition)
        uses_ids = version >= TOPIC_IDS_SINCE and not self._without_id
        form = uses_ids, version >= DIVERGING_EPOCH_SINCE, max_bytes
        if changed is None or form != self._form:
            self._form, self.uses_ids = form, uses_ids
            self.by_key.clear()
            self.names.clear()
            self._keys.clear()
            for count, (topic_partition, ask) in enumerate(asks.items(), 1):
                self._put(topic_partition, ask)
                if not count % PARTITIONS_PER_STEP:
                    await budget.checkpoint()
            return None
        keys: list[PartitionKey] = []
        for count, topic_partition in enumerate(changed, 1):
            key = self._keys.pop(topic_partition, None)
            if key is not None:
                del self.by_key[key], self.names[key]
                keys.append(key)
            ask = asks.get(topic_partition)
            if ask is not None:
                keys.append(self._put(topic_partition, ask))
            if not count % PARTITIONS_PER_STEP:
                await budget.checkpoint()
        return keys

    def _put(self, topic_partition: TopicPartition, ask: Ask) -> PartitionKey:
        assert self._form is not None
        uses_ids, tells_epoch, max_bytes = self._form
        position = ask.position
        key: PartitionKey = (ask.topic_id if uses_ids else ask.topic, ask.partition)
        self._keys[topic_partition] = key
        self.names[key] = topic_partition
        self.by_key[key] = Wanted(
            position.fetch_offset,
            position.log_start_offset,
            max_bytes,
            position.current_leader_epoch,
            position.last_fetched_epoch if tells_epoch else -1,
        )
        return key


@dataclass(slots=True)
class RemoteLeader:
    """One fetcher's view of the broker that it fetches from; its requests use one connection.

    Methods raise PeerUnavailableError.
    """

    broker_id: int
    """Id of the broker that asks."""
    leader_id: int
    channel: str
    peers: Peers
    config: BrokerConfig
    own_epoch: Callable[[], int]
    """The epoch of this broker's registration, -1 if it has none."""
    budget: LoopBudget
    _wanted: Selection = field(default_factory=lambda: Selection(), init=False)

    @property
    def _timeout_s(self) -> float:
        return self.config.get(settings.REPLICA_SOCKET_TIMEOUT_MS) / 1000

    async def version_of(self, key: int) -> int:
        """Return the version of an API for requests to the leader."""
        return await self.peers.version_of(
            self.leader_id, key, timeout_s=self._timeout_s, channel=self.channel
        )

    # --- Fetch ----------------------------------------------------------------------------------------------

    async def fetch(
        self,
        asks: Mapping[TopicPartition, Ask],
        session: FetcherSession,
        *,
        version: int,
        max_wait_ms: int,
        changed: Iterable[TopicPartition] | None = None,
    ) -> FetchAnswer | None:
        """Fetch from these partitions; None if there is nothing to fetch.

        `changed` are those in which `asks` may differ from that of the previous call; None if all may.
        """
        asked = self._wanted
        changed_keys = await asked.update(
            asks,
            changed,
            version=version,
            max_bytes=self.config.get(settings.REPLICA_FETCH_MAX_BYTES),
            budget=self.budget,
        )
        uses_ids = asked.uses_ids
        if not uses_ids:
            version = min(version, TOPIC_IDS_SINCE - 1)
        if version < SESSIONS_SINCE:
            session.lost()
        request = session.next_request(asked.by_key, uses_ids=uses_ids, changed=changed_keys)
        if not request.named and not request.forgotten and not asked.by_key:
            return None
        message = await self._message(request, version=version, uses_ids=uses_ids, max_wait_ms=max_wait_ms)
        try:
            response = await self.peers.ask(
                self.leader_id,
                message,
                version=version,
                timeout_s=self._timeout_s + max_wait_ms / 1000,
                channel=self.channel,
            )
        except BaseException:
            session.lost()
            raise
        return self._read(request, response, session, asked.names, uses_ids=uses_ids)

    async def _message(
        self, request: SessionRequest, *, version: int, uses_ids: bool, max_wait_ms: int
    ) -> FetchRequest:
        message = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=self.config.get(settings.REPLICA_FETCH_MIN_BYTES),
            max_bytes=self.config.get(settings.REPLICA_FETCH_RESPONSE_MAX_BYTES),
            session_id=request.session_id,
            session_epoch=request.epoch,
        )
        if version < REPLICA_STATE_SINCE:
            message.replica_id = self.broker_id
        else:
            message.replica_state = FetchRequest.ReplicaState(self.broker_id, self.own_epoch())
        topics: dict[str | bytes, FetchRequest.FetchTopic] = {}
        for count, ((topic, index), want) in enumerate(request.named.items()):
            if not count % PARTITIONS_PER_STEP:
                await self.budget.checkpoint()
            if topic not in topics:
                if uses_ids:
                    topics[topic] = FetchRequest.FetchTopic(topic_id=topic)  # type: ignore[arg-type]
                else:
                    topics[topic] = FetchRequest.FetchTopic(topic=topic)  # type: ignore[arg-type]
            topics[topic].partitions.append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=want.current_leader_epoch,
                    fetch_offset=want.fetch_offset,
                    last_fetched_epoch=want.last_fetched_epoch,
                    log_start_offset=want.log_start_offset,
                    partition_max_bytes=want.max_bytes,
                )
            )
        message.topics = list(topics.values())
        gone: dict[str | bytes, FetchRequest.ForgottenTopic] = {}
        for topic, index in request.forgotten:
            if topic not in gone:
                if uses_ids:
                    gone[topic] = FetchRequest.ForgottenTopic(topic_id=topic)  # type: ignore[arg-type]
                else:
                    gone[topic] = FetchRequest.ForgottenTopic(topic=topic)  # type: ignore[arg-type]
            gone[topic].partitions.append(index)
        message.forgotten_topics_data = list(gone.values())
        return message

    @staticmethod
    def _read(
        request: SessionRequest,
        response: FetchResponse,
        session: FetcherSession,
        names: Mapping[PartitionKey, TopicPartition],
        *,
        uses_ids: bool,
    ) -> FetchAnswer:
        answered: list[tuple[PartitionKey, PartitionData]] = []
        for topic in response.responses:
            name = topic.topic_id if uses_ids else topic.topic
            answered += [((name, data.partition_index), data) for data in topic.partitions]
        failure = session.answered(
            request,
            error_code=response.error_code,
            session_id=response.session_id,
            keys=[key for key, _ in answered],
        )
        if failure:
            return FetchAnswer([], failure)
        return FetchAnswer([(names[key], data) for key, data in answered if key in names])

    # --- OffsetForLeaderEpoch -------------------------------------------------------------------------------

    async def epoch_ends(self, asks: Iterable[Ask]) -> dict[TopicPartition, EpochAnswer]:
        """Return where each partition's last fetched epoch ends in the leader's log (KIP-101).

        That is unknown to brokers older than leader epochs (Apache Kafka 0.11).
        """
        try:
            await self.version_of(OFFSET_FOR_LEADER_EPOCH)
        except PeerUnavailableError as error:
            if not error.lacks_version:
                raise
            return {(ask.topic, ask.partition): UNKNOWN_END for ask in asks}
        topics: dict[str, OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
        for ask in asks:
            topic = topics.setdefault(
                ask.topic, OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=ask.topic)
            )
            topic.partitions.append(
                OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                    partition=ask.partition,
                    current_leader_epoch=ask.position.current_leader_epoch,
                    leader_epoch=ask.position.last_fetched_epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=self.broker_id, topics=list(topics.values()))
        response = await self.peers.ask(
            self.leader_id, request, timeout_s=self._timeout_s, channel=self.channel
        )
        return {
            (topic.topic, answer.partition): EpochAnswer(
                answer.error_code, EpochEnd(answer.leader_epoch, answer.end_offset)
            )
            for topic in response.topics
            for answer in topic.partitions
        }

    # --- ListOffsets ----------------------------------------------------------------------------------------

    async def log_ends(self, asks: Iterable[Ask]) -> dict[TopicPartition, tuple[OffsetAnswer, OffsetAnswer]]:
        """Return the first offset and the log end of the leader's log, by partition."""
        asks = list(asks)
        last = await self.offsets(asks, LATEST)
        first = await self.offsets(asks, EARLIEST)
        return {key: (first[key], last[key]) for key in first.keys() & last.keys()}

    async def offsets(self, asks: Iterable[Ask], timestamp: int) -> dict[TopicPartition, OffsetAnswer]:
        """Return the offset for a timestamp, mostly a special one, in the leader's log, by partition."""
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for ask in asks:
            topic = topics.setdefault(ask.topic, ListOffsetsRequest.ListOffsetsTopic(name=ask.topic))
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=ask.partition,
                    current_leader_epoch=ask.position.current_leader_epoch,
                    timestamp=timestamp,
                    max_num_offsets=1,
                )
            )
        request = ListOffsetsRequest(replica_id=self.broker_id, topics=list(topics.values()))
        version = await self.version_of(LIST_OFFSETS)
        response = await self.peers.ask(
            self.leader_id, request, version=version, timeout_s=self._timeout_s, channel=self.channel
        )
        answers = {}
        for topic_answer in response.topics:
            for answer in topic_answer.partitions:
                code, offset = answer.error_code, answer.offset
                if not version and not code:
                    if answer.old_style_offsets:
                        offset = answer.old_style_offsets[0]
                    else:
                        code = ErrorCode.UNKNOWN_SERVER_ERROR
                answers[topic_answer.name, answer.partition_index] = OffsetAnswer(
                    code, offset, answer.leader_epoch
                )
        return answers

    def close(self) -> None:
        """Close the connection."""
        self.peers.close(self.leader_id, self.channel)
