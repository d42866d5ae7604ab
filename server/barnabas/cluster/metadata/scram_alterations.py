"""Reasons for which AlterUserScramCredentials refuses an alteration of a user's credential. Pure.

The rule: the error of one alteration is the user's error, in Kafka's order and words.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.security.principals import has_control_character
from barnabas.security.scram import BY_TYPE, ScramMechanism
from barnabas.wire.generated.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.wire.generated.errors import ErrorCode

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
Alteration = Deletion | Upsertion
Problem = tuple[ErrorCode, str]

TWICE: Problem = (
    ErrorCode.DUPLICATE_RESOURCE,
    "A user credential cannot be altered twice in the same request",
)
NOT_THERE: Problem = (
    ErrorCode.RESOURCE_NOT_FOUND,
    "Attempt to delete a user credential that does not exist",
)


def problem_of(alteration: Alteration, has: Callable[[str, ScramMechanism], bool]) -> Problem | None:
    """Return the fault of an alteration, None if it is valid; `has` returns whether a user has a credential."""
    if not alteration.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    mechanism = BY_TYPE.get(alteration.mechanism)
    if mechanism is None:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(alteration, Deletion):
        return None if has(alteration.name, mechanism) else NOT_THERE
    if has_control_character(alteration.name):  # no client could log in with it
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not have control characters"
    if not alteration.salted_password:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty"
    if alteration.iterations < mechanism.iterations_min:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if alteration.iterations > mechanism.iterations_max:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    return None
