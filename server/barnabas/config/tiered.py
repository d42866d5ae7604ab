"""Settings of tiered storage (KIP-405): their meaning, and combinations that stop the start or are refused. Pure.

The rule: texts of refusals of topic settings are Kafka's, since tools and people search for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.config import broker as settings
from barnabas.config.keeper import Keeper, is_clustered, is_controller, keeper_of
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import Setting, SettingError
from barnabas.config.topic import has_tiered_storage, switches_off

TOPIC_PREFIX: Final = "remote.log.metadata.topic."

DISABLED: Final = (
    "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
    "storage."
)
POLICY: Final = "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
SWITCHED_OFF: Final = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and "
    "turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
    "remote storage and delete all remote data, please set `remote.storage.enable=false,remote.log.delete.on.disable=true`."
)
NOT_ON_ZOOKEEPER: Final = (
    "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode."
)
KEPT_ON_ZOOKEEPER: Final = (
    "Remote storage of a topic cannot be disabled in a cluster on ZooKeeper: its remote data would stay in the store, "
    "where nothing reads or deletes them; delete the topic instead."
)
"""Kafka 3.9 disables it, and leaves the data in the store."""
NOT_COPIED: Final = (
    "When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and `retention.{unit}` must be set to "
    "the identical value because there will be no more logs copied to the remote storage."
)


class MetadataTopic(NamedTuple):
    """Shape of the topic with the metadata of remote segments: counts, and `retention.ms`."""

    partitions: int
    replication_factor: int
    min_isr: int
    retention_ms: int

    def settings(self, config: BrokerConfig) -> dict[str, str]:
        """The topic's own settings."""
        return {
            "cleanup.policy": "delete",
            "min.insync.replicas": str(self.min_isr if is_clustered(config) else 1),
            "remote.storage.enable": "false",
            "retention.ms": str(self.retention_ms),
        }


def is_tiered(config: BrokerConfig) -> bool:
    """Return whether the broker has tiered storage."""
    return config.get(settings.REMOTE_LOG_STORAGE_SYSTEM_ENABLE)


def store_settings(config: BrokerConfig) -> dict[str, str]:
    """Return the settings of the store of segments, without their prefix (`rsm.config.`)."""
    return _of_plugin(config, settings.REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX)


def metadata_topic(config: BrokerConfig) -> MetadataTopic:
    """Return the shape of `__remote_log_metadata` by the settings with the prefix `rlmm.config.`.

    Raises SettingError for a value that is no number within the bounds.
    """
    own = _of_plugin(config, settings.REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX)
    prefix = config.get(settings.REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX)

    def number(name: str, default: int, least: int) -> int:
        text = own.get(TOPIC_PREFIX + name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or not least <= value < 1 << 63:
            raise SettingError(
                f"{prefix}{TOPIC_PREFIX}{name}={text}: a whole number from {least} on expected"
            )
        return value

    return MetadataTopic(
        number("num.partitions", 50, 1),
        number("replication.factor", 3, 1),
        number("min.isr", 2, 1),
        number("retention.ms", -1, -1),
    )


def _of_plugin(config: BrokerConfig, prefix_setting: Setting[str]) -> dict[str, str]:
    prefix = config.get(prefix_setting)
    return {
        name.removeprefix(prefix): config.texts_of(name)[0][0]
        for name in config.names_set()
        if name.startswith(prefix)
    }


def check_tiered(config: BrokerConfig, origin: str) -> None:
    """Raise SettingError where the settings of tiered storage cannot be honoured together; `origin` is where it is on."""
    try:
        _check_tiered(config)
    except SettingError as error:
        raise SettingError(f"{origin}: {error}") from error


def _check_tiered(config: BrokerConfig) -> None:
    enable = settings.REMOTE_LOG_STORAGE_SYSTEM_ENABLE.name
    class_name = settings.REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME.name
    if not is_controller(config) and not config.get(settings.REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME):
        raise SettingError(f"{enable}=true: {class_name} names no store; set it, or remove {enable}")
    manager = settings.REMOTE_LOG_METADATA_MANAGER_CLASS_NAME
    if config.get(manager) != manager.default:
        raise SettingError(
            f"{manager.name}={config.get(manager)}: metadata of remote segments are in __remote_log_metadata; remove the "
            "setting"
        )
    metadata_topic(config)
    values = config.topic_values({})
    check_retention(values)


def check_topic(values: Mapping[str, Any], before: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise SettingError, with Kafka's text, where a topic cannot have these settings (typed, by name).

    `before` are the topic's own settings until now, empty for a new topic.
    """
    is_on_zookeeper = keeper_of(config) is Keeper.ZOOKEEPER
    if is_on_zookeeper and switches_off(values):
        raise SettingError(NOT_ON_ZOOKEEPER)
    if not values["remote.storage.enable"]:
        if has_tiered_storage(before) and not values["remote.log.delete.on.disable"]:
            raise SettingError(KEPT_ON_ZOOKEEPER if is_on_zookeeper else SWITCHED_OFF)
        return
    if not is_tiered(config):
        raise SettingError(DISABLED)
    if tuple(values["cleanup.policy"]) not in ((), ("delete",)):
        raise SettingError(POLICY)
    check_retention(values)
    _check_copy_lag(values)
    if values["remote.log.copy.disable"]:
        for unit in ("bytes", "ms"):
            local = values[f"local.retention.{unit}"]
            if local not in (-2, values[f"retention.{unit}"]):
                raise SettingError(NOT_COPIED.format(unit=unit))


def _check_copy_lag(values: Mapping[str, Any]) -> None:
    """Raise SettingError if segments could be removed locally before they are copied (KIP-1241)."""
    for unit in ("ms", "bytes"):
        lag, local = values[f"remote.copy.lag.{unit}"], values[f"local.retention.{unit}"]
        kept = values[f"retention.{unit}"] if local == -2 else local
        if lag > 0 and 0 <= kept < lag:
            raise SettingError(
                f"Invalid value {lag} for configuration remote.copy.lag.{unit}: Value must not exceed "
                f"local.retention.{unit} (effective value: {kept})"
            )


def check_retention(values: Mapping[str, Any]) -> None:
    """Raise SettingError if the local retention exceeds the whole retention."""
    for unit in ("bytes", "ms"):
        whole, local = values[f"retention.{unit}"], values[f"local.retention.{unit}"]
        if whole < 0 or local == -2:
            continue
        invalid = f"Invalid value {local} for configuration local.retention.{unit}: Value must not be"
        if local == -1:
            raise SettingError(f"{invalid} -1 as retention.{unit} value is set as {whole}.")
        if local > whole:
            raise SettingError(f"{invalid} more than retention.{unit} property value: {whole}")
