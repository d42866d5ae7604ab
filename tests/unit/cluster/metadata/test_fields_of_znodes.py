"""Fields of znodes by their types: what is read, at each edge, and what is refused instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.json_znodes import ZnodeError, read

REFUSED = object()
LARGEST = 2**63 - 1


def found(ask: Any, value: Any) -> Any:
    """Return the value as which a field is read."""
    fields = read("/a", json.dumps({"it": value} if value is not REFUSED else {}).encode())
    try:
        return ask(fields)
    except ZnodeError:
        return REFUSED


@pytest.mark.parametrize(
    ("value", "integer", "int32"),
    [
        (0, 0, 0),
        (-1, -1, -1),
        (2**31 - 1, 2**31 - 1, 2**31 - 1),
        (2**31, 2**31, REFUSED),
        (-(2**31), -(2**31), -(2**31)),
        (-(2**31) - 1, -(2**31) - 1, REFUSED),
        (LARGEST, LARGEST, REFUSED),
        (LARGEST + 1, REFUSED, REFUSED),
        (-LARGEST - 1, -LARGEST - 1, REFUSED),
        (-LARGEST - 2, REFUSED, REFUSED),
        ("12", 12, 12),
        ("-12", -12, -12),
        (str(10**18), 10**18, REFUSED),
        ("9" * 19, REFUSED, REFUSED),
        ("0" * 20, REFUSED, REFUSED),
        ("0" * 19, 0, 0),
        ("", REFUSED, REFUSED),
        ("x", REFUSED, REFUSED),
        ("1.0", REFUSED, REFUSED),
        ("\u0661", REFUSED, REFUSED),
        (1.0, REFUSED, REFUSED),
        (True, REFUSED, REFUSED),
        ([1], REFUSED, REFUSED),
        (None, REFUSED, REFUSED),
    ],
)
def test_integers(value: Any, integer: Any, int32: Any) -> None:
    assert found(lambda fields: fields.integer("it"), value) == integer
    assert found(lambda fields: fields.int32("it"), value) == int32
    default = 7 if value is None else integer
    assert found(lambda fields: fields.integer("it", 7), value) == default
    assert found(lambda fields: fields.int32("it", 7), value) == (7 if value is None else int32)


# --- edges of single znodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "is_taken"),
    [
        ("0", True),
        ("999999", True),
        ("1000000", False),
        ("0000007", True),
        ("00000007", False),
        ("-1", False),
        ("\u0661", False),
    ],
)
def test_partitions_are_numbered_up_to_a_million(index: str, is_taken: bool) -> None:
    data = json.dumps({"version": 1, "partitions": {index: [1]}}).encode()
    try:
        assert list(znodes.decode_topic("t", data).partitions) == [int(index)]
        assert is_taken
    except ZnodeError:
        assert not is_taken


@pytest.mark.parametrize(("level", "is_taken"), [(0, False), (1, True), (2**15 - 1, True), (2**15, False)])
@pytest.mark.parametrize(("status", "is_status"), [(-1, False), (0, True), (1, True), (2, False)])
def test_levels_of_features(level: int, is_taken: bool, status: int, is_status: bool) -> None:
    data = json.dumps(
        {"version": 2, "status": status, "features": {"f": {"max_version_level": level}}}
    ).encode()
    if is_taken and is_status:
        assert resources.decode_features(data) == resources.FinalizedFeatures(status == 1, {"f": level})
    else:
        with pytest.raises(ZnodeError):
            resources.decode_features(data)
