"""Refusals of the Kerberos library are put into words for the log."""

import pytest

from barnabas.network.kerberos import _TABLE, TEXT_CHARS_MAX, _translated


class Refusal:
    """An error of the library's, with what it says of each code."""

    maj_code = 1

    def __init__(self, code, *, minor="minor", major="major"):
        self.min_code = (_TABLE + code) & 0xFFFFFFFF if code else 0
        self._words = {False: minor, True: major}

    def get_all_statuses(self, _code, is_major):
        return [self._words[is_major]]


@pytest.mark.parametrize(
    ("code", "hint", "is_transient"),
    [
        (32, "the ticket has expired", False),
        (33, "minor", True),
        (34, "minor", True),
        (37, "clockskew", False),
        (44, "version of the service's key", False),
        (35, "sasl.kerberos.service.name", False),
        (99, "minor", False),
        (100_000, "minor", False),
    ],
)
def test_a_code_has_a_hint_and_may_pass(code, hint, is_transient):
    error = _translated(Refusal(code))
    assert hint in str(error)
    assert str(error).startswith("minor")
    assert error.is_transient is is_transient


def test_client_names_cannot_forge_log_lines():
    error = _translated(Refusal(35, minor="Cannot decrypt ticket for a\n\x1b[2Jb" + "c" * 10_000))
    assert "a??[2Jbccc" in str(error)
    assert len(str(error)) < TEXT_CHARS_MAX + 200
