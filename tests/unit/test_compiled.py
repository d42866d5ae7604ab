"""Compiled modules are used if they are of these sources, and say what the sources say."""

import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas import compiled
from barnabas.records.batch import HEADER_SIZE, encode_batch
from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import Record
from barnabas.records.scan import scan_body
from tools import accelerate

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def made(tmp_path):
    """A directory of compiled modules, and the sources that it was made of."""
    sources, directory = tmp_path / "records", tmp_path / "_compiled"
    shutil.copytree(compiled.SOURCES, sources)
    directory.mkdir()
    for name in ("scan", "batch", "barnabas__mypyc"):
        (directory / f"{name}{EXTENSION_SUFFIXES[0]}").touch()
    (directory / compiled.STAMP).write_text(compiled.stamp(str(sources)))
    return directory, sources


def test_what_was_made_of_these_sources_is_found(made):
    directory, sources = map(str, made)
    found = compiled.find(directory, sources)
    assert set(found) == {"barnabas.records.scan", "barnabas.records.batch", "barnabas__mypyc"}
    spec = compiled.Finder(found).find_spec("barnabas.records.scan")
    assert spec is not None
    assert spec.origin == found["barnabas.records.scan"]
    assert compiled.Finder(found).find_spec("barnabas.records.codecs") is None


@pytest.mark.parametrize("module", compiled.MODULES)
def test_what_was_made_of_other_sources_is_left_alone(made, module):
    directory, sources = made
    with (sources / f"{module}.py").open("a") as file:
        file.write("# changed\n")
    assert compiled.find(str(directory), str(sources)) == {}


def test_nothing_is_found_where_nothing_was_made(tmp_path):
    assert compiled.find(str(tmp_path)) == {}
    assert compiled.find(str(tmp_path / "none")) == {}


def run(command, **environment):
    done = subprocess.run(
        [sys.executable, "-c", command],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "server"), **environment},
    )
    return done.stdout.strip()


def test_the_sources_can_be_asked_for():
    where = "import barnabas.records.scan as scan, barnabas.compiled as c; print(c.IN_USE, scan.__file__)"
    assert run(where, BARNABAS_COMPILED="no") == f"False {ROOT}/server/barnabas/records/scan.py"


def test_a_machine_that_can_compile_has_done_so():
    """`make test` compiles first; who runs pytest otherwise may not have."""
    if lack := accelerate.missing():
        pytest.skip(f"this machine cannot compile: {lack}")
    if not os.environ.get("CI"):
        pytest.skip("only where make has set up everything")
    assert run("import barnabas.compiled as c; print(c.IN_USE)", BARNABAS_COMPILED="") == "True"


def source_of_scan():
    """The module `scan` from its source, whatever is in use."""
    spec = importlib.util.spec_from_file_location("scan_source", f"{compiled.SOURCES}/scan.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCAN_SOURCE = source_of_scan()


@given(st.data())
def test_both_say_the_same_of_damaged_records(data):
    values = data.draw(
        st.one_of(
            st.lists(st.binary(max_size=200), min_size=1, max_size=60),
            st.integers(1, 400).map(lambda count: [b"alike"] * count),  # looked at by columns
        )
    )
    keys = data.draw(st.sampled_from([None, b"", b"key", b"k" * 70]))
    records = [Record(n, 1_000 + n // 7, keys, value) for n, value in enumerate(values)]
    body = bytearray(encode_batch(records)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(0, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    count = len(records) + data.draw(st.sampled_from([0, 0, 0, 1]))

    def outcome(scan):
        try:
            return repr(scan(bytes(body), count, 1_000))
        except InvalidRecordsError as error:
            return str(error)

    assert outcome(scan_body) == outcome(SCAN_SOURCE.scan_body)
