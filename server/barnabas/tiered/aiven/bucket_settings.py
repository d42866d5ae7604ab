"""Settings of buckets: `storage.s3.*`, `storage.gcs.*`, `storage.azure.*`, and the stores that they describe.

Without credentials in the settings, those of the environment are used, as the libraries of each service do.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from barnabas.tiered.aiven.object_stores import StoreObjects
from barnabas.tiered.settings import StoreSettings, StoreSettingsError

PART_BYTES: Final = 5 << 20
"""Bytes of a part of an upload; the plug-in's 25 MiB would be in memory for each upload, several times."""
_REQUEST_TIMEOUT_MS: Final = 30_000
_CALL_TIMEOUT_MS: Final = 120_000
_RETRIES_MAX: Final = 10
_GCS_URL: Final = "https://storage.googleapis.com"
_CREDENTIALS_RENEWAL: Final = timedelta(seconds=60)
_DEFAULT_CREDENTIALS: Final = {
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.InstanceProfileCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.ContainerCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
}
_AZURE_NAMES: Final = {
    "account.name": "account_name",
    "account.key": "account_key",
    "sas.token": "sas_key",
    "endpoint.url": "endpoint",
}
"""Settings of `storage.azure`, and those of the package."""
_ANONYMOUS: Final = "software.amazon.awssdk.auth.credentials.AnonymousCredentialsProvider"
_ACCESS, _SECRET, _SESSION = (
    f"aws.{name}" for name in ("access.key.id", "secret.access.key", "session.token")
)


def s3(settings: StoreSettings) -> StoreObjects:
    """Open a bucket of S3, or of a service that speaks its protocol. Raises StoreSettingsError."""
    bucket = settings.required("storage.s3.bucket.name")
    config: dict[str, Any] = {"region": settings.required("storage.s3.region")}
    endpoint = settings.text("storage.s3.endpoint.url")
    is_path_style = settings.flag("storage.s3.path.style.access.enabled", default=endpoint is not None)
    config["virtual_hosted_style_request"] = not is_path_style
    if endpoint is not None:
        config["endpoint"] = endpoint
    provider = _s3_credentials(settings, config)
    storage_class = settings.text("storage.s3.storage.class", "STANDARD")
    settings.without_effect(
        ("storage.aws.checksum.check.enabled", "storage.s3.legacy.md5.plugin.enabled")  # of the Java library
    )
    part_bytes = settings.number(
        "storage.s3.multipart.upload.part.size", PART_BYTES, smallest=5 << 20, largest=2**31 - 1
    )
    client = _client_options(
        endpoint, settings.number("storage.s3.api.call.attempt.timeout", _REQUEST_TIMEOUT_MS, 1)
    )
    client["allow_invalid_certificates"] = not settings.flag(
        "storage.aws.certificate.check.enabled", default=True
    )
    retry = _retry_config(settings.number("storage.s3.api.call.timeout", _CALL_TIMEOUT_MS, 1))
    try:
        store = S3Store(
            bucket, config=config, client_options=client, retry_config=retry, credential_provider=provider
        )
    except (BaseError, ValueError) as error:
        raise StoreSettingsError(f"storage.s3: {error}") from error
    return StoreObjects(
        store, part_bytes, {"Storage-Class": storage_class} if storage_class != "STANDARD" else None
    )


def gcs(settings: StoreSettings) -> StoreObjects:
    """Open a bucket of Google Cloud Storage. Raises StoreSettingsError."""
    bucket = settings.required("storage.gcs.bucket.name")
    endpoint = settings.text("storage.gcs.endpoint.url")
    config: dict[str, Any] = {}
    if endpoint is not None:
        config["base_url"] = endpoint
    json_text, path = (
        settings.text("storage.gcs.credentials.json"),
        settings.text("storage.gcs.credentials.path"),
    )
    is_default = settings.text("storage.gcs.credentials.default")
    if sum(source is not None for source in (json_text, path, is_default)) > 1:
        raise StoreSettingsError("of storage.gcs.credentials.json, .path and .default, one at most is set")
    if json_text is not None:
        config["service_account_key"] = json_text
    if path is not None:
        config["service_account"] = path
    if is_default is not None and not settings.flag("storage.gcs.credentials.default"):
        config |= {"skip_signature": True, "service_account_key": _without_token(endpoint)}
    part_bytes = settings.number("storage.gcs.resumable.upload.chunk.size", PART_BYTES, 256 << 10, 2**31 - 1)
    try:
        store = GCSStore(
            bucket,
            config=config,
            client_options=_client_options(endpoint, _REQUEST_TIMEOUT_MS),
            retry_config=_retry_config(_CALL_TIMEOUT_MS),
        )
    except (BaseError, ValueError) as error:
        raise StoreSettingsError(f"storage.gcs: {error}") from error
    return StoreObjects(store, part_bytes)


