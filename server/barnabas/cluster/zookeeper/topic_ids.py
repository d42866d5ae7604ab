"""Topic ids that are lost in ZooKeeper, and written back by brokers that know them.

The rule: only missing ids are written. Tools and controllers before Kafka 2.8 write a topic's znode without its id
(KIP-516); with a new id it would be another topic, and its logs would belong to none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.registration import until_answered
from barnabas.cluster.zookeeper.session import BadVersionError, NoNodeError, ZooKeeper
from barnabas.wire.ids import uuid_text

log = logging.getLogger(__name__)


async def restore_topic_ids(zookeeper: ZooKeeper, topic_ids: Mapping[str, bytes]) -> None:
    """Write these ids into the znodes of topics that lack an id. Raises ZooKeeperError."""
    for topic, topic_id in topic_ids.items():
        while not await _is_restored(zookeeper, topic, topic_id):
            pass  # another writer was quicker


async def _is_restored(zookeeper: ZooKeeper, topic: str, topic_id: bytes) -> bool:
    """Write a topic's id unless it has one; False if the znode has changed meanwhile."""
    path = znodes.topic_path(topic)
    try:
        data, stat = await until_answered(zookeeper, lambda: zookeeper.get(path))
        assignment = znodes.decode_topic(topic, data)
        if assignment.topic_id is not None:
            return True
        written = znodes.encode_topic(replace(assignment, topic_id=topic_id))
        await until_answered(zookeeper, lambda: zookeeper.set(path, written, stat.version))
    except NoNodeError:
        return True
    except BadVersionError:
        return False
    except ZnodeError as error:
        log.error("the id of topic %s cannot be written back: %s", topic, error)
        return True
    tell_restored(topic, topic_id)
    return True


def tell_restored(topic: str, topic_id: bytes) -> None:
    """Log that an id was written back: a warning, as nothing is lost and nothing has to be done."""
    log.warning(
        "topic %s had lost its topic_id in ZooKeeper: %s was rewritten by a tool or a controller before Kafka 2.8; "
        "%s was written back, and its logs go on",
        topic, znodes.topic_path(topic), uuid_text(topic_id),
    )  # fmt: skip
