"""Metrics of a controller and of its part in the quorum, under Kafka's names.

The rule: each controller exports the cluster of its committed image; work is counted by the controller that does it.
`kafka.controller:type=KafkaController,name=FencedBrokerCount` is `kafka_controller_kafkacontroller_fencedbrokercount`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.cluster.kraft.values import NO_LEADER
from barnabas.metrics.families import SUMMARY
from barnabas.metrics.slices import in_slices
from barnabas.metrics.telemetry.payload import Distribution

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cluster.kraft.controller.active import ActiveController
    from barnabas.cluster.kraft.raft.node import RaftNode
    from barnabas.metrics.families import Families
    from barnabas.serving.loop_budget import LoopBudget

CONTROLLER = "kafka_controller_kafkacontroller_"
EVENTS = "kafka_controller_controllereventmanager_"
RAFT = "kafka_server_raft_metrics_"
LOADER = "kafka_server_metadataloader_"
_FENCED, _SHUTTING_DOWN, _ACTIVE = 10, 20, 30
"""Kafka's numbers of a broker's state (KIP-1131)."""


@dataclass(frozen=True, slots=True)
class ControllerParts:
    """The parts of a controller that metrics are about."""

    voter: RaftNode
    active: ActiveController
    budget: LoopBudget
    clock_ms: Callable[[], int]


async def controller_families(families: Families, parts: ControllerParts) -> None:
    """Add the metrics of a controller."""
    await _cluster(families, parts)
    _work(families, parts)
    _quorum(families, parts.voter)


async def _cluster(families: Families, parts: ControllerParts) -> None:
    image = parts.voter.image
    offline = imbalanced = count = 0
    async for partitions in in_slices(image.partitions.values(), parts.budget):
        count += len(partitions)
        offline += sum(partition.leader == NO_LEADER for partition in partitions)
        imbalanced += sum(partition.leader != partition.replicas[0] for partition in partitions)
    states = {
        broker.id: _FENCED if broker.fenced else _SHUTTING_DOWN if broker.in_controlled_shutdown else _ACTIVE
        for broker in image.brokers.values()
    }
    numbers = list(states.values())
    for name, text, value in (
        ("activecontrollercount", "Active controllers here: 1 or 0", parts.active.is_active),
        ("activebrokercount", "Brokers that are not fenced", len(numbers) - numbers.count(_FENCED)),
        ("fencedbrokercount", "Brokers that are registered, and fenced", numbers.count(_FENCED)),
        ("controlledshutdownbrokercount", "Brokers that are shutting down", numbers.count(_SHUTTING_DOWN)),
        ("globaltopiccount", "Topics of the cluster", len(image.topics)),
        ("globalpartitioncount", "Partitions of the cluster", count),
        ("offlinepartitionscount", "Partitions without a leader", offline),
        ("preferredreplicaimbalancecount", "Partitions not led by their first replica", imbalanced),
    ):
        families.gauge(f"{CONTROLLER}{name}", text, value)
    for broker_id, state in states.items():
        text = "State of a broker: 10 fenced, 20 shutting down, 30 active"
        families.gauge(f"{CONTROLLER}brokerregistrationstate", text, state, broker_id=broker_id)


def _work(families: Families, parts: ControllerParts) -> None:
    voter, counts = parts.voter, parts.active.counts
    applied = voter.image.position
    lag_ms = 0 if parts.active.is_active or applied.offset < 0 else parts.clock_ms() - applied.timestamp_ms
    for name, text, value in (
        ("lastappliedrecordoffset", "Last offset that the image has", applied.offset),
        ("lastappliedrecordtimestamp", "Its time in ms", applied.timestamp_ms),
        ("lastappliedrecordlagms", "Time since then in ms; 0 for the active controller", max(lag_ms, 0)),
        ("lastcommittedrecordoffset", "Last offset that is committed", max(voter.high_watermark - 1, -1)),
    ):
        families.gauge(f"{CONTROLLER}{name}", text, value)
    for name, text, value in (
        ("metadataerrorcount", "Faults of the controller's own work", counts.errors),
        ("newactivecontrollerscount", "Leaders of the quorum that this node has learned of", voter.counts.leaders),
        ("timedoutbrokerheartbeatcount", "Heartbeats not answered in time", counts.heartbeats_timed_out),
        ("eventqueueoperationsstartedcount", "Requests and periodic work begun", counts.started),
        ("eventqueueoperationstimedoutcount", "Requests not answered in time", counts.timed_out),
    ):  # fmt: skip
        families.gauge(f"{CONTROLLER}{name}", text, value)
    for name, text, seconds in (
        ("eventqueuetimems", "Milliseconds that requests waited for those before them", counts.queue_seconds),
        ("eventqueueprocessingtimems", "Milliseconds that requests and periodic work took", counts.seconds),
    ):
        families.get(f"{EVENTS}{name}", SUMMARY, text).add(Distribution(counts.started, seconds * 1000))


def _quorum(families: Families, voter: RaftNode) -> None:
    replica, log, counts = voter.replica, voter.replica.log, voter.counts
    leading = replica.leading
    families.gauge(f"{RAFT}current_state", "Role of this node in the quorum", 1, state=replica.role.value)
    for name, text, value in (
        ("current_leader", "Node that leads, -1 if none is known", voter.leader_id),
        ("current_vote", "Node that has this node's vote of the epoch, -1 if none has", log.vote.id),
        ("current_epoch", "Epoch of the quorum", voter.epoch),
        ("high_watermark", "Offset up to which the log is committed, -1 if that is not known", voter.high_watermark),
        ("log_end_offset", "Offset after the last record of this node's log", log.end_offset),
        ("log_end_epoch", "Epoch of that record", log.last_epoch),
        ("number_of_voters", "Voters of the quorum", len(replica.voters)),
        ("uncommitted_voter_change", "Changes of the voters under way, as the leader knows",
         leading is not None and leading.change is not None),
    ):  # fmt: skip
        families.gauge(f"{RAFT}{name}", text, value)
    if leading is not None:
        observers = leading.observers(replica.voters, voter.now_ms())
        families.gauge(
            f"{RAFT}number_of_observers", "Nodes that follow this leader without a vote", len(observers)
        )
    families.counter(
        f"{RAFT}append_records", "Records that this node has appended as the leader", counts.appended
    )
    families.counter(f"{RAFT}fetch_records", "Records that this node has fetched", counts.fetched)
    for name, text, number, seconds in (
        ("commit", "this leader's batches are committed", counts.commits, counts.commit_seconds),
        (
            "election",
            "elections that this node asks for have a leader",
            counts.elections,
            counts.election_seconds,
        ),
    ):
        latency = families.get(f"{RAFT}{name}_latency_ms", SUMMARY, f"Milliseconds until {text}")
        latency.add(Distribution(number, seconds * 1000))
    families.gauge(
        f"{LOADER}currentmetadataversion", "Level of metadata.version", voter.image.metadata_version
    )
    families.gauge(f"{LOADER}currentcontrollerid", "Node that leads, -1 if none is known", voter.leader_id)
