"""Tiered storage in the layout of Aiven's plug-in: read by librdkafka, and looked into by `barnabas log tier`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.rsa_keys import key_files

from .conftest import PROGRAM, StartBroker
from .test_tiered import SEGMENT_BYTES, VALUE, create, keys_of, local_bytes, produce, read, until

pytestmark = pytest.mark.e2e

RECORDS = 800


def settings_of(tmp_path: Path) -> list[str]:
    public, private = key_files(tmp_path)
    (tmp_path / "tier").mkdir(exist_ok=True)
    store = {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "storage.root": str(tmp_path / "tier"),
        "chunk.size": "16384",
        "key.prefix": "tiered/",
        "compression.enabled": "true",
        "encryption.enabled": "true",
        "encryption.key.pair.id": "a",
        "encryption.key.pairs": "a",
        "encryption.key.pairs.a.public.key.file": str(public),
        "encryption.key.pairs.a.private.key.file": str(private),
        "custom.metadata.fields.include": "REMOTE_SIZE,OBJECT_KEY",
        "fetch.chunk.cache.prefetch.max.size": "32768",
    }
    return [
        "remote.log.storage.system.enable=true",
        "remote.log.storage.manager.class.name=io.aiven.kafka.tieredstorage.RemoteStorageManager",
        "rlmm.config.remote.log.metadata.topic.num.partitions=3",
        "remote.log.manager.task.interval.ms=200",
        "log.retention.check.interval.ms=300",
        *(f"rsm.config.{name}={value}" for name, value in store.items()),
    ]


def tier(settings: list[str], *arguments: str) -> tuple[int, list[dict[str, object]]]:
    options = [f"--set={setting}" for setting in settings]
    done = subprocess.run(
        [*PROGRAM, "log", "tier", *arguments, "--json", *options], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_encrypted_segments_are_read_and_verified(start_broker: StartBroker, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    broker = start_broker(*settings)
    create(broker.bootstrap)
    produce(broker.bootstrap, 0, RECORDS)
    until(lambda: local_bytes(broker.data) <= 2 * SEGMENT_BYTES, "local segments stay")
    assert read(broker.bootstrap, RECORDS) == keys_of(0, RECORDS)
    objects = [path for path in (tmp_path / "tier").rglob("*") if path.is_file()]
    assert {path.suffix for path in objects} == {".log", ".indexes", ".rsm-manifest"}
    assert not any(VALUE in path.read_bytes() for path in objects)
    data = str(broker.data)
    code, rows = tier(settings, "verify", "--deep", data)
    assert (code, rows[-1]["damaged"]) == (0, 0)
    assert rows[-1]["segments"] == sum(path.suffix == ".log" for path in objects)
    assert tier(settings, "orphans", data) == (0, [])
    assert broker.stop() == 0
    again = start_broker(*settings, data=broker.data)
    assert read(again.bootstrap, RECORDS) == keys_of(0, RECORDS)
