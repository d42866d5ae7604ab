"""Many new topics in one change. Pure.

The rule: each topic is decided on as if those before it were there already, and refused on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from barnabas.cluster.metadata import topic_decisions as controller
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError, detached
from barnabas.wire.generated.errors import ErrorCode


class NewTopic(NamedTuple):
    """A topic that is asked for; `assignments` has the replicas by partition, empty where only counts are given."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    assignments: Mapping[int, Sequence[int]] = MappingProxyType({})
    settings: Mapping[str, str] = MappingProxyType({})


def create_topics(
    image: ClusterImage,
    config: BrokerConfig,
    topics: Sequence[NewTopic],
    refused: dict[str, RequestError],
    *,
    with_each_other: bool = True,
    charge: Callable[[str, int], None] | None = None,
) -> Iterator[Change | None]:
    """Yield the changes that make these topics; puts into `refused` why one cannot be made, by name.

    `with_each_other` also refuses names that differ from another one's in dots for underscores only. `charge` gets the
    name and the number of partitions of each topic that can be made, and raises RequestError where a quota is exceeded.
    """
    names: set[str] = set()
    similar: dict[str, str] = {}
    for topic in topics:
        name = topic.name
        try:
            if name in names:
                raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
            changes = controller.create_topic(
                image, config, name, topic.topic_id, topic.partitions, topic.replication_factor,
                assignments=topic.assignments, settings=topic.settings,
            )  # fmt: skip
            if with_each_other and ("." in name or "_" in name):
                other = similar.setdefault(name.replace(".", "_"), name)
                if other != name:
                    raise controller.mixed_up(name, other)
            if charge is not None:
                charge(name, len(topic.assignments) or topic.partitions)
        except RequestError as error:
            refused[name] = detached(error)
            yield None
            continue
        names.add(name)
        yield from changes
