"""Assembly of a broker's tiered storage: a store by the settings, with the tasks that copy to it and read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.startup import StartupError
from barnabas.config import broker as settings
from barnabas.config.tiered import store_settings
from barnabas.environment.extras import explain

if TYPE_CHECKING:
    from barnabas.broker.base_parts import BaseParts
    from barnabas.cluster.metadata.topic_creation import TopicCreation
    from barnabas.cluster.tiering.manager import TieredStorage
    from barnabas.serving.seams import Seams
    from barnabas.tiered.storage import RemoteStorage


def opened_tier(base: BaseParts, creation: TopicCreation, seams: Seams) -> TieredStorage:
    """Return the tiered storage of a broker; it is subscribed to the metadata. Raises StartupError."""
    from barnabas.cluster.tiering.manager import TieredStorage

    storage, store = base.storage, _open_store(base)
    tiered = TieredStorage(
        base.config,
        seams.around_store(store) if seams.around_store is not None else store,
        storage.metadata,
        creation,
        storage.peers,
        storage.replicas,
        storage.failures,
        base.budget,
        base.environment,
        storage.broker_id,
        base.background,
    )
    storage.metadata.subscribe(tiered)
    if storage.fetchers is not None:
        storage.fetchers.use_tiers(tiered.followers)
    return tiered


def _open_store(base: BaseParts) -> RemoteStorage:
    from barnabas.tiered.settings import StoreSettingsError
    from barnabas.tiered.storage import RemoteStorageError
    from barnabas.tiered.stores import open_store

    config = base.config
    class_name = config.get(settings.REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME) or ""
    prefix = config.get(settings.REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX)
    try:
        return open_store(class_name, store_settings(config))
    except StoreSettingsError as error:
        raise StartupError(f"the store of tiered storage ({prefix}...): {error}") from error
    except (RemoteStorageError, OSError) as error:
        raise StartupError(f"the store of tiered storage cannot be opened: {error}") from error
    except ModuleNotFoundError as error:
        raise StartupError(f"the store of tiered storage: {explain(error) or error}") from error
