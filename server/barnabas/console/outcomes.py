"""Outcomes of what was done to several things, as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnabas.client import ClientError, ResponseError
from barnabas.client.errors import describe
from barnabas.console.base import ConsoleError

if TYPE_CHECKING:
    from barnabas.registry.errors import RegistryError


def error_text(error: ClientError) -> str:
    """Return the text of an error in a row: its name, and what the broker says of it."""
    if isinstance(error, ResponseError):
        return f"{describe(error.code)}: {error.message}" if error.message else describe(error.code)
    return str(error)


def settled(outcomes: Mapping[Any, Any]) -> None:
    """Raise the first error of outcomes."""
    for value in outcomes.values():
        if isinstance(value, ClientError):
            raise value


def good(value: Any) -> Any:
    """Return a result, None where it is an error."""
    return None if isinstance(value, ClientError) else value


def registry_failure(error: RegistryError) -> ConsoleError:
    """Return what a visitor is told: a registry that wants another login is not for theirs at the console."""
    is_refusal = 400 <= error.status < 600 and error.status != 401
    return ConsoleError(error.status if is_refusal else 502, error.message)
