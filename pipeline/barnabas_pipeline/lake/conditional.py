"""Conditional puts into object stores (put if absent): the one request that Arrow's file systems do not offer.

The rule: the store decides, by a condition of the request itself, so of many writers one succeeds. Properties are
pyiceberg's, as for Arrow's file system of the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from barnabas_pipeline.errors import UsageError

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

S3 = {
    "s3.endpoint": "endpoint",
    "s3.anonymous": "skip_signature",
    "s3.force-virtual-addressing": "virtual_hosted_style_request",
}
GCS = {"gcs.oauth2.token": "bearer_token", "gcs.service.host": "base_url"}
AZURE = {
    "adls.account-name": "account_name",
    "adls.account-key": "account_key",
    "adls.sas-token": "sas_key",
    "adls.tenant-id": "tenant_id",
    "adls.client-id": "client_id",
    "adls.client-secret": "client_secret",
}
SCHEMES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), ("s3", S3)),
    "gs": ("gs", GCS),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), ("abfs", AZURE)),
}
"""The schemes of object stores: the client's name of each, and its settings by property."""
RETRIES: RetryConfig = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}


def create(location: str, data: bytes, properties: Mapping[str, str], region: str | None) -> bool:
    """Put an object if it does not exist; False: it exists. Raises UsageError, and OSError: the object may exist then."""
    try:
        import obstore
        from obstore import exceptions
    except ImportError:
        raise UsageError(f"{location} needs a client that puts if absent: pip install obstore") from None
    try:
        scheme, _, path = location.partition("://")
        bucket, _, key = path.partition("/")
        obstore.put(_open(scheme, bucket, properties, region), key, data, mode="create")
    except exceptions.AlreadyExistsError:
        return False
    except (exceptions.BaseError, FileNotFoundError) as error:  # not found: the bucket
        raise OSError(f"{location}: {error}".splitlines()[0]) from error
    return True


def _open(scheme: str, bucket: str, properties: Mapping[str, str], region: str | None) -> ObjectStore:
    from obstore import store

    kind, names = SCHEMES[scheme]
    config: dict[str, str] = {own: properties[name] for name, own in names.items() if name in properties}
    options: dict[str, object] = {"allow_http": True}
    more: dict[str, object] = {}
    if kind == "s3":
        config |= {"region": region} if region else {}
        keys = _keys(properties, region)
        more |= {} if keys is None else {"credential_provider": lambda: keys}
        for name, own in (("s3.connect-timeout", "connect_timeout"), ("s3.request-timeout", "timeout")):
            if name in properties:
                options[own] = timedelta(seconds=float(properties[name]))
        options |= {"proxy_url": properties["s3.proxy-uri"]} if "s3.proxy-uri" in properties else {}
    if kind == "abfs" and "adls.blob-storage-authority" in properties:
        account, authority = config.get("account_name", ""), properties["adls.blob-storage-authority"]
        host = f"{account}{authority}" if authority.startswith(".") else f"{authority}/{account}"
        config["endpoint"] = f"{properties.get('adls.blob-storage-scheme', 'https')}://{host}"
    return store.from_url(
        f"{kind}://{bucket}", config=config, client_options=options, retry_config=RETRIES, **more
    )


def _keys(properties: Mapping[str, str], region: str | None) -> dict[str, str | None] | None:
    """Return S3 keys as Arrow finds them: of the properties, of a role named there, or by the chain of AWS' library.

    None: without that library the client takes them from environment, workload token or instance. Raises UsageError.
    """

    def setting(name: str) -> str | None:
        return properties.get(f"s3.{name}") or properties.get(f"client.{name}")

    keys = [setting("access-key-id"), setting("secret-access-key"), setting("session-token")]
    role = setting("role-arn")
    has_library = find_spec("boto3") is not None
    if role and not has_library:
        raise UsageError("s3.role-arn needs AWS' library, for results: pip install boto3")
    if has_library and (role or not keys[0]):
        from boto3 import Session

        session = Session(*keys, region)
        if role:
            name = setting("role-session-name") or "barnabas"
            answer = session.client("sts").assume_role(RoleArn=role, RoleSessionName=name)["Credentials"]
            keys = [answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"]]
        elif credentials := session.get_credentials():
            keys = [credentials.access_key, credentials.secret_key, credentials.token]
    if not keys[0]:
        return None
    return {"access_key_id": keys[0], "secret_access_key": keys[1], "token": keys[2], "expires_at": None}
