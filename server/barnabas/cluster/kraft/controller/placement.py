"""Choice of brokers for the replicas of new partitions, like StripedReplicaPlacer of Kafka's controllers. Pure.

The rule: racks take turns, and within a rack its brokers, unfenced brokers first; each partition begins one rack and one
broker further. A first replica is never on a fenced broker. After as many partitions as there are unfenced brokers,
racks and brokers are shuffled, so that sets of replicas do not repeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from barnabas.cluster.kraft.controller.outcome import Entropy
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.cluster.kraft.values import Broker
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


class UsableBroker(NamedTuple):
    """A broker that can get replicas."""

    id: int
    rack: str | None
    is_fenced: bool


def usable_brokers(image: QuorumImage) -> tuple[UsableBroker, ...]:
    """Return the brokers that can get replicas: with a usable log dir, and not shutting down."""
    return tuple(
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for broker in image.brokers.values()
        if (broker.fenced or not broker.in_controlled_shutdown) and has_room(broker)
    )


def has_room(broker: Broker) -> bool:
    """Return whether a broker has a log dir that is not cordoned, as far as its registration tells."""
    if not broker.log_dirs or broker.cordoned_log_dirs is None:
        return True
    return not set(broker.log_dirs) <= set(broker.cordoned_log_dirs)


def place(
    brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, entropy: Entropy
) -> list[tuple[int, ...]]:
    """Return the replicas of each new partition. Raises INVALID_REPLICATION_FACTOR."""
    racks = _Racks(tuple(brokers), entropy)
    if replication_factor <= 0:
        raise _refused(replication_factor, "at least 1 is needed")
    if not racks.unfenced_count:
        raise _refused(replication_factor, "all brokers are fenced, or have cordoned all of their log dirs")
    if replication_factor > racks.count:
        raise _refused(
            replication_factor,
            f"{racks.count} brokers are registered that have not cordoned all of their log dirs",
        )
    return [racks.next(replication_factor) for _ in range(partitions)]


def _refused(replication_factor: int, why: str) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"replication factor {replication_factor} is not possible: {why}",
    )


class _Turns:
    """Brokers of a rack in rotation, each at most once in a round."""

    def __init__(self, broker_ids: Iterable[int], entropy: Entropy) -> None:
        self.broker_ids = sorted(broker_ids)
        self._begin = entropy.below(len(self.broker_ids)) if self.broker_ids else 0
        self._taken = 0
        self._round = 0

    def next(self, number: int) -> int | None:
        """Return the next broker of a round, None when all have had their turn."""
        if not self.broker_ids:
            return None
        if self._round != number:
            self._round, self._taken = number, 0
            self._begin = (self._begin + 1) % len(self.broker_ids)
        if self._taken == len(self.broker_ids):
            return None
        broker_id = self.broker_ids[(self._begin + self._taken) % len(self.broker_ids)]
        self._taken += 1
        return broker_id


class _Rack(NamedTuple):
    unfenced: _Turns
    fenced: _Turns

    def next(self, number: int) -> int | None:
        broker_id = self.unfenced.next(number)
        return self.fenced.next(number) if broker_id is None else broker_id


class _Racks:
    """Racks in rotation."""

    def __init__(self, brokers: tuple[UsableBroker, ...], entropy: Entropy) -> None:
        self.count = len(brokers)
        self.unfenced_count = sum(not broker.is_fenced for broker in brokers)
        self._entropy = entropy
        names = sorted({broker.rack for broker in brokers}, key=lambda rack: (rack is not None, rack or ""))
        self._racks = [
            _Rack(*(
                _Turns((each.id for each in brokers if each.rack == name and each.is_fenced is is_fenced), entropy)
                for is_fenced in (False, True)
            ))
            for name in names
        ]  # fmt: skip
        self._begin = entropy.below(len(self._racks)) if self._racks else 0
        self._round = 0

    def next(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of the next partition."""
        if self._round and self.unfenced_count > 1 and self._round % self.unfenced_count == 0:
            self._shuffle()
        self._begin %= len(self._racks)
        count = len(self._racks)
        first, leader = next(
            (index, broker_id)
            for index in ((self._begin + step) % count for step in range(count))
            if (broker_id := self._racks[index].unfenced.next(self._round)) is not None
        )
        replicas = [leader]
        has_led: int | None = first  # skipped once: this rack has had its turn
        index = self._begin
        while len(replicas) < replication_factor:
            if index == has_led:
                has_led = None
            elif (broker_id := self._racks[index].next(self._round)) is not None:
                replicas.append(broker_id)
            index = (index + 1) % count
        self._round += 1
        self._begin += 1
        return tuple(replicas)

    def _shuffle(self) -> None:
        shuffle(self._racks, self._entropy)
        for rack in self._racks:
            shuffle(rack.unfenced.broker_ids, self._entropy)
            shuffle(rack.fenced.broker_ids, self._entropy)


def shuffle(values: list[Any], entropy: Entropy) -> None:
    """Shuffle a list in place."""
    for last in range(len(values) - 1, 0, -1):
        other = entropy.below(last + 1)
        values[last], values[other] = values[other], values[last]
