"""Stores by the names that `remote.log.storage.manager.class.name` has for them, and their settings.

Nothing of a store is imported before it is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from barnabas.tiered.segment import TopicIdPartition
from barnabas.tiered.settings import StoreSettings, StoreSettingsError
from barnabas.tiered.storage import RemoteStorage

DIRECTORY: Final = "directory"
AIVEN: Final = "aiven"
CLASS_NAMES: Final = {
    DIRECTORY: DIRECTORY,
    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage": DIRECTORY,
    AIVEN: AIVEN,
    "io.aiven.kafka.tieredstorage.RemoteStorageManager": AIVEN,
}
"""Names of a class in Kafka's settings, and short ones -> the store."""


class ListedStorage(RemoteStorage, Protocol):
    """A store that lists its partitions, as all stores here do."""

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Partitions that have objects. Raises RemoteStorageError."""
        ...


def open_store(class_name: str, settings: Mapping[str, str]) -> ListedStorage:
    """Open a store. Blocks: it may read keys and create directories.

    Args:
        class_name: the value of `remote.log.storage.manager.class.name`, or a short name.
        settings: the store's own settings, without the prefix `rsm.config.`.

    Raises:
        StoreSettingsError: the class is not offered, or a setting is missing, wrong or not offered.
        RemoteStorageError: the store cannot be opened.
        ModuleNotFoundError: it needs a package of an extra (`environment.extras` says which).

    """
    store = CLASS_NAMES.get(class_name.strip())
    if store is None:
        offered = ", ".join(CLASS_NAMES)
        raise StoreSettingsError(f"there is no remote store {class_name!r}; those offered are {offered}")
    if store == DIRECTORY:
        return _open_directory(StoreSettings(settings))
    from barnabas.tiered.aiven.opening import open_aiven

    return open_aiven(StoreSettings(settings))


def _open_directory(settings: StoreSettings) -> ListedStorage:
    from barnabas.tiered.directory import DirectoryStorage

    folder = settings.required("dir")
    settings.fixed("delete.on.close", "false", "remove the directory when it is not needed any more")
    settings.fixed("delete.enable", "true", "it would keep segments that are deleted")
    settings.without_effect(("broker.id",))
    settings.finish(DIRECTORY)
    return DirectoryStorage(Path(folder))
