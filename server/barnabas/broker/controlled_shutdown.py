"""Controlled shutdown of a broker in a cluster: the controller moves its leaders away, so that clients see no error.

The rule: the broker serves meanwhile, and stops in the end whatever the controller answers. While ZooKeeper is
unreachable no broker can take over partitions, so the broker does not wait for an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.client.errors import describe
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.config import broker as settings
from barnabas.wire.generated.controlled_shutdown import ControlledShutdownRequest
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.image import ClusterImage
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.config.loading import BrokerConfig

log = logging.getLogger(__name__)

VERSION_MAX = 3


async def shut_down_controlled(
    config: BrokerConfig,
    broker_id: int,
    broker_epoch: int,
    peers: Peers,
    image: Callable[[], ClusterImage],
    can_change: Callable[[], bool],
) -> bool:
    """Request the controller to move leaders away until this broker leads no partition; returns whether that is so.

    `can_change`: whether the cluster can be changed now, as far as this broker knows. Sends
    `controlled.shutdown.max.retries` requests, with `controlled.shutdown.retry.backoff.ms` in between, as Kafka does; none
    if `controlled.shutdown.enable` is false.
    """
    if not config.get(settings.CONTROLLED_SHUTDOWN_ENABLE):
        return False
    backoff_s = config.get(settings.CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS) / 1000
    attempts = config.get(settings.CONTROLLED_SHUTDOWN_MAX_RETRIES)
    while attempts > 0:
        attempts -= 1
        if not can_change():
            log.info(
                "ZooKeeper cannot be reached, so no other broker can take over the partitions that this broker leads"
            )
        elif await _ask(config, broker_id, broker_epoch, peers, image()):
            return True
        if attempts:
            await trio.sleep(backoff_s)
    log.warning("stopping, although other brokers have not taken over all partitions that this broker leads")
    return False


async def _ask(
    config: BrokerConfig, broker_id: int, broker_epoch: int, peers: Peers, image: ClusterImage
) -> bool:
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    timeout_s = config.get(settings.CONTROLLER_SOCKET_TIMEOUT_MS) / 1000
    try:
        answer = await peers.ask(
            image.controller_id, request, version_max=VERSION_MAX, timeout_s=timeout_s, channel="shutdown"
        )
    except PeerUnavailableError as error:
        log.info("the controller did not respond to the controlled shutdown: %s", error)
        return False
    if answer.error_code != ErrorCode.NONE:
        log.info(
            "controller %d refused the controlled shutdown: %s",
            image.controller_id,
            describe(answer.error_code),
        )
        return False
    remaining = answer.remaining_partitions
    if remaining:
        names = ", ".join(f"{item.topic_name}-{item.partition_index}" for item in remaining[:10])
        log.info("this broker still leads %d partitions: %s", len(remaining), names)
    return not remaining
