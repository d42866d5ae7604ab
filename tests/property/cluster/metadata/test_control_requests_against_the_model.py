"""Random control requests, one after the other: what a broker knows then is what a model by Kafka's rules says.

The model keeps topics by name with plain lists of partitions. It knows what LeaderAndIsr, UpdateMetadata and
StopReplica mean (KIP-380, KIP-455, KIP-516, KIP-570), and nothing of images and changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from barnabas.cluster.metadata.control_requests import (
    Learned,
    of_leader_and_isr,
    of_stop_replica,
    of_update_metadata,
)
from barnabas.cluster.metadata.image import NO_TOPIC_ID, ClusterImage
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from tests.support.effort import examples

HERE, BROKER_EPOCH = 2, 77
IDS = {"t": (b"t" * 16, b"T" * 16, NO_TOPIC_ID), "u": (b"u" * 16, NO_TOPIC_ID, b"u" * 16)}
Key = tuple[str, int]
Translate = Callable[[ClusterImage], Learned]
"""One request, on what is known."""


@dataclass(frozen=True)
class Part:
    """A partition; nothing is known of it to begin with."""

    leader: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    epochs: tuple[int, int] = (-1, -1)
    """Of the leader and of the partition."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass
class Model:
    """Knowledge of a broker; and of one request, what it says of partitions."""

    topics: dict[str, tuple[bytes, list[Part]]] = field(default_factory=dict)
    brokers: dict[int, tuple[str | None, dict[str, tuple[str, int]], int]] = field(default_factory=dict)
    controller: tuple[int, int] = (-1, 0)
    errors: dict[Key, str] = field(default_factory=dict)
    new: list[Key] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    deleted: list[tuple[Key, bytes]] = field(default_factory=list)

    def begin(self, controller: tuple[int, int]) -> None:
        self.controller = controller
        self.errors, self.new, self.unnamed, self.deleted = {}, [], [], []

    def is_other(self, name: str, topic_id: bytes) -> bool:
        own_id = self.topics.get(name, (NO_TOPIC_ID, []))[0]
        return NO_TOPIC_ID not in (own_id, topic_id) and own_id != topic_id

    def part(self, name: str, index: int) -> Part | None:
        parts = self.topics.get(name, (b"", []))[1]
        return parts[index] if index < len(parts) else None

    def learn(self, name: str, topic_id: bytes, told: dict[int, Part], *, afresh: bool) -> None:
        if not told:
            return
        known_id, parts = (NO_TOPIC_ID, []) if afresh else self.topics.get(name, (NO_TOPIC_ID, []))
        parts = [*parts, *[Part()] * (max(told) + 1 - len(parts))]
        for index, part in told.items():
            parts[index] = part
        self.topics[name] = (topic_id if topic_id != NO_TOPIC_ID else known_id), parts

    def leader_and_isr(self, name: str, topic_id: bytes, states: dict[int, tuple[Part, bool]]) -> None:
        if topic_id == NO_TOPIC_ID:
            self.unnamed.append(name)
        is_other = self.is_other(name, topic_id)
        afresh = is_other and any(new for _, new in states.values())
        told = {}
        for index, (part, new) in states.items():
            before = None if afresh else self.part(name, index)
            if is_other and not afresh:
                self.errors[name, index] = "INCONSISTENT_TOPIC_ID"
            elif HERE not in part.replicas:
                self.errors[name, index] = "UNKNOWN_TOPIC_OR_PARTITION"
            elif before is not None and part.epochs[0] < before.epochs[0]:
                self.errors[name, index] = "STALE_CONTROLLER_EPOCH"
            elif before is None or part.epochs >= before.epochs:
                if new:
                    self.new.append((name, index))
                told[index] = replace(part, offline=before.offline if before is not None else ())
        self.learn(name, topic_id, told, afresh=afresh)

    def metadata(self, name: str, topic_id: bytes, states: dict[int, Part]) -> None:
        if any(part.leader == -2 for part in states.values()):
            self.deleted += [((name, index), topic_id) for index in states]
            if not self.is_other(name, topic_id):
                self.topics.pop(name, None)
            return
        afresh, told = self.is_other(name, topic_id), {}
        for index, part in states.items():
            before = None if afresh else self.part(name, index)
            if before is None or part.epochs >= before.epochs:
                moves = before if before is not None and before.replicas == part.replicas else Part()
                told[index] = replace(part, adding=moves.adding, removing=moves.removing)
        self.learn(name, topic_id, told, afresh=afresh)

    def stop(self, key: Key, epoch: int, *, deletes: bool) -> None:
        part = self.part(*key)
        if part is None or HERE not in part.replicas:
            return
        if 0 <= epoch < part.epochs[0]:
            self.errors[key] = "FENCED_LEADER_EPOCH"
        elif deletes:
            without = [tuple(id_ for id_ in some if id_ != HERE) for some in (part.replicas, part.isr)]
            leader = -1 if part.leader == HERE else part.leader
            self.topics[key[0]][1][key[1]] = replace(part, leader=leader, replicas=without[0], isr=without[1])


