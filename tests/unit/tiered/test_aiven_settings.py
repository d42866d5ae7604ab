"""Settings of the plug-in: those that decide about the layout are honoured or refused."""

import pytest

from barnabas.tiered.settings import StoreSettingsError
from barnabas.tiered.stores import open_store
from tests.support.rsa_keys import key_files


@pytest.fixture
def settings(tmp_path):
    return {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "storage.root": str(tmp_path),
        "chunk.size": "4194304",
    }


def test_settings_of_the_plug_ins_example_are_accepted(settings) -> None:
    store = open_store(
        "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        settings
        | {
            "key.prefix": "tiered/",
            "key.prefix.mask": "true",
            "compression.enabled": "true",
            "compression.heuristic.enabled": "true",
            "custom.metadata.fields.include": "REMOTE_SIZE, OBJECT_KEY",
            "fetch.chunk.cache.class": "io.aiven.kafka.tieredstorage.fetch.cache.MemoryChunkCache",
            "fetch.chunk.cache.size": "1073741824",
            "fetch.chunk.cache.prefetch.max.size": "16777216",
            "fetch.chunk.cache.retention.ms": "600000",
            "fetch.indexes.cache.size": "10485760",
            "fetch.manifest.cache.size": "500",
            "metrics.recording.level": "DEBUG",
            "upload.rate.limit.bytes.per.second": "10485760",
            "storage.overwrite.enabled": "true",
            "broker.id": "1",
        },
    )
    store.close()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"storage.backend.class": ""}, "storage.backend.class has to be set"),
        (
            {"storage.backend.class": "com.example.Store"},
            "no storage.backend.class 'com.example.Store'; those offered",
        ),
        ({"storage.root": "/nowhere/at/all"}, "storage.root /nowhere/at/all has to be a directory"),
        ({"chunk.size": ""}, "chunk.size has to be set"),
        ({"chunk.size": "0"}, "chunk.size is from 1 to 1073741823, not 0"),
        ({"chunk.size": "4M"}, "chunk.size is a whole number, not '4M'"),
        ({"compression.enabled": "yes"}, "compression.enabled is true or false, not 'yes'"),
        ({"compression.heuristic.enabled": "true"}, "needs compression.enabled"),
        ({"encryption.enable": "true"}, "aiven has no setting encryption.enable"),
        ({"encryption.enabled": "true"}, "encryption.key.pair.id has to be among encryption.key.pairs"),
        ({"encryption.key.pairs": "a"}, "encryption.key.pairs.a.public.key.file has to be set"),
        ({"custom.metadata.fields.include": "SIZE"}, "REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY, not SIZE"),
        ({"segment.format": "iceberg"}, "segment.format cannot be anything but kafka"),
        (
            {"fetch.chunk.cache.class": "io.aiven.kafka.tieredstorage.fetch.cache.DiskChunkCache"},
            "in memory only",
        ),
        ({"fetch.chunk.cache.size": "-1"}, "has no bound"),
        ({"upload.rate.limit.bytes.per.second": "1000"}, "is from 1048576"),
        ({"storage.s3.bucket.name": "b"}, "aiven has no setting storage.s3.bucket.name"),
        ({"storage.backend.class": "s3", "key.prefix": "/a"}, "has a part of no characters"),
    ],
)
def test_setting_that_cannot_be_honoured_is_refused(settings, changes, problem) -> None:
    with pytest.raises(StoreSettingsError) as refused:
        open_store("aiven", settings | changes)
    assert problem in str(refused.value)


def test_key_files_that_are_no_pair_are_refused(settings, tmp_path) -> None:
    public, _ = key_files(tmp_path)
    prefix = "encryption.key.pairs.a"
    files = {
        f"{prefix}.public.key.file": str(public),
        f"{prefix}.private.key.file": str(tmp_path / "none.pem"),
    }
    with pytest.raises(StoreSettingsError, match=r"encryption\.key\.pairs\.a: .*none\.pem"):
        open_store("aiven", settings | files | {"encryption.key.pairs": "a"})
