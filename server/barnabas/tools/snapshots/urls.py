"""Stores of snapshots by URL, with the settings of tiered storage.

The rule: options take precedence over our variables, such as `BARNABAS_STORE_S3_REGION` for `s3.region`, and these over
the variables of the services' own tools. Other credentials are looked up by each service's library.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from barnabas.tools.snapshots.layout import SnapshotStoreError

if TYPE_CHECKING:
    from barnabas.tiered.aiven.objects import Objects

VARIABLES: Final = "BARNABAS_STORE_"
"""Beginning of variables with settings of a store."""
SCHEMES: Final = {
    "s3": ("s3", "s3.bucket.name"), "gs": ("gcs", "gcs.bucket.name"), "az": ("azure", "azure.container.name"),
}  # fmt: skip
"""Schemes of URLs: the backend of tiered storage, and the setting with the bucket."""
_OF_OTHERS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "s3": {
        "s3.region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
        "s3.endpoint.url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    },
    "gs": {"gcs.endpoint.url": ("STORAGE_EMULATOR_HOST",)},
    "az": {"azure.connection.string": ("AZURE_STORAGE_CONNECTION_STRING",)},
}
_REGION: Final = "us-east-1"
"""Region of a store with a custom endpoint."""


class StorePlace(NamedTuple):
    """A place for snapshots: its objects, the beginning of their keys, and the URL."""

    objects: Objects
    prefix: str
    url: str


def open_place(url: str, options: Mapping[str, str], variables: Mapping[str, str]) -> StorePlace:
    """Open the store that a URL names.

    Args:
        url: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or `file:///DIR`.
        options: settings of the store, as `s3.region`, with or without the prefix `storage.`.
        variables: the environment of the process.

    Raises:
        SnapshotStoreError: the URL is invalid.
        StoreSettingsError: a setting is missing, wrong or not offered.
        ModuleNotFoundError: the extra `tiered` is not installed.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment or parts.username or parts.password:
        raise SnapshotStoreError(
            f"{parts.scheme}://{parts.hostname or ''}{parts.path}: a URL of a store has no user, '?' or '#'; "
            "settings of the store are options and variables"
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
            raise SnapshotStoreError(f"{url}: a directory is named as file:///DIR")
        from barnabas.tiered.aiven.objects import DirectoryObjects

        suffix = f".{socket.gethostname()}-{os.getpid()}.partial"
        return StorePlace(DirectoryObjects(Path(unquote(parts.path)), suffix), "", url)
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise SnapshotStoreError(f"{url}: a store is s3://BUCKET/PREFIX, gs://..., az://... or file:///DIR")
    prefix = unquote(parts.path).strip("/")
    if "//" in prefix or any(part in (".", "..") for part in prefix.split("/")):
        raise SnapshotStoreError(f"{url}: the prefix has a part that is empty or consists of dots")
    backend, bucket = SCHEMES[parts.scheme]
    settings = {**_of_environment(parts.scheme, backend, variables), **_plain(options), bucket: parts.netloc}
    from barnabas.tiered.aiven.opening import BACKENDS, open_objects
    from barnabas.tiered.settings import StoreSettings

    store_settings = StoreSettings({f"storage.{name}": value for name, value in settings.items()})
    objects = open_objects(BACKENDS[backend], store_settings, prefix)
    store_settings.finish(backend)
    return StorePlace(objects, f"{prefix}/" if prefix else "", url)


def parse_options(pairs: Sequence[str]) -> dict[str, str]:
    """Return the settings of options NAME=VALUE. Raises SnapshotStoreError."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SnapshotStoreError(f"--store {name}: NAME=VALUE expected, as s3.region=eu-west-1")
        settings[name.strip()] = value
    return settings


def _plain(options: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix("rsm.config.").removeprefix("storage."): value for name, value in options.items()
    }


def _of_environment(scheme: str, backend: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Settings from variables: ours for this service, else those of its own tools."""
    settings: dict[str, str] = {}
    for name, others in _OF_OTHERS[scheme].items():
        value = next((variables[other] for other in others if variables.get(other)), None)
        if value is not None:
            settings[name] = value
    families = (f"{backend}.", "aws." if scheme == "s3" else f"{backend}.")
    for variable, value in variables.items():
        name = variable.removeprefix(VARIABLES).lower().replace("_", ".")
        if variable.startswith(VARIABLES) and name.startswith(families):
            settings[name] = value
    if scheme == "s3" and "s3.endpoint.url" in settings:
        settings.setdefault("s3.region", _REGION)
    if scheme == "gs" and variables.get("STORAGE_EMULATOR_HOST") and "gcs.credentials.path" not in settings:
        settings["gcs.endpoint.url"] = _with_scheme(settings["gcs.endpoint.url"])
        settings.setdefault("gcs.credentials.default", "false")
    return settings


def _with_scheme(address: str) -> str:
    return address if "://" in address else f"http://{address}"
