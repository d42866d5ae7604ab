"""Collects and builds the requests to brokers after a change. Pure.

The rule: a request has the state at the time when it is built, in the version of `inter.broker.protocol.version`, with
the epoch of the receiving broker. Each broker gets LeaderAndIsr first, then UpdateMetadata, then StopReplica.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from barnabas.cluster.controller.state import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_EPOCH,
    ControllerState,
)
from barnabas.cluster.controller.steps import GIVE_WAY, PIECE, Outgoing, Send, Steps
from barnabas.cluster.metadata import protocol_version as versions
from barnabas.cluster.metadata.protocol_version import ProtocolVersion
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from barnabas.wire.primitives import ZERO_UUID
from barnabas.wire.topic_partitions import TopicPartition

PARTITIONS_PER_REQUEST = 1_000
"""More are sent as several requests, one after the other."""
ANSWERED_BY_ID_SINCE = 5
"""The version of LeaderAndIsr."""
PLAINTEXT = "PLAINTEXT"

LeaderAndIsrState = LeaderAndIsrRequest.LeaderAndIsrPartitionState
MetadataState = UpdateMetadataRequest.UpdateMetadataPartitionState


def _version(now: ProtocolVersion, since: Sequence[tuple[ProtocolVersion, int]]) -> int:
    return next((version for first, version in since if now >= first), 0)


@dataclass(frozen=True, slots=True)
class RequestVersions:
    """The versions in which control requests are sent."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int

    @classmethod
    def of(cls, protocol: ProtocolVersion) -> RequestVersions:
        """Return the versions that Apache Kafka sends with this `inter.broker.protocol.version`."""
        v = versions
        return cls(
            _version(protocol, [
                (v.V3_4_IV0, 7), (v.V3_2_IV0, 6), (v.V2_8_IV1, 5), (v.V2_4_IV1, 4), (v.V2_4_IV0, 3), (v.V2_2_IV0, 2),
                (v.V1_0_IV0, 1),
            ]),
            _version(protocol, [
                (v.V3_4_IV0, 8), (v.V2_8_IV1, 7), (v.V2_4_IV1, 6), (v.V2_2_IV0, 5), (v.V1_0_IV0, 4), (v.V0_10_2_IV0, 3),
                (v.V0_10_0_IV1, 2), (v.V0_9_0, 1),
            ]),
            _version(protocol, [(v.V3_4_IV0, 4), (v.V2_6_IV0, 3), (v.V2_4_IV1, 2), (v.V2_2_IV0, 1)]),
        )  # fmt: skip


@dataclass(slots=True)
class _Stop:
    leader_epoch: int
    delete: bool


