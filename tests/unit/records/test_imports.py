"""Importing the package: what that loads, as it is on the broker's way to being ready."""

import subprocess
import sys

from barnabas.records.crc import _load

LAZY = ["snappy", "cramjam", "lz4", "zstandard", "barnabas.records.codecs", "barnabas.records.legacy"]
IMPURE = ["trio", "socket", "random", "threading", "logging", "asyncio", "importlib.metadata"]


def loaded_by(*modules):
    code = f"import sys; import {', '.join(modules)}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=ENV
    )
    return set(result.stdout.split())


ENV = {"PYTHONPATH": ":".join(path for path in sys.path if path)}


def test_codecs_and_old_formats_are_loaded_when_needed():
    loaded = loaded_by("barnabas.records.batch", "barnabas.records.validate", "barnabas.records.control")
    assert loaded.isdisjoint(LAZY)


def test_the_package_needs_no_world_around_it():
    loaded = loaded_by("barnabas.records.validate", "barnabas.records.convert", "barnabas.records.control")
    assert loaded.isdisjoint(IMPURE)


def test_the_broker_starts_without_reading_package_metadata():
    assert loaded_by("barnabas.broker.app").isdisjoint({"importlib.metadata", "email", "zipfile"})


def test_the_broker_starts_without_telemetry_and_metrics():
    rare = {"barnabas.metrics.telemetry", "barnabas.metrics", "barnabas.broker.metrics_endpoint"}
    libraries = {"google.protobuf", "opentelemetry", "prometheus_client", "h11", "re2"}
    assert loaded_by("barnabas.broker.app").isdisjoint(rare | libraries)


def test_the_checksum_comes_straight_from_its_extension_module():
    assert _load().__module__ == "crc32c._crc32c"
