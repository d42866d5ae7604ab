"""Reasons why a connection could not be opened, in a few words."""

from __future__ import annotations

import errno
import os

import pytest

from barnabas.network.dialing import reason_of


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "no"), "nothing listens there (connection refused)"),
        (ConnectionRefusedError("said by a proxy"), "said by a proxy"),
        (
            OSError(errno.EHOSTUNREACH, "Error connecting to ('10.0.0.1', 9092): no"),
            os.strerror(errno.EHOSTUNREACH),
        ),
        (OSError(errno.ENETDOWN, "the network is down"), "the network is down"),
        (OSError("no number"), "no number"),
        (ValueError("a value"), "a value"),
        (EOFError(), "EOFError"),
    ],
)
def test_a_reason_is_a_few_words_without_the_address(error: Exception, words: str) -> None:
    assert reason_of(error) == words
