"""Secrets of the metadata, which are never shown: credentials, and the values of settings that are or may be secrets. Pure.

The rule: a setting in the tables is hidden if it is a password there; another one if it belongs to a plugin, or its name
has a word such as "password".
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from barnabas.cluster.kraft.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.config import client_metrics, group, tables, topic
from barnabas.config.setting import Setting
from barnabas.security.scram import HIDDEN

_SECRET_WORDS: Final = re.compile(r"pass|pwd|secret|cred|token|jaas|key|private|auth|cert", re.IGNORECASE)
_HIDDEN_BYTES: Final = HIDDEN.encode()


def shown_value(resource_type: int, name: str, value: str | None) -> str | None:
    """Return a setting's value, hidden if it is secret; None stays None."""
    return HIDDEN if value and is_secret(resource_type, name) else value


def is_secret(resource_type: int, name: str) -> bool:
    """Return whether a setting's value is hidden."""
    setting = _find(resource_type, name)
    if setting is not None:
        return setting.sensitive
    return tables.belongs_to_plugin(name) or _SECRET_WORDS.search(name) is not None


def _find(resource_type: int, name: str) -> Setting[Any] | None:
    if resource_type == TOPIC:
        return topic.SETTINGS.get(name)
    if resource_type == BROKER:
        return tables.find(name)
    if resource_type == CLIENT_METRICS:
        return client_metrics.SETTINGS.get(name)
    return group.find(name) if resource_type == GROUP else None


def without_secrets(message: Any) -> Any:
    """Return a metadata record with its secrets hidden: the same record if it has none, otherwise a copy."""
    name = type(message).__name__
    if name == "ConfigRecord":
        return replace(message, value=shown_value(message.resource_type, message.name, message.value))
    if name == "UserScramCredentialRecord":
        return replace(message, salt=_HIDDEN_BYTES, stored_key=_HIDDEN_BYTES, server_key=_HIDDEN_BYTES)
    return message
