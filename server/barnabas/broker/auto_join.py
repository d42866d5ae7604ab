"""A controller that makes itself a voter of its quorum (`controller.quorum.auto.join.enable`, KIP-1186).

The rule: the leader decides; a voter with the same id in another directory, which is gone, is removed before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.wire.generated.add_raft_voter import AddRaftVoterRequest
from barnabas.wire.generated.remove_raft_voter import RemoveRaftVoterRequest

if TYPE_CHECKING:
    from barnabas.cluster.kraft.raft.node import RaftNode
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.config.controller import ControllerSettings
    from barnabas.config.quorum import Address

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 30.0


class AutoJoin:
    """Asks the leader to add this controller, every fetch timeout until it is a voter. Lifecycle: `run` in a task."""

    def __init__(
        self,
        own: ControllerSettings,
        cluster_id: str,
        endpoints: Mapping[str, Address],
        voter: RaftNode,
        controllers: Peers,
    ) -> None:
        """`endpoints` are the addresses of the own listeners, as others reach them."""
        self._period_s = own.quorum.fetch_timeout_ms / 1000
        self._cluster_id = cluster_id
        self._endpoints = endpoints
        self._voter = voter
        self._controllers = controllers

    async def run(self) -> None:
        """Ask until cancelled, whenever this controller is no voter."""
        while True:
            await trio.sleep(self._period_s)
            request = self._request()
            if request is None:
                continue
            try:
                response = await self._controllers.ask_controller(
                    request, timeout_s=TIMEOUT_SECONDS, channel="joining"
                )
            except PeerUnavailableError as error:
                log.info("this controller is no voter yet: %s", error)
                continue
            if response.error_code:
                log.info(
                    "this controller is no voter yet: error %d %s",
                    response.error_code,
                    response.error_message or "",
                )

    def _request(self) -> AddRaftVoterRequest | RemoveRaftVoterRequest | None:
        """Return what to ask for; None where there is nothing, or no leader that could do it."""
        voter, leadership = self._voter, self._voter.leadership
        if voter.replica.is_voter or voter.leader_id < 0 or not leadership.kraft_version:
            return None
        key = voter.replica.key
        for other in leadership.voters:
            if other.id == key.id:
                return RemoveRaftVoterRequest(self._cluster_id, other.id, other.directory_id)
        return AddRaftVoterRequest(
            self._cluster_id,
            int(TIMEOUT_SECONDS * 1000),
            key.id,
            key.directory_id,
            [
                AddRaftVoterRequest.Listener(name, host, port)
                for name, (host, port) in self._endpoints.items()
            ],
        )
