"""The ACLs below /kafka-acl and /kafka-acl-extended, as changes of the metadata image.

The rule: as for settings, an unreadable znode is logged and leaves the image unchanged. But a broker that starts has no
former ACLs, and a missing ACL may be one that denies: then it does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.access_changes import AclAdded, AclRemoved
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.zookeeper import acl_znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.session import NoNodeError, ZooKeeper
from barnabas.security.acls import AclBinding, ResourcePattern

if TYPE_CHECKING:
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)


class AclsReader:
    """Reads ACLs. Methods raise ZooKeeperError."""

    def __init__(self, zookeeper: ZooKeeper, budget: LoopBudget) -> None:
        self._zookeeper = zookeeper
        self._budget = budget

    async def read_all(self, image: ClusterImage, *, is_first: bool = False) -> list[Change]:
        """Read all ACLs; returns the changes that update the image to them.

        Raises ZnodeError for an unreadable one if `is_first`.
        """
        patterns: list[ResourcePattern] = []
        for path in acl_znodes.TYPE_PATHS:
            try:
                names = await self._zookeeper.children(path)
            except NoNodeError:
                continue
            patterns += acl_znodes.patterns_below(path, names)
            await self._budget.checkpoint()
        there = set(patterns)
        gone = (principal for principal in image.acls.principals if principal not in there)
        return await self.read(image, [*patterns, *gone], is_first=is_first)

    async def read(
        self, image: ClusterImage, patterns: Iterable[ResourcePattern], *, is_first: bool = False
    ) -> list[Change]:
        """Read the ACLs of these patterns; returns the changes that update the image to them.

        Raises ZnodeError for an unreadable one if `is_first`.
        """
        distinct = list(dict.fromkeys(patterns))
        changes: list[Change] = []
        nodes = await self._zookeeper.get_many([acl_znodes.path_of(pattern) for pattern in distinct])
        for pattern, node in zip(distinct, nodes, strict=True):
            try:
                entries, unknown = acl_znodes.entries_of(pattern, node[0]) if node is not None else ([], [])
            except ZnodeError as error:
                if is_first:
                    raise
                log.error("ACLs are left as they were: %s", error)
                continue
            for acl in unknown:
                log.error(
                    "an ACL of %s is left out, its operation or permission is not known: %s", pattern, acl
                )
            there, entries_before = set(entries), list(image.acls.on(pattern))
            changes += [
                AclRemoved(AclBinding(pattern, entry)) for entry in entries_before if entry not in there
            ]
            before = set(entries_before)
            changes += [AclAdded(AclBinding(pattern, entry)) for entry in entries if entry not in before]
            await self._budget.checkpoint()
        return changes

    async def notified(self, root: str, names: Sequence[str]) -> list[ResourcePattern]:
        """Read notifications; returns the patterns with changed ACLs."""
        patterns = []
        paths = [f"{root}/{name}" for name in names]
        for path, node in zip(paths, await self._zookeeper.get_many(paths), strict=True):
            if node is None:
                continue
            try:
                patterns.append(acl_znodes.notified(path, node[0]))
            except ZnodeError as error:
                log.error("a notification of changed ACLs is left out: %s", error)
        return patterns
