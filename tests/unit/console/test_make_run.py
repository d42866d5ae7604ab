"""The console of `make run`."""

import pytest

from tools.run import with_console


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["--console"]),
        (["--ephemeral"], ["--ephemeral", "--console"]),
        (["--no-console", "--ephemeral"], ["--ephemeral"]),
        (["--console", "127.0.0.1:1"], ["--console", "127.0.0.1:1"]),
        (["--console=127.0.0.1:1"], ["--console=127.0.0.1:1"]),
        (["--workers", "2"], ["--workers", "2"]),
    ],
)
def test_checkout_serves_its_console_unless_told_otherwise(options: list[str], expected: list[str]) -> None:
    assert with_console(options) == expected