def _without_token(endpoint: str | None) -> str:
    """Return the key of an account without tokens: without an account the package requests a token before each write."""
    account = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return json.dumps({**account, "gcs_base_url": endpoint or _GCS_URL, "disable_oauth": True})


def azure(settings: StoreSettings) -> StoreObjects:
    """Open a container of Azure's blob storage. Raises StoreSettingsError."""
    container = settings.required("storage.azure.container.name")
    values = {ours: settings.text(f"storage.azure.{name}") for name, ours in _AZURE_NAMES.items()}
    connection = settings.text("storage.azure.connection.string")
    if connection is not None:
        if any(values.values()):
            raise StoreSettingsError(
                "storage.azure.connection.string cannot be set together with what it has"
            )
        parts = dict(part.split("=", 1) for part in connection.split(";") if "=" in part)
        values = {
            "account_name": parts.get("AccountName"),
            "account_key": parts.get("AccountKey"),
            "sas_key": parts.get("SharedAccessSignature"),
            "endpoint": parts.get("BlobEndpoint"),
        }
    if not values["account_name"] and not values["sas_key"]:
        raise StoreSettingsError("storage.azure.account.name or storage.azure.sas.token has to be set")
    config = {name: value for name, value in values.items() if value}
    part_bytes = settings.number("storage.azure.upload.block.size", PART_BYTES, 100 << 10, 2**31 - 1)
    try:
        store = AzureStore(
            container,
            config=config,
            client_options=_client_options(config.get("endpoint"), _REQUEST_TIMEOUT_MS),
            retry_config=_retry_config(_CALL_TIMEOUT_MS),
        )
    except (BaseError, ValueError) as error:
        raise StoreSettingsError(f"storage.azure: {error}") from error
    return StoreObjects(store, part_bytes)


class CredentialsFile:
    """Credentials of S3 in a properties file, which is read again each minute."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self()

    def __call__(self) -> dict[str, Any]:
        """Return the credentials. Raises StoreSettingsError if the file lacks them."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except OSError as error:
            raise StoreSettingsError(f"storage.aws.credentials.file: {error}") from error
        lines = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
        values = {name.strip().removeprefix("rsm.config.storage."): value.strip() for name, _, value in lines}
        if not values.get(_ACCESS) or not values.get(_SECRET):
            raise StoreSettingsError(
                f"storage.aws.credentials.file {self._path} lacks {_ACCESS} or {_SECRET}"
            )
        return {
            "access_key_id": values[_ACCESS],
            "secret_access_key": values[_SECRET],
            "token": values.get(_SESSION),
            "expires_at": datetime.now(UTC) + _CREDENTIALS_RENEWAL,
        }


def _s3_credentials(settings: StoreSettings, config: dict[str, Any]) -> CredentialsFile | None:
    access, secret = settings.text(f"storage.{_ACCESS}"), settings.text(f"storage.{_SECRET}")
    session = settings.text(f"storage.{_SESSION}")
    path, provider = (
        settings.text("storage.aws.credentials.file"),
        settings.text("storage.aws.credentials.provider.class"),
    )
    if (access is None) != (secret is None):
        raise StoreSettingsError(f"storage.{_ACCESS} and storage.{_SECRET} are set together")
    if sum(source is not None for source in (access, path, provider)) > 1:
        raise StoreSettingsError(
            "credentials of storage.aws are a key pair, a file or a provider class, not several"
        )
    if access is not None:
        config |= {"access_key_id": access, "secret_access_key": secret}
        if session is not None:
            config["session_token"] = session
    if provider == _ANONYMOUS:
        config["skip_signature"] = True
    elif provider is not None and provider not in _DEFAULT_CREDENTIALS:
        raise StoreSettingsError(f"storage.aws.credentials.provider.class {provider} is not offered")
    return CredentialsFile(Path(path)) if path is not None else None


def _client_options(endpoint: str | None, timeout_ms: int) -> dict[str, Any]:
    return {
        "timeout": timedelta(milliseconds=timeout_ms),
        "connect_timeout": timedelta(milliseconds=min(timeout_ms, 5_000)),
        "allow_http": endpoint is not None and endpoint.startswith("http:"),
    }


def _retry_config(timeout_ms: int) -> dict[str, Any]:
    return {"max_retries": _RETRIES_MAX, "retry_timeout": timedelta(milliseconds=timeout_ms)}