class Both:
    """A broker's image and the model, in the same state."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.image = ClusterImage("c")
        self.model = Model()

    def _states(self) -> dict[str, tuple[bytes, dict[int, Part]]]:
        random, by_name = self.random, {}
        for name in random.sample(("t", "u"), random.choice((1, 1, 2))):
            states = {}
            for index in random.sample(range(4), random.randint(1, 3)):
                replicas = tuple(random.sample((1, 2, 3), random.choice((1, 2, 3, 3))))
                isr = tuple(id_ for id_ in replicas if random.random() < 0.7)
                epochs = random.randint(0, 3), random.randint(0, 3)
                some = [tuple(id_ for id_ in replicas if random.random() < 0.2) for _ in range(3)]
                states[index] = Part(random.choice((*replicas, -1)), replicas, isr, epochs, *some)
            by_name[name] = random.choice((IDS[name][0], *IDS[name])), states
        return by_name

    def _controller(self) -> dict[str, int]:
        fields = {"controller_id": self.random.randint(1, 2), "controller_epoch": self.random.randint(1, 2)}
        self.model.begin((fields["controller_id"], fields["controller_epoch"]))
        return fields

    def leader_and_isr(self) -> Translate:
        request = LeaderAndIsrRequest(**self._controller())
        is_grouped = self.random.random() < 0.7
        for name, (topic_id, states) in self._states().items():
            items, told = [], {}
            for index, part in states.items():
                new = self.random.random() < 0.3
                told[index] = replace(part, offline=()), new
                items.append(LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                    topic_name=name, partition_index=index, controller_epoch=9, leader=part.leader,
                    leader_epoch=part.epochs[0], isr=list(part.isr), partition_epoch=part.epochs[1],
                    replicas=list(part.replicas), adding_replicas=list(part.adding),
                    removing_replicas=list(part.removing), is_new=new,
                ))  # fmt: skip
            if is_grouped:
                topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(name, topic_id, items)
                request.topic_states.append(topic)
            else:
                request.ungrouped_partition_states += items
            self.model.leader_and_isr(name, topic_id if is_grouped else NO_TOPIC_ID, told)
        return lambda image: of_leader_and_isr(image, request, HERE)

    def metadata(self) -> Translate:
        random = self.random
        request = UpdateMetadataRequest(**self._controller())
        live = {id_: random.randint(1, 2) for id_ in (1, 2, 3) if random.random() < 0.6}
        for id_, port in live.items():
            endpoint = UpdateMetadataRequest.UpdateMetadataEndpoint(port=port, host="h", listener="in")
            broker = UpdateMetadataRequest.UpdateMetadataBroker(
                id=id_, endpoints=[endpoint], rack=f"r{id_ % 2 or ''}"
            )
            request.live_brokers.append(broker)
        if live:
            self.model.brokers = {
                id_: (f"r{id_ % 2 or ''}", {"IN": ("h", port)}, BROKER_EPOCH if id_ == HERE else -1)
                for id_, port in live.items()
            }
        is_grouped = random.random() < 0.7
        for name, (topic_id, states) in self._states().items():
            if random.random() < 0.2:
                index = random.choice(list(states))
                states[index] = replace(states[index], leader=-2)
            items = [
                UpdateMetadataRequest.UpdateMetadataPartitionState(
                    topic_name=name, partition_index=index, controller_epoch=9, leader=part.leader,
                    leader_epoch=part.epochs[0], isr=list(part.isr), zk_version=part.epochs[1],
                    replicas=list(part.replicas), offline_replicas=list(part.offline),
                )
                for index, part in states.items()
            ]  # fmt: skip
            if is_grouped:
                request.topic_states.append(
                    UpdateMetadataRequest.UpdateMetadataTopicState(name, topic_id, items)
                )
            else:
                request.ungrouped_partition_states += items
            self.model.metadata(name, topic_id if is_grouped else NO_TOPIC_ID, states)
        return lambda image: of_update_metadata(image, request, HERE, BROKER_EPOCH)

    def stop(self) -> Translate:
        request, random = StopReplicaRequest(**self._controller()), self.random
        version, deletes = random.choice((0, 1, 3)), random.random() < 0.7
        request.delete_partitions = deletes
        for name in ("t", "u"):
            for index in random.sample(range(5), random.randint(0, 2)):
                epoch = random.randint(-2, 4) if version == 3 else -1
                if version == 0:
                    request.ungrouped_partitions.append(
                        StopReplicaRequest.StopReplicaPartitionV0(name, index)
                    )
                elif version == 1:
                    request.topics.append(StopReplicaRequest.StopReplicaTopicV1(name, [index]))
                else:
                    part = StopReplicaRequest.StopReplicaPartitionState(index, epoch, deletes)
                    request.topic_states.append(StopReplicaRequest.StopReplicaTopicState(name, [part]))
                self.model.stop((name, index), epoch, deletes=deletes)
        return lambda image: of_stop_replica(image, request, HERE)

    def step(self) -> None:
        kind = self.random.choice((self.leader_and_isr, self.metadata, self.metadata, self.stop))
        translate = kind()
        learned = translate(self.image)
        self.image = self.image.apply(learned.changes)
        model = self.model
        assert {key: error.name for key, error in learned.errors.items()} == model.errors
        assert (learned.new, learned.unnamed, learned.deleted) == (model.new, model.unnamed, model.deleted)
        assert (self.image.controller_id, self.image.controller_epoch) == model.controller
        assert {
            node.id: (node.rack, dict(node.endpoints), node.epoch) for node in self.image.brokers.values()
        } == model.brokers
        topics = self.image.topics.values()
        assert {row.name: (row.id, list(map(_part, row.partitions))) for row in topics} == model.topics
        assert translate(self.image).changes == [], "what is known is no change"


def _part(info: Any) -> Part:
    return Part(
        info.leader, info.replicas, info.isr, (info.leader_epoch, info.partition_epoch),
        info.adding, info.removing, info.offline,
    )  # fmt: skip


@pytest.mark.parametrize("block", range(5))
def test_a_broker_learns_what_control_requests_say(block: int) -> None:
    for number in range(examples(60)):
        both = Both(Random(f"{block} {number}"))
        for _ in range(8):
            try:
                both.step()
            except Exception as error:
                error.add_note(f"seed {block} {number}")
                raise
