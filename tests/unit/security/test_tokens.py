"""Delegation tokens: how long they can be used, and by which users they are renewed."""

import pytest

from barnabas.security.tokens import TIMESTAMP_MAX, Token, later

OWNER, RENEWER, REQUESTER = "User:owner", "User:renewer", "User:requester"


def token(expires_ms: int = 2_000, expires_max_ms: int = 5_000) -> Token:
    return Token("id", OWNER, REQUESTER, (RENEWER, "User:other"), 1_000, expires_ms, expires_max_ms)


@pytest.mark.parametrize(
    ("now_ms", "is_expired"), [(999, False), (1_999, False), (2_000, False), (2_001, True), (5_001, True)]
)
def test_unrenewed_token_ends_before_its_maximum_lifetime(now_ms, is_expired):
    assert token().is_expired(now_ms) is is_expired


@pytest.mark.parametrize(("now_ms", "is_expired"), [(5_000, False), (5_001, True), (8_999, True)])
def test_token_renewed_too_far_ends_at_its_maximum_lifetime(now_ms, is_expired):
    assert token(expires_ms=9_000).is_expired(now_ms) is is_expired


@pytest.mark.parametrize(
    ("now_ms", "duration_ms", "expected"),
    [(5, 10, 15), (5, TIMESTAMP_MAX - 5, TIMESTAMP_MAX), (5, TIMESTAMP_MAX, TIMESTAMP_MAX), (5, 0, 5)],
)
def test_no_time_is_after_the_largest_timestamp(now_ms, duration_ms, expected):
    assert later(now_ms, duration_ms) == expected
