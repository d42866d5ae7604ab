"""The plug-in's settings, in the form of `rsm.config.*` of Kafka's brokers, and the store that they describe.

The rule: settings for the place and form of objects are honoured or refused; those for threads, metrics and checks of
the Java library are accepted without effect.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from barnabas.tiered.aiven.custom_metadata import FIELDS
from barnabas.tiered.aiven.encryption import KeyPair, KeyRing
from barnabas.tiered.aiven.objects import DirectoryObjects, Objects
from barnabas.tiered.aiven.storage import AivenSettings, AivenStorage
from barnabas.tiered.settings import StoreSettings, StoreSettingsError

_BACKENDS: Final = "io.aiven.kafka.tieredstorage.storage"
FILESYSTEM: Final = f"{_BACKENDS}.filesystem.FileSystemStorage"
S3: Final = f"{_BACKENDS}.s3.S3Storage"
GCS: Final = f"{_BACKENDS}.gcs.GcsStorage"
AZURE: Final = f"{_BACKENDS}.azure.AzureBlobStorage"
BACKENDS: Final = {"filesystem": FILESYSTEM, "s3": S3, "gcs": GCS, "azure": AZURE}
"""Short names of `storage.backend.class`, and the plug-in's classes."""
MEMORY_CACHE: Final = "io.aiven.kafka.tieredstorage.fetch.cache.MemoryChunkCache"
CHUNK_MAX: Final = (2**31 - 1) // 2
CACHE_BYTES: Final = 32 << 20
_MANIFESTS_MAX: Final = 1000
_UPLOAD_RATE_MIN: Final = 1 << 20
_WITHOUT_EFFECT: Final = (
    "broker.id",
    "key.prefix.mask",
    "metrics.num.samples",
    "metrics.sample.window.ms",
    "metrics.recording.level",
    "fetch.chunk.cache.retention.ms",
    "fetch.chunk.cache.get.timeout.ms",
    *(
        f"fetch.{cache}.cache.{name}"
        for cache in ("manifest", "indexes")
        for name in ("retention.ms", "thread.pool.size", "get.timeout.ms")
    ),
    "fetch.indexes.cache.size",
)


def open_aiven(settings: StoreSettings) -> AivenStorage:
    """Open the store that the plug-in's settings describe. Raises StoreSettingsError."""
    backend = settings.required("storage.backend.class")
    store_settings = _layout(settings)
    keys = _key_ring(settings)
    settings.without_effect(_WITHOUT_EFFECT)
    objects = open_objects(BACKENDS.get(backend, backend), settings, store_settings.key_prefix)
    settings.finish("aiven")
    return AivenStorage(objects, store_settings, keys)


def _layout(settings: StoreSettings) -> AivenSettings:
    settings.fixed("segment.format", "kafka", "segments as Iceberg tables are not offered")
    settings.required("chunk.size")
    is_compressed = settings.flag("compression.enabled")
    is_heuristic = settings.flag("compression.heuristic.enabled")
    if is_heuristic and not is_compressed:
        raise StoreSettingsError("compression.heuristic.enabled needs compression.enabled")
    fields = settings.words("custom.metadata.fields.include")
    if not set(fields) <= set(FIELDS):
        raise StoreSettingsError(
            f"custom.metadata.fields.include has {', '.join(FIELDS)}, not {','.join(fields)}"
        )
    if settings.text("fetch.chunk.cache.class", MEMORY_CACHE) != MEMORY_CACHE:
        raise StoreSettingsError(f"fetch.chunk.cache.class is {MEMORY_CACHE}: chunks are kept in memory only")
    cache_bytes = settings.number("fetch.chunk.cache.size", CACHE_BYTES, smallest=-1)
    if cache_bytes < 0:
        raise StoreSettingsError(
            "fetch.chunk.cache.size -1 has no bound: name the bytes that chunks may take"
        )
    return AivenSettings(
        chunk_size=settings.number("chunk.size", 1, smallest=1, largest=CHUNK_MAX),
        key_prefix=settings.text("key.prefix", ""),
        is_compressed=is_compressed,
        is_heuristic=is_heuristic,
        custom_fields=tuple(fields),
        manifests_max=settings.number("fetch.manifest.cache.size", _MANIFESTS_MAX, smallest=1),
        cache_bytes=cache_bytes,
        prefetch_bytes=settings.number("fetch.chunk.cache.prefetch.max.size", 0, largest=2**31 - 1),
        prefetch_threads=settings.number("fetch.chunk.cache.thread.pool.size", 0, largest=1024) or 2,
        upload_bytes_per_second=settings.number(
            "upload.rate.limit.bytes.per.second", None, smallest=_UPLOAD_RATE_MIN
        ),
    )


def _key_ring(settings: StoreSettings) -> KeyRing:
    """Read the key pairs; they are read without encryption.enabled too, for segments of earlier days."""
    active = settings.text("encryption.key.pair.id")
    names = settings.words("encryption.key.pairs")
    is_encrypted = settings.flag("encryption.enabled")
    if is_encrypted and active not in names:
        raise StoreSettingsError("encryption.key.pair.id has to be among encryption.key.pairs")
    pairs: dict[str, KeyPair] = {}
    for name in names:
        prefix = f"encryption.key.pairs.{name}"
        files = [Path(settings.required(f"{prefix}.{side}.key.file")) for side in ("public", "private")]
        try:
            pairs[name] = KeyPair.from_files(*files)
        except (OSError, TypeError, ValueError) as error:
            raise StoreSettingsError(f"{prefix}: {error}") from error
    return KeyRing(pairs, active if is_encrypted else None)


def open_objects(backend: str, settings: StoreSettings, key_prefix: str) -> Objects:
    """Open the objects of a backend, by its class. Raises StoreSettingsError."""
    if backend == FILESYSTEM:
        root = Path(settings.required("storage.root"))
        settings.without_effect(("storage.overwrite.enabled",))
        if not root.is_dir() or not os.access(root, os.W_OK):
            raise StoreSettingsError(f"storage.root {root} has to be a directory that can be written to")
        return DirectoryObjects(root)
    if backend not in BACKENDS.values():
        offered = ", ".join([*BACKENDS, *BACKENDS.values()])
        raise StoreSettingsError(
            f"there is no storage.backend.class {backend!r}; those offered are {offered}"
        )
    if key_prefix.startswith("/") or "//" in key_prefix:
        raise StoreSettingsError(f"key.prefix {key_prefix!r} has a part of no characters")
    from barnabas.tiered.aiven import bucket_settings

    if backend == S3:
        return bucket_settings.s3(settings)
    return bucket_settings.gcs(settings) if backend == GCS else bucket_settings.azure(settings)
