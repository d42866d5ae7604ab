"""The delegation tokens below /delegation_token, as changes of the metadata image.

The rule: as for settings, an unreadable znode is logged and leaves the image unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.access_changes import DelegationTokenChanged, DelegationTokenRemoved
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.session import NoNodeError, ZooKeeper

if TYPE_CHECKING:
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)


class TokensReader:
    """Reads delegation tokens. Methods raise ZooKeeperError."""

    def __init__(self, zookeeper: ZooKeeper, budget: LoopBudget) -> None:
        self._zookeeper = zookeeper
        self._budget = budget

    async def read_all(self, image: ClusterImage) -> list[Change]:
        """Read all tokens; returns the changes that update the image to them."""
        try:
            ids = await self._zookeeper.children(resources.TOKENS)
        except NoNodeError:
            ids = []
        there = set(ids)
        return await self.read(image, [*ids, *(token for token in image.tokens if token not in there)])

    async def read(self, image: ClusterImage, ids: Iterable[str]) -> list[Change]:
        """Read these tokens; returns the changes that update the image to them."""
        distinct = list(dict.fromkeys(ids))
        changes: list[Change] = []
        nodes = await self._zookeeper.get_many([resources.token_path(token) for token in distinct])
        for token_id, node in zip(distinct, nodes, strict=True):
            token_before = image.tokens.get(token_id)
            if node is None:
                if token_before is not None:
                    changes.append(DelegationTokenRemoved(token_id))
                continue
            try:
                token = resources.decode_token(token_id, node[0])
            except ZnodeError as error:
                log.error("a delegation token is left as it was: %s", error)
                continue
            if token != token_before:
                changes.append(DelegationTokenChanged(token))
            await self._budget.checkpoint()
        return changes

    async def notified(self, names: Sequence[str]) -> list[str]:
        """Read notifications; returns the ids of the tokens that have changed."""
        nodes = await self._zookeeper.get_many([f"{resources.TOKEN_CHANGES}/{name}" for name in names])
        return [node[0].decode(errors="replace") for node in nodes if node is not None]
