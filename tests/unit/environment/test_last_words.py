"""Words for what ends a program: output that cannot be written, and packages that are not installed."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from barnabas.environment import extras, output


@pytest.mark.parametrize("number", output.ERRORS)
def test_unwritable_output_is_one_line_and_dropped(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "output").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        stream.write("what is left in the buffer")
        reason = os.strerror(number)
        assert output.explain(OSError(number, reason)) == f"cannot write to standard output: {reason}"
    assert (tmp_path / "output").read_text() == "", "it would be tried again when the process ends"


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "no space", "a file"), OSError(errno.ECONNRESET, "a peer has gone"), OSError("x")],
)
def test_other_errors_are_not_about_the_output_which_goes_on(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "output").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert output.explain(error) is None
        stream.write("more")
    assert (tmp_path / "output").read_text() == "more"


@pytest.mark.parametrize("module", ["joserfc", "joserfc.jwk"])
def test_a_package_that_is_missing_is_told_with_its_extra(module: str) -> None:
    assert extras.explain(ModuleNotFoundError(name=module)) == (
        "the package joserfc is missing, which the extra `security` brings: pip install 'barnabas[security]'"
    )


@pytest.mark.parametrize("module", ["barnabas.nothing", "nothing", None])
def test_what_no_extra_brings_is_left_to_its_traceback(module: str | None) -> None:
    assert extras.explain(ModuleNotFoundError(name=module)) is None
