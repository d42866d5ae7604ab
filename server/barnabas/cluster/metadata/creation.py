"""New topics, from all kinds of requests. Pure.

The rule: all new topics are created by `create_topics`, and each topic passes `admit` there, the place for a limit.
Each is decided on as if those before it in the same request existed already, and is refused on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from barnabas.cluster.metadata import topic_decisions
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.metadata.internal_topics import SHAPES
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError, detached
from barnabas.wire.generated.errors import ErrorCode


class NewTopic(NamedTuple):
    """A topic to create; `assignments` has the replicas by partition, empty if only counts are given."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    assignments: Mapping[int, Sequence[int]] = MappingProxyType({})
    settings: Mapping[str, str] = MappingProxyType({})


def admit(image: ClusterImage, config: BrokerConfig, topic: NewTopic, created: Collection[str]) -> None:
    """Raise a RequestError if a limit forbids a valid topic. No limit exists, as in Kafka.

    `image` has the existing topics, `created` the names of those that the same request creates before this one. These call
    it, in a cluster at its controller:

    - CreateTopics, also with `validate_only`: from clients, `barnabas topics`, the console and the registry, from `seeds`
      (`tools/seeding/planting.py`), and from the other brokers of a cluster for what they may not create themselves
      (`ControllerTopicCreation`)
    - Metadata with `auto.create.topics.enable` (`LocalTopicCreation`)
    - StreamsGroupHeartbeat, for repartition and changelog topics of an application

    These do not: the broker's own internal topics (`internal_topics.SHAPES`), without which no group forms; topics with
    existing logs or znodes (`adoption`, `cluster/zookeeper`); new partitions of a topic (`add_partitions`).
    """


def create_topics(
    image: ClusterImage,
    config: BrokerConfig,
    topics: Sequence[NewTopic],
    refused: dict[str, RequestError],
    *,
    with_each_other: bool = True,
    charge: Callable[[str, int], None] | None = None,
) -> Iterator[Change | None]:
    """Yield the changes that create these topics; puts the errors of the others into `refused`, by name.

    `with_each_other` also refuses names that differ from another one's in dots for underscores only. `charge` gets the
    name and the number of partitions of each topic that can be created, and raises RequestError if a quota is exceeded.
    """
    names: set[str] = set()
    similar: dict[str, str] = {}
    for topic in topics:
        name = topic.name
        try:
            if name in names:
                raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
            changes = topic_decisions.create_topic(
                image, config, name, topic.topic_id, topic.partitions, topic.replication_factor,
                assignments=topic.assignments, settings=topic.settings,
            )  # fmt: skip
            if with_each_other and ("." in name or "_" in name):
                other = similar.setdefault(name.replace(".", "_"), name)
                if other != name:
                    raise topic_decisions.mixed_up(name, other)
            if name not in SHAPES:
                admit(image, config, topic, names)
            if charge is not None:
                charge(name, len(topic.assignments) or topic.partitions)
        except RequestError as error:
            refused[name] = detached(error)
            yield None
            continue
        names.add(name)
        yield from changes
