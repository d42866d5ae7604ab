"""Registration of a controller with the active one (KIP-919), by which clients and nodes find the controllers.

The rule: a controller registers with each start, and again when its registration is missing; the active controller
registers with itself like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from barnabas.cluster.kraft.controller.outcome import Caller
from barnabas.cluster.kraft.controller.versions import CONTROLLER_REGISTRATION_LEVEL
from barnabas.cluster.kraft.feature_levels import SUPPORTED
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.config.listeners import PROTOCOLS
from barnabas.errors import RequestError
from barnabas.wire.generated.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.kraft.controller.active import ActiveController
    from barnabas.cluster.kraft.loader import ImageDelta
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.config.quorum import Address

log = logging.getLogger(__name__)

CONTROLLER_REGISTRATION: Final = 70
TIMEOUT_SECONDS: Final = 5.0
BACKOFF_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class ControllerRegistration:
    """Implements `applying.ImageSubscriber`. Lifecycle: `run` in a task."""

    def __init__(
        self,
        node_id: int,
        incarnation_id: bytes,
        endpoints: Mapping[str, Address],
        protocols: Mapping[str, str],
        active: ActiveController,
        controllers: Peers,
    ) -> None:
        """`endpoints` are the advertised addresses of the listeners, `protocols` their security protocols."""
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._request = ControllerRegistrationRequest(
            controller_id=node_id,
            incarnation_id=incarnation_id,
            listeners=[
                ControllerRegistrationRequest.Listener(name, host, port, PROTOCOLS.index(protocols[name]))
                for name, (host, port) in endpoints.items()
            ],
            features=[
                ControllerRegistrationRequest.Feature(name, *levels) for name, levels in SUPPORTED.items()
            ],
        )
        self._active = active
        self._controllers = controllers
        self._is_due = False
        self._changed = trio.Event()

    async def prepare(self, delta: ImageDelta) -> None:
        """Do nothing."""

    def publish(self, delta: ImageDelta) -> None:
        """Register unless the image has this very process."""
        image = delta.after
        registered = image.controllers.get(self._node_id)
        is_this = registered is not None and registered.incarnation_id == self._incarnation_id
        self._is_due = not is_this and image.metadata_version >= CONTROLLER_REGISTRATION_LEVEL
        self._changed.set()

    async def clean_up(self, delta: ImageDelta) -> None:
        """Do nothing."""

    async def run(self) -> None:
        """Register whenever that is due, until cancelled."""
        failures = 0
        while True:
            self._changed = trio.Event()
            if not self._is_due:
                failures = 0
                await self._changed.wait()
                continue
            problem = await self._register()
            if problem:
                if failures % len(BACKOFF_SECONDS) == len(BACKOFF_SECONDS) - 1:
                    log.warning("this controller is not registered yet: %s", problem)
                pause_s = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]
                failures += 1
            else:
                log.info("controller %d has registered", self._node_id)
                pause_s = TIMEOUT_SECONDS
            with trio.move_on_after(pause_s):
                await self._changed.wait()

    async def _register(self) -> str:
        """Send the registration; return the error as text, empty for success."""
        try:
            response: ControllerRegistrationResponse | Any
            if self._active.is_active:
                response = await self._active.handle(CONTROLLER_REGISTRATION, self._request, Caller(0))
            else:
                response = await self._controllers.ask_controller(
                    self._request, timeout_s=TIMEOUT_SECONDS, channel="registration"
                )
        except (PeerUnavailableError, RequestError) as error:
            return str(error)
        if response.error_code == ErrorCode.NONE:
            return ""
        return response.error_message or f"error code {response.error_code}"
