"""Files of a release are compared member by member, and summed as sha256sum does."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

from tools.packaging.release import SUMS, differences, sums


def release(directory: Path, source: str) -> Path:
    directory.mkdir()
    with zipfile.ZipFile(directory / "small-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(zipfile.ZipInfo("small/same.py"), "")
        wheel.writestr(zipfile.ZipInfo("small/other.py"), source)
    (directory / "small-1.tar.gz").write_bytes(b"x")
    return directory


def test_what_is_equal_has_no_differences(tmp_path):
    assert differences(release(tmp_path / "one", "a"), release(tmp_path / "two", "a")) == []


def test_the_member_of_a_wheel_that_differs_is_named(tmp_path):
    found = differences(release(tmp_path / "one", "a"), release(tmp_path / "two", "b"))
    assert found == ["small-1-py3-none-any.whl: small/other.py"]


def test_a_file_that_was_made_once_is_named(tmp_path):
    one, two = release(tmp_path / "one", "a"), release(tmp_path / "two", "a")
    (two / "small-1.tar.gz").unlink()
    assert differences(one, two) == ["small-1.tar.gz is there once"]


def test_the_sums_are_those_of_sha256sum(tmp_path):
    directory = release(tmp_path / "one", "a")
    (directory / SUMS).write_text(sums(directory))
    done = subprocess.run(
        ["sha256sum", "--check", SUMS], cwd=directory, capture_output=True, text=True, check=True
    )
    assert done.stdout.count(": OK\n") == 2
