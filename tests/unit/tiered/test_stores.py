"""Stores by their names in Kafka's settings; what cannot be honoured stops the start."""

import pytest

from barnabas.tiered.directory import DirectoryStorage
from barnabas.tiered.settings import StoreSettingsError
from barnabas.tiered.stores import open_store


@pytest.mark.parametrize(
    "name", ["directory", "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"]
)
def test_directory_store_is_opened_by_each_name(name, tmp_path) -> None:
    store = open_store(name, {"dir": str(tmp_path), "delete.on.close": "false", "broker.id": "1"})
    assert isinstance(store, DirectoryStorage)
    assert (tmp_path / "kafka-tiered-storage").is_dir()


@pytest.mark.parametrize(
    ("name", "settings", "problem"),
    [
        ("com.example.Store", {}, "no remote store 'com.example.Store'; those offered are directory, "),
        ("directory", {}, "dir has to be set"),
        (
            "directory",
            {"dir": "d", "delete.on.close": "true"},
            "delete.on.close cannot be anything but false",
        ),
        ("directory", {"dir": "d", "delete.enable": "false"}, "delete.enable cannot be anything but true"),
        ("directory", {"dir": "d", "transferer.class": "x"}, "directory has no setting transferer.class"),
    ],
)
def test_store_that_cannot_be_honoured_is_refused(name, settings, problem) -> None:
    with pytest.raises(StoreSettingsError, match=problem.replace(".", r"\.")):
        open_store(name, settings)
