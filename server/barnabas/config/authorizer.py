"""Settings about the authorizer and delegation tokens. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config import broker as settings
from barnabas.config.setting import SettingError

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def has_authorizer(config: BrokerConfig) -> bool:
    """Return whether any request may be denied."""
    return bool(config.get(settings.AUTHORIZER_CLASS_NAME))


def follows_acl_authorizer(config: BrokerConfig) -> bool:
    """Return whether decisions are those of a Kafka that stores its ACLs in ZooKeeper (`AclAuthorizer`, up to 3.9)."""
    return bool(config.get(settings.AUTHORIZER_CLASS_NAME) == ACL_AUTHORIZER)


def super_users(config: BrokerConfig) -> frozenset[str]:
    """Return the principals that may do any operation. Raises SettingError."""
    text = config.get(settings.SUPER_USERS) or ""
    principals = frozenset(part for part in map(str.strip, text.split(";")) if part)
    for principal in principals:
        if ":" not in principal:
            raise SettingError(
                f"{settings.SUPER_USERS.name}={text}: principals with semicolons between them expected, "
                f"such as User:alice; {principal!r} is none"
            )
    return principals


def token_secret_key(config: BrokerConfig) -> str | None:
    """Return the key that signs delegation tokens, under its name or its older one; None if it is not set."""
    new, old = (
        config.get(settings.DELEGATION_TOKEN_SECRET_KEY),
        config.get(settings.DELEGATION_TOKEN_MASTER_KEY),
    )
    return new or old or None
