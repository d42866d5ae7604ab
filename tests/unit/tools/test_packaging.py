"""Files of a release are compared member by member, and summed as sha256sum does."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from tools.packaging import pythons, serving
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
    result = differences(release(tmp_path / "one", "a"), release(tmp_path / "two", "b"))
    assert result == ["small-1-py3-none-any.whl: small/other.py"]


def test_a_file_that_was_made_once_is_named(tmp_path):
    entry, two = release(tmp_path / "one", "a"), release(tmp_path / "two", "a")
    (two / "small-1.tar.gz").unlink()
    assert differences(entry, two) == ["small-1.tar.gz is there once"]


def test_the_sums_are_those_of_sha256sum(tmp_path):
    directory = release(tmp_path / "one", "a")
    (directory / SUMS).write_text(sums(directory))
    done = subprocess.run(
        ["sha256sum", "--check", SUMS], cwd=directory, capture_output=True, text=True, check=True
    )
    assert done.stdout.count(": OK\n") == 2


def test_packages_are_weighed_without_preinstalled_ones(tmp_path):
    packages = tmp_path / "lib/python3.11/site-packages"
    for name in ("pip-26.0.dist-info", "setuptools", "trio-0.35.0.dist-info", "trio"):
        (packages / name).mkdir(parents=True)
        (packages / name / "file").write_bytes(bytes(300_000))
    (packages / "six.py").write_bytes(bytes(400_000))
    assert pythons.weight(tmp_path) == (1, 1.0)


def test_each_version_of_python_is_found_once(tmp_path, monkeypatch):
    monkeypatch.setattr(pythons, "HERE", (str(tmp_path / "*/bin/python3"),))
    for name, version in (("a", "3.12.1"), ("b", "3.12.9"), ("c", "3.10.3"), ("d", "3.14.0")):
        program = tmp_path / name / "bin/python3"
        program.parent.mkdir(parents=True)
        major, minor, _ = version.split(".")
        program.write_text(f"#!/bin/sh\nprintf 'cp{major}{minor}\\n{version}\\n{major} {minor}\\n'\n")
        program.chmod(0o755)
    (tmp_path / "e/bin").mkdir(parents=True)
    (tmp_path / "e/bin/python3").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "e/bin/python3").chmod(0o755)
    result = pythons.found(["no-such-python"])
    assert [(python.tag, python.version) for python in result] == [("cp312", "3.12.1"), ("cp314", "3.14.0")]


def test_records_pass_a_broker_in_written_order(kafka_broker):
    serving.records_through(kafka_broker.bootstrap, 3)
    assert [record.value for record in kafka_broker.records("greetings")] == [
        serving.MESSAGE,
        b"message 1",
        b"message 2",
    ]


def test_a_record_too_many_is_noticed(kafka_broker):
    kafka_broker.create_topic("greetings", records=[b"of somebody else"])
    with pytest.raises(RuntimeError, match="read 2 of 2 records, the first"):
        serving.records_through(kafka_broker.bootstrap, 2)