@dataclass(slots=True)
class Batch:
    """Collected requests. `send` builds and sends them, and empties the batch."""

    controller_id: int
    listener: str
    """The listener by which brokers speak with each other."""
    protocol: ProtocolVersion
    _leader_and_isr: dict[int, dict[TopicPartition, bool]] = field(default_factory=dict)
    _metadata_brokers: set[int] = field(default_factory=set)
    _metadata: dict[TopicPartition, None] = field(default_factory=dict)
    _stop: dict[int, dict[TopicPartition, _Stop]] = field(default_factory=dict)

    def lead_or_follow(
        self, state: ControllerState, brokers: Iterable[int], partition: TopicPartition, *, new: bool = False
    ) -> None:
        """Send a partition's state to these replicas, and to all brokers as metadata; `new`: the log may be created."""
        self.tell_replicas(brokers, partition, new=new)
        self.update_metadata(state.brokers, (partition,))

    def tell_replicas(self, brokers: Iterable[int], partition: TopicPartition, *, new: bool = False) -> None:
        """Send a partition's state to these replicas alone."""
        for broker in brokers:
            partitions = self._leader_and_isr.setdefault(broker, {})
            partitions[partition] = new or partitions.get(partition, False)

    def update_metadata(self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()) -> None:
        """Send the live brokers, and these partitions, to these brokers."""
        self._metadata_brokers.update(brokers)
        self._metadata.update(dict.fromkeys(partitions))

    def stop_replica(
        self, state: ControllerState, broker: int, partition: TopicPartition, *, delete: bool
    ) -> None:
        """Stop a replica on a broker, or delete it."""
        if state.is_deleting(partition[0]):
            epoch = EPOCH_DURING_DELETE
        else:
            partition_state = state.states.get(partition)
            epoch = partition_state.leader_epoch if partition_state is not None else NO_EPOCH
        before = self._stop.setdefault(broker, {}).get(partition)
        self._stop[broker][partition] = _Stop(epoch, delete or (before is not None and before.delete))

    # --- building -------------------------------------------------------------------------------------------

    def send(self, state: ControllerState) -> Steps[None]:
        """Build all requests to registered brokers, and send them."""
        leader_and_isr, self._leader_and_isr = self._leader_and_isr, {}
        brokers, self._metadata_brokers = self._metadata_brokers, set()
        metadata, self._metadata = self._metadata, {}
        stop, self._stop = self._stop, {}
        requests: list[Outgoing] = []
        requests += yield from self._leader_and_isr_requests(state, leader_and_isr)
        requests += yield from self._update_metadata_requests(state, brokers, list(metadata))
        for broker, partitions in sorted(stop.items()):
            if broker in state.brokers:
                requests += self._stop_replica_requests(state, broker, partitions)
        if requests:
            yield Send(requests)

    def _leader_and_isr_requests(
        self, state: ControllerState, by_broker: dict[int, dict[TopicPartition, bool]]
    ) -> Steps[list[Outgoing]]:
        newest = RequestVersions.of(self.protocol).leader_and_isr
        built: dict[tuple[TopicPartition, bool], LeaderAndIsrState] = {}
        requests = []
        for broker, partitions in sorted(by_broker.items()):
            if broker not in state.brokers:
                continue
            items: list[LeaderAndIsrState] = []
            for partition, new in partitions.items():
                item = built.get((partition, new))
                if item is None:
                    item = self._leader_and_isr_state(state, partition, new)
                    if item is None:
                        continue
                    built[partition, new] = item
                    if len(built) % PIECE == 0:
                        yield GIVE_WAY
                items.append(item)
            for version, part in _requests(state, items, newest):
                request = LeaderAndIsrRequest(
                    controller_id=self.controller_id,
                    controller_epoch=state.epoch,
                    broker_epoch=state.brokers[broker].epoch,
                    live_leaders=self._live_leaders(state, {state.leader for state in part}),
                )
                if version >= 2:
                    request.topic_states = [
                        LeaderAndIsrRequest.LeaderAndIsrTopicState(
                            topic_name=topic,
                            topic_id=state.topic_ids.get(topic, ZERO_UUID),
                            partition_states=of_topic,
                        )
                        for topic, of_topic in _by_topic(part)
                    ]
                else:
                    request.ungrouped_partition_states = part
                requests.append(Outgoing(broker, state.brokers[broker].epoch, version, request))
                yield GIVE_WAY
        return requests

    def _leader_and_isr_state(
        self, state: ControllerState, partition: TopicPartition, new: bool
    ) -> LeaderAndIsrState | None:
        now, assignment = state.states.get(partition), state.assignment(partition)
        if now is None or assignment is None:
            return None
        return LeaderAndIsrState(
            topic_name=partition[0],
            partition_index=partition[1],
            controller_epoch=now.controller_epoch,
            leader=now.leader,
            leader_epoch=now.leader_epoch,
            isr=list(now.isr),
            partition_epoch=now.version,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=new,
            leader_recovery_state=int(now.recovering and self.protocol >= versions.V3_2_IV0),
        )

    def _live_leaders(
        self, state: ControllerState, leaders: set[int]
    ) -> list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader]:
        live_leaders = []
        for broker_id in sorted(leaders & state.brokers.keys()):
            endpoint = state.brokers[broker_id].endpoint(self.listener)
            if endpoint is not None:
                live_leaders.append(
                    LeaderAndIsrRequest.LeaderAndIsrLiveLeader(
                        broker_id=broker_id, host_name=endpoint.host, port=endpoint.port
                    )
                )
        return live_leaders

    def _update_metadata_requests(
        self, state: ControllerState, brokers: set[int], partitions: list[TopicPartition]
    ) -> Steps[list[Outgoing]]:
        version = RequestVersions.of(self.protocol).update_metadata
        receivers = sorted(brokers & state.brokers.keys())
        if not receivers:
            return []
        items = []
        for number, partition in enumerate(partitions):
            item = self._metadata_state(state, partition)
            if item is not None:
                items.append(item)
            if number % PIECE == PIECE - 1:
                yield GIVE_WAY
        live = [self._live_broker(state, broker_id, version) for broker_id in sorted(state.brokers)]
        requests = []
        for start in range(0, len(items) or 1, PARTITIONS_PER_REQUEST):
            part = items[start : start + PARTITIONS_PER_REQUEST]
            topics = [
                UpdateMetadataRequest.UpdateMetadataTopicState(
                    topic_name=topic,
                    topic_id=state.topic_ids.get(topic, ZERO_UUID),
                    partition_states=of_topic,
                )
                for topic, of_topic in (_by_topic(part) if version >= 5 else ())
            ]
            for broker in receivers:
                request = UpdateMetadataRequest(
                    controller_id=self.controller_id,
                    controller_epoch=state.epoch,
                    broker_epoch=state.brokers[broker].epoch,
                    ungrouped_partition_states=part if version < 5 else [],
                    topic_states=topics,
                    live_brokers=live,
                )
                requests.append(Outgoing(broker, state.brokers[broker].epoch, version, request))
            yield GIVE_WAY
        return requests

    def _metadata_state(self, state: ControllerState, partition: TopicPartition) -> MetadataState | None:
        now, replicas = state.states.get(partition), state.replicas(partition)
        if now is None:
            return None
        deletion = state.deletions.get(partition[0])
        gone = deletion is not None and deletion.begun
        return MetadataState(
            topic_name=partition[0],
            partition_index=partition[1],
            controller_epoch=now.controller_epoch,
            leader=LEADER_DURING_DELETE if gone else now.leader,
            leader_epoch=0 if gone else now.leader_epoch,
            isr=list(now.isr),
            zk_version=0 if gone else now.version,
            replicas=list(replicas),
            offline_replicas=[replica for replica in replicas if not state.is_online(replica, partition)],
        )

    def _live_broker(
        self, state: ControllerState, broker_id: int, version: int
    ) -> UpdateMetadataRequest.UpdateMetadataBroker:
        broker = state.brokers[broker_id]
        item = UpdateMetadataRequest.UpdateMetadataBroker(id=broker_id, rack=broker.rack)
        if version == 0:
            plain = broker.endpoint(PLAINTEXT)
            if plain is not None:
                item.v0_host, item.v0_port = plain.host, plain.port
            return item
        item.endpoints = [
            UpdateMetadataRequest.UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=endpoint.security_protocol,
            )
            for endpoint in broker.endpoints
        ]
        return item

    def _stop_replica_requests(
        self, state: ControllerState, broker: int, partitions: dict[TopicPartition, _Stop]
    ) -> list[Outgoing]:
        version = RequestVersions.of(self.protocol).stop_replica
        if version >= 3:
            groups = [list(partitions.items())]
        else:  # one request deletes all that it names, or nothing
            groups = [
                [item for item in partitions.items() if item[1].delete is delete] for delete in (True, False)
            ]
        requests = []
        for group in groups:
            for start in range(0, len(group), PARTITIONS_PER_REQUEST):
                part = group[start : start + PARTITIONS_PER_REQUEST]
                request = StopReplicaRequest(
                    controller_id=self.controller_id,
                    controller_epoch=state.epoch,
                    broker_epoch=state.brokers[broker].epoch,
                )
                _fill_stop(request, part, version)
                requests.append(
                    Outgoing(
                        broker,
                        state.brokers[broker].epoch,
                        version,
                        request,
                        frozenset(partition for partition, stop in part if stop.delete),
                    )
                )
        return requests


