"""Outcomes of actions on several objects, as rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnabas.client import ClientError, ResponseError
from barnabas.client.errors import describe
from barnabas.console.base import ConsoleError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.registry.errors import RegistryError


_NO_NAMES: Mapping[str, str] = {}
_OF_NAMES: dict[int, tuple[str, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ("topic", "There is no topic {}"),
    ErrorCode.UNKNOWN_TOPIC_ID: ("topic", "Topic {} was deleted"),
    ErrorCode.TOPIC_ALREADY_EXISTS: ("topic", "There is a topic {} already"),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ("topic", "You may not do this with topic {}"),
    ErrorCode.GROUP_ID_NOT_FOUND: ("group", "There is no group {}"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ("group", "You may not do this with group {}"),
    ErrorCode.NON_EMPTY_GROUP: ("group", "Group {} has members: stop them first"),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: ("transactional id", "There is no transactional id {}"),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "transactional id", "You may not do this with transactional id {}",
    ),
}  # fmt: skip
"""Kinds of things that errors are about, and the sentence of each with the name of the thing."""
_SENTENCES: dict[int, str] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "You may not do this with the cluster",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "You may not do this with this delegation token",
    ErrorCode.SECURITY_DISABLED: "The cluster has no authorizer: there are no ACLs",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "The cluster has no delegation tokens",
    ErrorCode.TOPIC_DELETION_DISABLED: "The cluster deletes no topics: delete.topic.enable is false",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available: try again in a moment",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still loading: try again in a moment",
    ErrorCode.NOT_CONTROLLER: "The controller is changing: try again in a moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "The leader of the partition is changing: try again in a moment",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader",
    ErrorCode.REQUEST_TIMED_OUT: "The brokers did not do it in time",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Too few replicas are in sync",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "The partitions are being moved: try again after that",
    ErrorCode.OFFSET_OUT_OF_RANGE: "There is no such offset",
}
"""Sentences for others."""
_NAMED = re.compile(r"\b(topic|group|transactional id) ('[^']*'|\"[^\"]*\")")
"""A kind of thing and its name, in what a client was doing."""


def sentence_of(error: ResponseError, names: Mapping[str, str]) -> str | None:
    """Return a sentence for an error, None for an unknown one; `names` are those of the request, by their kinds."""
    if error.code not in _OF_NAMES:
        return _SENTENCES.get(error.code)
    kind, sentence = _OF_NAMES[error.code]
    own = next((name[2] for name in _NAMED.finditer(error.doing) if name[1] == kind), "")
    name = own or (repr(names[kind]) if kind in names else "")
    return sentence.format(name) if name else None


def error_text(error: ClientError, names: Mapping[str, str] = _NO_NAMES) -> str:
    """Return the text of an error in a row: a sentence, or its name and the broker's message."""
    if not isinstance(error, ResponseError):
        return str(error)
    name = describe(error.code)
    return sentence_of(error, names) or (f"{name}: {error.message}" if error.message else name)


def settled(outcomes: Mapping[Any, Any]) -> None:
    """Raise the first error of outcomes."""
    for value in outcomes.values():
        if isinstance(value, ClientError):
            raise value


def good(value: Any) -> Any:
    """Return a result, None where it is an error."""
    return None if isinstance(value, ClientError) else value


def registry_failure(error: RegistryError) -> ConsoleError:
    """Return the error for a visitor: a login refused by the registry is not the visitor's at the console."""
    is_refusal = 400 <= error.status < 600 and error.status != 401
    return ConsoleError(error.status if is_refusal else 502, error.message)
