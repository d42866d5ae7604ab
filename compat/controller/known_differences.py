"""Differences between a controller of Apache Kafka's and one of ours that are known, each with its reason."""

from __future__ import annotations

from compat.kit.known import Difference, KnownDifference
from compat.kit.predicates import both, is_id

TOKENS = ("token.*", "(mutated|denied) CreateDelegationToken .*")
CLOSE_MS = 60_000


def is_token_id(value: object) -> bool:
    """Say whether a text is the random id of a token."""
    return isinstance(value, str) and len(value) == 22


def is_hmac(value: object) -> bool:
    """Say whether bytes are an HMAC-SHA-512."""
    return isinstance(value, bytes) and len(value) == 64


def close(difference: Difference) -> bool:
    """Say whether two times are those of the same request."""
    return both(is_id)(difference) and abs(difference.theirs - difference.ours) < CLOSE_MS


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        ("token", "mutated CreateDelegationToken .*", "mutated RenewDelegationToken .*",
         "mutated ExpireDelegationToken .*"),
        (".*/ExpiryTimestampMs", ".*/MaxTimestampMs", ".*/maxTimestamp", ".*/expirationTimestamp"),
        "the time of the request",
        accepts=close,
    ),
    KnownDifference(
        ("token", "mutated CreateDelegationToken .*"), "/TokenId", "ids of tokens are random",
        accepts=both(is_token_id),
    ),
    KnownDifference(
        ("token", "mutated CreateDelegationToken .*"), "/Hmac", "the HMAC of a random id",
        accepts=both(is_hmac),
    ),
)  # fmt: skip
