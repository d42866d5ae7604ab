"""The znodes of users, client ids and IP addresses below /config, and their parts of the image. Pure.

The rule: several parts may share a znode, as a user's quotas and credentials do. A change modifies only its own settings
of the znode; unreadable ones are logged, and not in the image. In the ZooKeeper store such a znode has a ResourceKey
with a type below 0, which is never sent; its name is the path below the type, as in `alice/clients/app`, sanitized.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas.cluster.metadata.access_changes import ClientQuotaChanged, ScramCredentialChanged
from barnabas.cluster.metadata.image import Change, ClusterImage, ResourceKey
from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.security import scram
from barnabas.serving.quotas.entities import CONNECTION_CREATION_RATE, FRACTION_MAX, QuotaEntity

USERS, CLIENTS, IPS = -1, -2, -3
ENTITY_TYPES: Mapping[int, str] = {USERS: resources.USERS, CLIENTS: resources.CLIENTS, IPS: resources.IPS}
USER_CLIENTS: Final = f"/{resources.CLIENTS}/"
"""Stands between a user and a client id of that user."""

_DEFAULT_AS_A_NAME = "%3Cdefault%3E"
"""The znode of a user with the name of the znode for all users."""

_READABLE = scram.to_text(scram.ScramCredential(b"", b"", b"", 0))

Update = Mapping[str, str | None]
"""Settings that a change sets, and None for those that it removes."""


def key_of_quotas(entity: QuotaEntity) -> ResourceKey:
    """Return the key of the znode that has an entity's quotas."""
    if entity.ip is not None:
        return IPS, _znode_name(entity.ip)
    if entity.user is None:
        return CLIENTS, _znode_name(entity.client_id or "")
    name = _znode_name(entity.user)
    return USERS, name if entity.client_id is None else name + USER_CLIENTS + _znode_name(entity.client_id)


def quota_entity(key: ResourceKey) -> QuotaEntity | None:
    """Return the entity of the quotas in a znode, None for an invalid name."""
    kind, name = key
    if kind == IPS:
        return QuotaEntity(ip=_entity_name(name))
    if kind == CLIENTS:
        return QuotaEntity(client_id=_entity_name(name))
    user, separator, client_id = name.partition(USER_CLIENTS)
    if "/" in user or "/" in client_id or not user or (separator and not client_id):
        return None
    return QuotaEntity(_entity_name(user), _entity_name(client_id) if separator else None)


def key_of_user(user: str) -> ResourceKey:
    """Return the key of the znode that has a user's SCRAM credentials."""
    return USERS, _DEFAULT_AS_A_NAME if user == resources.DEFAULT else resources.sanitized(user)


def user_of(key: ResourceKey) -> str | None:
    """Return the user of the credentials in a znode; None for one without, as that of all users."""
    kind, name = key
    if kind != USERS or "/" in name or name == resources.DEFAULT:
        return None
    return resources.desanitized(name)


def _znode_name(name: str) -> str:
    return resources.sanitized(name) if name else resources.DEFAULT


def _entity_name(name: str) -> str:
    return "" if name == resources.DEFAULT else resources.desanitized(name)


def known(image: ClusterImage) -> Iterator[ResourceKey]:
    """Yield the keys of the znodes with content in this image."""
    for entity in image.quotas:
        yield key_of_quotas(entity)
    yield from map(key_of_user, image.scram)


def changes(image: ClusterImage, key: ResourceKey, settings: Mapping[str, str]) -> Iterator[Change]:
    """Yield the changes that update the image to the settings of a znode."""
    entity = quota_entity(key)
    if entity is not None:
        quotas = dict(_quotas(entity, settings))
        if quotas != image.quotas.get(entity, {}):
            yield ClientQuotaChanged(entity, tuple(quotas.items()))
    user = user_of(key)
    if user is not None:
        yield from _credentials(image, user, settings)


def _credentials(image: ClusterImage, user: str, settings: Mapping[str, str]) -> Iterator[Change]:
    """Yield changed credentials of a user; an unreadable one keeps its former value."""
    known_ones = image.scram.get(user, {})
    for mechanism in scram.MECHANISMS:
        text = settings.get(mechanism)
        try:
            credential = scram.of_text(text) if text is not None else None
        except ValueError:
            continue
        if credential != known_ones.get(mechanism):
            yield ScramCredentialChanged(user, mechanism, credential)


def unreadable(key: ResourceKey, settings: Mapping[str, str]) -> Iterator[str]:
    """Return the names of settings that should be part of the image and cannot be read."""
    entity = quota_entity(key)
    if entity is not None:
        readable = {name for name, _ in _quotas(entity, settings)}
        yield from (name for name in settings if name in entity.known_quotas and name not in readable)
    if user_of(key) is not None:
        for mechanism in scram.MECHANISMS:
            try:
                scram.of_text(settings.get(mechanism, _READABLE))
            except ValueError:
                yield mechanism


def _quotas(entity: QuotaEntity, settings: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for name, text in sorted(settings.items()):
        if name in entity.known_quotas:
            try:
                value = float(text)
            except ValueError:
                continue
            if not math.isnan(value):
                yield name, value


def update(change: Change, settings: Mapping[str, str]) -> tuple[ResourceKey, Update] | None:
    """Return the znode and the settings that a change modifies, None for a change stored elsewhere.

    `settings` is the content of the znode: unchanged numbers keep their text.
    """
    if isinstance(change, ClientQuotaChanged):
        entity, quotas = change.entity, dict(change.quotas)
        limits: dict[str, str | None] = {}
        for name in entity.known_quotas:
            value = quotas.get(name)
            limits[name] = None if value is None else number_text(name, value)
        same = dict(_quotas(entity, settings))
        for name, value in quotas.items():
            if same.get(name) == value:
                limits[name] = settings[name]
        return key_of_quotas(entity), limits
    if isinstance(change, ScramCredentialChanged):
        credential = change.credential
        text = scram.to_text(credential) if credential is not None else None
        return key_of_user(change.user), {change.mechanism: text}
    return None


def number_text(name: str, value: float) -> str:
    """Return a limit as text: whole numbers without a point where Kafka expects them."""
    if name.endswith("_byte_rate") or name == CONNECTION_CREATION_RATE:
        return str(min(int(value + FRACTION_MAX), 2**63 - 1))
    return "Infinity" if value == math.inf else repr(float(value))


def key_of(entity_type: str, name: str) -> ResourceKey | None:
    """Return the key of an entity in /config, None for another type."""
    for kind, known_type in ENTITY_TYPES.items():
        if known_type == entity_type:
            return kind, name
    return None
