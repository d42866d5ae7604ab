"""Assembly of the coordinators, for a broker with or without a cluster.

The rule: a part that sends requests to other brokers wraps the local one, with the same port.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.group_settings import group_settings
from barnabas.cluster.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from barnabas.cluster.metadata.protocol_version import protocol_of, record_versions
from barnabas.cluster.metadata.topic_creation import LocalTopicCreation
from barnabas.config import broker as settings
from barnabas.config.features import finalized
from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.runtime.internal_topics import InternalTopic
from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas.coordinators.transactions.markers import LocalMarkers
from barnabas.coordinators.transactions.producer_ids import LocalProducerIds, note_block
from barnabas.coordinators.transactions.settings import TransactionSettings
from barnabas.coordinators.transactions.verification import LocalVerifier

if TYPE_CHECKING:
    from barnabas.broker.base_parts import BaseParts
    from barnabas.broker.storage_parts import Storage
    from barnabas.cluster.metadata.store import Subscriber
    from barnabas.cluster.metadata.topic_creation import TopicCreation
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.share.coordinator import ShareStateCoordinator
    from barnabas.coordinators.share.ports import HighWatermarks, LetterWriter, ShareStatePort
    from barnabas.coordinators.transactions.ports import MarkerWriter, ProducerIds, TransactionVerifier
    from barnabas.environment import Environment
    from barnabas.serving.step_runner import StepRunner


class Ports(NamedTuple):
    """Ports to this broker or others; `runs` are their tasks, `subscribers` follow the image."""

    topic_creation: TopicCreation
    producer_ids: ProducerIds
    runs: list[Callable[[], Awaitable[None]]]
    subscribers: list[Subscriber]


class CoordinatorParts(NamedTuple):
    """Coordinators of groups and transactions, with their parts."""

    ports: Ports
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: LocalMarkers
    verifier: TransactionVerifier
    internal: Callable[[str], InternalTopic]
    """The journal on an internal topic."""
    share_state: Callable[[ShareStateCoordinator], ShareStatePort] | None
    """Puts what asks other brokers around the share coordinator of this one."""
    high_watermarks: Callable[[], HighWatermarks]
    """Creates the source of high watermarks for share groups."""
    letter_writer: Callable[[StepRunner], LetterWriter]
    """Creates the writer to dead letter queues."""


def coordinator_parts(base: BaseParts) -> CoordinatorParts:
    """Make the coordinators of groups and transactions."""
    config, release, environment, budget, storage, _ = base
    metadata, replicas, now_ms = storage.metadata, storage.replicas, environment.wall_clock_ms
    steady_ms = environment.monotonic_ms
    ports = _ports(config, environment, storage)

    def internal(topic: str) -> InternalTopic:
        return InternalTopic(topic, metadata=metadata, replicas=replicas, creation=ports.topic_creation)

    versions = release.record_versions
    if storage.peers is not None and storage.controllers is None:
        versions = record_versions(protocol_of(config), versions)
    groups = GroupCoordinator(
        internal(OFFSETS_TOPIC),
        group_settings(config, versions),
        now_ms,
        metadata,
        steady_ms=steady_ms,
        checkpoint=budget.checkpoint,
        threads=environment.threads,
    )
    local_markers = LocalMarkers(replicas, groups, now_ms)
    transactions = TransactionCoordinator(
        internal(TRANSACTION_TOPIC),
        TransactionSettings(
            timeout_ms_max=config.get(settings.TRANSACTION_MAX_TIMEOUT_MS),
            id_expiration_ms=config.get(settings.TRANSACTIONAL_ID_EXPIRATION_MS),
            record_version=lambda: release.record_versions.of_transactions(
                finalized(release.features, metadata.image.features)
            ),
        ),
        now_ms,
        steady_ms=steady_ms,
        new_producer_id=ports.producer_ids.next,
        markers=_markers(config, storage, local_markers, ports),
        checkpoint=budget.checkpoint,
        threads=environment.threads,
    )
    verifier = _verifier(config, storage, LocalVerifier(transactions), ports)
    return CoordinatorParts(
        ports,
        groups,
        transactions,
        local_markers,
        verifier,
        internal,
        _share_state(config, storage),
        partial(_high_watermarks, config, storage),
        partial(_letter_writer, storage, now_ms),
    )


def _ports(config: BrokerConfig, environment: Environment, storage: Storage) -> Ports:
    metadata, broker_id, peers = storage.metadata, storage.broker_id, storage.peers
    local = LocalTopicCreation(config, metadata, environment.entropy)
    if peers is None:
        return Ports(local, LocalProducerIds(metadata), [], [])
    from barnabas.cluster.metadata.controller_creation import ControllerTopicCreation
    from barnabas.coordinators.transactions.controller_producer_ids import ControllerProducerIds

    def own_epoch() -> int:
        return metadata.image.broker_epoch(broker_id)

    controllers = storage.controllers
    creation = ControllerTopicCreation(
        config,
        metadata,
        broker_id,
        local=local if controllers is None else None,
        peers=controllers or peers,
    )
    producer_ids = ControllerProducerIds(
        broker_id, own_epoch, controllers or peers, lambda: note_block(metadata)
    )
    return Ports(creation, producer_ids, [creation.run, producer_ids.run], [creation])


def _markers(config: BrokerConfig, storage: Storage, local: LocalMarkers, ports: Ports) -> MarkerWriter:
    if storage.peers is None:
        return local
    from barnabas.coordinators.transactions.cluster_markers import ClusterMarkers

    markers = ClusterMarkers(
        storage.metadata,
        storage.broker_id,
        local=local,
        peers=storage.peers,
        timeout_ms=config.get(settings.REQUEST_TIMEOUT_MS),
    )
    ports.runs.append(markers.run)
    return markers


def _verifier(
    config: BrokerConfig, storage: Storage, local: LocalVerifier, ports: Ports
) -> TransactionVerifier:
    if storage.peers is None:
        return local
    from barnabas.coordinators.transactions.cluster_verification import ClusterVerifier

    verifier = ClusterVerifier(
        storage.metadata,
        storage.broker_id,
        local=local,
        peers=storage.peers,
        timeout_ms=config.get(settings.REQUEST_TIMEOUT_MS),
    )
    ports.runs.append(verifier.run)
    return verifier


def _share_state(
    config: BrokerConfig, storage: Storage
) -> Callable[[ShareStateCoordinator], ShareStatePort] | None:
    peers = storage.peers
    if peers is None:
        return None

    def elsewhere(local: ShareStateCoordinator) -> ShareStatePort:
        from barnabas.coordinators.share.cluster_state import ClusterShareState

        return ClusterShareState(
            storage.metadata,
            storage.broker_id,
            local=local,
            peers=peers,
            timeout_ms=config.get(settings.REQUEST_TIMEOUT_MS),
        )

    return elsewhere


def _high_watermarks(config: BrokerConfig, storage: Storage) -> HighWatermarks:
    from barnabas.coordinators.share.high_watermarks import LocalHighWatermarks  # of share groups alone

    local = LocalHighWatermarks(storage.replicas)
    if storage.peers is None:
        return local
    from barnabas.coordinators.share.cluster_high_watermarks import ClusterHighWatermarks

    return ClusterHighWatermarks(
        storage.metadata,
        storage.broker_id,
        local=local,
        peers=storage.peers,
        timeout_ms=config.get(settings.REQUEST_TIMEOUT_MS),
    )


def _letter_writer(storage: Storage, now_ms: Callable[[], int], step_runner: StepRunner) -> LetterWriter:
    from barnabas.coordinators.share.letter_writers import ClusterLetterWriter, LocalLetterWriter

    local = LocalLetterWriter(storage.replicas, step_runner, now_ms)
    if storage.peers is None:
        return local
    return ClusterLetterWriter(storage.metadata, storage.broker_id, local, storage.peers)