def _requests(
    state: ControllerState, items: list[LeaderAndIsrState], newest: int
) -> Iterator[tuple[int, list[LeaderAndIsrState]]]:
    """Yield the content of each LeaderAndIsr, with its version.

    From v5 on a broker answers by topic id: topics without an id go into a version that answers by name.
    """
    groups: defaultdict[int, list[LeaderAndIsrState]] = defaultdict(list)
    for item in items:
        has_id = item.topic_name in state.topic_ids
        groups[newest if has_id else min(newest, ANSWERED_BY_ID_SINCE - 1)].append(item)
    for version, group in sorted(groups.items(), reverse=True):
        for start in range(0, len(group), PARTITIONS_PER_REQUEST):
            yield version, group[start : start + PARTITIONS_PER_REQUEST]


def _fill_stop(
    request: StopReplicaRequest, part: Sequence[tuple[TopicPartition, _Stop]], version: int
) -> None:
    request.delete_partitions = version < 3 and part[0][1].delete
    if version == 0:
        request.ungrouped_partitions = [
            StopReplicaRequest.StopReplicaPartitionV0(topic_name=topic, partition_index=index)
            for (topic, index), _ in part
        ]
        return
    for topic, items in groupby(sorted(part, key=lambda item: item[0]), key=lambda item: item[0][0]):
        if version < 3:
            request.topics.append(
                StopReplicaRequest.StopReplicaTopicV1(
                    name=topic, partition_indexes=[partition[1] for partition, _ in items]
                )
            )
        else:
            request.topic_states.append(
                StopReplicaRequest.StopReplicaTopicState(
                    topic_name=topic,
                    partition_states=[
                        StopReplicaRequest.StopReplicaPartitionState(
                            partition_index=partition[1],
                            leader_epoch=stop.leader_epoch,
                            delete_partition=stop.delete,
                        )
                        for partition, stop in items
                    ],
                )
            )


def _by_topic(items: Sequence[LeaderAndIsrState] | Sequence[MetadataState]) -> list[tuple[str, list]]:  # type: ignore[type-arg]
    topics: dict[str, list] = {}  # type: ignore[type-arg]
    for item in items:
        topics.setdefault(item.topic_name, []).append(item)
    return list(topics.items())
