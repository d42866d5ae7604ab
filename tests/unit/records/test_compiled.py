"""The compiled code and its source say the same."""

import importlib.util
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hatch_build
from barnabas.records import scan
from barnabas.records.batch import HEADER_SIZE
from barnabas.records.building import encode_batch
from barnabas.records.errors import InvalidRecordsError
from barnabas.records.record import Record
from barnabas.records.scan import scan_body

SOURCE = Path(__file__).resolve().parents[3] / "server" / "barnabas" / "records" / "scan.py"


def test_a_machine_that_can_compile_runs_compiled_code():
    """`make test` builds the wheel first; pytest run otherwise runs the sources."""
    if not os.environ.get("CI") or hatch_build.switched(os.environ.get(hatch_build.SWITCH, "")) is False:
        pytest.skip("only where make has set up everything")
    if lack := hatch_build.missing():
        pytest.skip(f"this machine cannot compile: {lack}")
    assert not scan.__file__.endswith(".py")


def source_of_scan():
    """The module `scan` from its source, whatever is in use."""
    spec = importlib.util.spec_from_file_location("scan_source", SOURCE)
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
