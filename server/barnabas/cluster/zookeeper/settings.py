"""The settings below /config, as changes of the metadata image.

The rule: the content of znodes is published in the order of reading; an unreadable znode is logged and leaves the image
unchanged. A start has no former value: an unreadable setting of a topic stops it, as a default in its place might delete
records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.cluster.metadata.changes import ConfigChanged
from barnabas.cluster.metadata.image import BROKER, GROUP, TOPIC, Change, ClusterImage, ResourceKey
from barnabas.cluster.zookeeper import entity_settings
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.session import NoNodeError, ZooKeeper
from barnabas.cluster.zookeeper.writes import entity_of, resource_of
from barnabas.config import group as group_settings
from barnabas.config import tables
from barnabas.config import topic as topic_settings
from barnabas.config.setting import Setting, SettingError

if TYPE_CHECKING:
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

FOLLOWED = (
    resources.TOPICS, resources.BROKERS, resources.CLIENT_METRICS, resources.GROUPS,
    *entity_settings.ENTITY_TYPES.values(),
)  # fmt: skip
"""Types of entities with settings in the image."""

_KINDS = {TOPIC: "topic", BROKER: "broker", GROUP: "group"}


class SettingsReader:
    """Reads settings. Methods raise ZooKeeperError."""

    def __init__(self, zookeeper: ZooKeeper, budget: LoopBudget) -> None:
        self._zookeeper = zookeeper
        self._budget = budget

    async def read_all(self, image: ClusterImage, *, is_first: bool = False) -> list[Change]:
        """Read the settings of all resources; returns those that differ from the image's.

        Raises ZnodeError for unreadable settings of a topic if `is_first`.
        """
        keys: list[ResourceKey] = []
        for kind in FOLLOWED:
            try:
                names = await self._zookeeper.children(f"{resources.CONFIG}/{kind}")
            except NoNodeError:
                continue
            for name in names:
                key = resource_of(kind, name)
                if key is not None:
                    keys.append(key)
                await self._budget.checkpoint()
        keys += await self._clients_of_users([key for key in keys if key[0] == entity_settings.USERS])
        there = set(keys)
        known_keys = (*image.configs, *entity_settings.known(image))
        return await self.read(
            image, [*keys, *(key for key in known_keys if key not in there)], is_first=is_first
        )

    async def _clients_of_users(self, users: Sequence[ResourceKey]) -> list[ResourceKey]:
        """Return the keys of the settings of a user's client ids."""
        paths = [resources.config_path(*entity_of(key)) for key in users]
        keys = []
        for (kind, user), path, node in zip(users, paths, await self._zookeeper.get_many(paths), strict=True):
            if node is None or not node[1].children:
                continue
            try:
                names = await self._zookeeper.children(f"{path}/{resources.CLIENTS}")
            except NoNodeError:
                continue
            for name in names:
                keys.append((kind, user + entity_settings.USER_CLIENTS + name))
                await self._budget.checkpoint()
        return keys

    async def read(
        self, image: ClusterImage, keys: Iterable[ResourceKey], *, is_first: bool = False
    ) -> list[Change]:
        """Read the settings of these resources; returns those that differ from the image's. Raises as `read_all`."""
        distinct = list(dict.fromkeys(keys))
        paths = [resources.config_path(*entity_of(key)) for key in distinct]
        changes: list[Change] = []
        for key, path, node in zip(distinct, paths, await self._zookeeper.get_many(paths), strict=True):
            try:
                settings = resources.decode_config(path, node[0]) if node is not None else {}
            except ZnodeError as error:
                log.error("settings are left as they were: %s", error)
                continue
            settings = _readable(path, key, settings, image.settings_of(*key), is_first=is_first)
            if key[0] in entity_settings.ENTITY_TYPES:
                for name in entity_settings.unreadable(key, settings):
                    log.error("%s: the value of %s cannot be read, and is left out", path, name)
                changes += entity_settings.changes(image, key, settings)
            elif settings != image.settings_of(*key):
                changes.append(ConfigChanged(*key, tuple(sorted(settings.items()))))
            await self._budget.checkpoint()
        return changes

    async def notified(self, names: Sequence[str]) -> list[ResourceKey]:
        """Read notifications; returns the resources with changed settings."""
        keys = []
        nodes = await self._zookeeper.get_many([f"{resources.CONFIG_CHANGES}/{name}" for name in names])
        for name, node in zip(names, nodes, strict=True):
            if node is None:
                continue
            try:
                kind, entity = resources.decode_config_change(name, node[0])
            except ZnodeError as error:
                log.error("a notification of changed settings is left out: %s", error)
                continue
            key = resource_of(kind, entity)
            if key is not None:
                keys.append(key)
        return keys


def _row(kind: int, name: str) -> Setting[Any] | None:
    """Return the setting that a broker obeys by this name; None where it obeys none."""
    if kind == TOPIC:
        return topic_settings.SETTINGS.get(name)
    if kind == GROUP:
        bounded = group_settings.rows().get(name)
        return bounded.setting if bounded is not None else None
    setting = tables.find(name) if kind == BROKER else None
    return setting if setting is not None and setting.dynamic else None


def _readable(
    path: str, key: ResourceKey, texts: Mapping[str, str], before: Mapping[str, str], *, is_first: bool
) -> dict[str, str]:
    """Return the settings of a resource, with the former values in place of invalid ones.

    Invalid ones bypassed the brokers, which would have refused them. Raises ZnodeError as `read_all`.
    """
    settings = dict(texts)
    for name, text in texts.items():
        row = _row(key[0], name)
        if row is None:
            continue
        try:
            row.parse(text)
        except SettingError as error:
            if key[0] == TOPIC and is_first:
                why = f"topic {key[1]}: {error}; correct it there, or remove it, and start again"
                raise ZnodeError(path, why) from error
            del settings[name]
            if name in before:
                settings[name] = before[name]
            log.error(
                "znode %s: %s %s: %s; %s stays in force", path, _KINDS[key[0]], key[1] or "default", error,
                before.get(name, "the default"),
            )  # fmt: skip
    return settings
