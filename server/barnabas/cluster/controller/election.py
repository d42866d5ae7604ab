"""Election of the controller: the znode /controller, and the epoch that grows with each election.

The rule: /controller is created and the epoch raised in one transaction, so that each epoch has one winner. The
znode belongs to a session; the owner of that session is the controller, even if the answer to the request was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.session import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    SetData,
    Watch,
    ZooKeeper,
    ZooKeeperError,
)

log = logging.getLogger(__name__)

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Elected:
    """Result of standing for election: the controller, and its epoch with the znode's version if it is this broker."""

    controller_id: int
    epoch: int = 0
    epoch_version: int = 0
    is_here: bool = False


class Elections:
    """Stands for election. Methods raise SessionExpiredError, ZooKeeperError; a lost connection is waited for."""

    def __init__(self, broker_id: int, zookeeper: ZooKeeper, wall_clock_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._wall_clock_ms = wall_clock_ms

    async def stand(self, watch: Watch) -> Elected:
        """Become the controller if the cluster has none; `watch` is called when the controller changes."""
        while True:
            try:
                if await self._zookeeper.exists(znodes.CONTROLLER, watch) is None:
                    await self._try()
                elected = await self._current()
            except ConnectionLostError:
                await self._zookeeper.wait_connected()
            else:
                if elected.controller_id != NOBODY:
                    return elected

    async def _try(self) -> None:
        epoch, version = await self._epoch()
        registration = znodes.ControllerRegistration(self._broker_id, self._wall_clock_ms())
        try:
            await self._zookeeper.multi(
                [
                    Create(znodes.CONTROLLER, znodes.encode_controller(registration), ephemeral=True),
                    SetData(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch + 1), version),
                ]
            )
        except (NodeExistsError, BadVersionError):
            log.info("another broker was quicker to become the controller")

    async def _epoch(self) -> tuple[int, int]:
        """Return the last epoch and the version of its znode, which is created if it is missing."""
        while True:
            try:
                data, stat = await self._zookeeper.get(znodes.CONTROLLER_EPOCH)
            except NoNodeError:
                try:
                    await self._zookeeper.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
                except NodeExistsError:
                    log.debug("the epoch of the controller was made by another broker")
            else:
                return znodes.decode_controller_epoch(data), stat.version

    async def _current(self) -> Elected:
        try:
            data, stat = await self._zookeeper.get(znodes.CONTROLLER)
        except NoNodeError:
            return Elected(NOBODY)
        try:
            controller_id = znodes.decode_controller(data).broker_id
        except ZnodeError as error:
            log.error("the id of the controller cannot be read: %s", error)
            return Elected(NOBODY - 1)
        if stat.ephemeral_owner != self._zookeeper.session_id:
            return Elected(controller_id)
        # Only the maker of /controller raises the epoch: while it is ours, so is the epoch.
        epoch, version = await self._epoch()
        return Elected(controller_id, epoch, version, is_here=True)

    async def depose(self, controller_id: int) -> None:
        """Remove /controller of a broker after its process has ended, unless another controller has been elected since."""
        try:
            _, version = await self._epoch()
            if (await self._current()).controller_id == controller_id:
                log.warning(
                    "broker %d is the controller and refuses connections: its process has ended, another one is elected",
                    controller_id,
                )
                await self.give_up(version)
        except ZooKeeperError as error:
            log.info("broker %d stays the controller until its session ends: %s", controller_id, error)

    async def give_up(self, epoch_version: int) -> None:
        """Resign, so that another broker is elected, if this one is the newest controller."""
        try:
            await self._zookeeper.multi(
                [Check(znodes.CONTROLLER_EPOCH, epoch_version), Delete(znodes.CONTROLLER)]
            )
        except ZooKeeperError as error:
            log.info("the controller here had ended already: %s", error)
