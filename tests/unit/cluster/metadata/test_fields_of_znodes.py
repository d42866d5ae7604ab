"""Fields of znodes by their types: what is read, at each edge, and what is refused instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.json_znodes import Fields, ZnodeError, read

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


@pytest.mark.parametrize(
    ("value", "loose", "strict"),
    [
        (0, REFUSED, REFUSED),
        (1, 1, 1),
        (3, 3, 3),
        (4, 4, REFUSED),
        (-1, REFUSED, REFUSED),
        (None, REFUSED, REFUSED),
    ],
)
def test_versions(value: Any, loose: Any, strict: Any) -> None:
    def ask(fields: Fields, *, is_strict: bool) -> int:
        again = Fields("/a", {"version": fields._value["it"], "it": 0}, b"")
        try:
            return again.version(3, is_strict=is_strict)
        except ZnodeError as error:
            raise ZnodeError("/a", f'"it": {error}') from error

    assert found(lambda fields: ask(fields, is_strict=False), value) == loose
    assert found(lambda fields: ask(fields, is_strict=True), value) == strict


@pytest.mark.parametrize(
    ("value", "text", "optional"),
    [("x", "x", "x"), ("", "", ""), (None, REFUSED, None), (1, REFUSED, REFUSED), (["x"], REFUSED, REFUSED)],
)
def test_texts(value: Any, text: Any, optional: Any) -> None:
    assert found(lambda fields: fields.text("it"), value) == text
    assert found(lambda fields: fields.optional_text("it"), value) == optional
    assert found(lambda fields: "it" in fields, value) is (value is not None)


def test_a_text_that_is_missing_may_have_a_default() -> None:
    assert found(lambda fields: fields.text("it", "d"), REFUSED) == "d"
    assert found(lambda fields: fields.text("it", "d"), "x") == "x"


@pytest.mark.parametrize(
    ("value", "ids", "texts"),
    [
        ([], (), ()),
        ([1, 2], (1, 2), REFUSED),
        ([-1, 2**31 - 1], (-1, 2**31 - 1), REFUSED),
        ([-2], REFUSED, REFUSED),
        ([2**31], REFUSED, REFUSED),
        ([True], REFUSED, REFUSED),
        (["a", "b"], REFUSED, ("a", "b")),
        (["a", 1], REFUSED, REFUSED),
        (None, REFUSED, REFUSED),
        ("ab", REFUSED, REFUSED),
        ({"a": 1}, REFUSED, REFUSED),
    ],
)
def test_lists(value: Any, ids: Any, texts: Any) -> None:
    assert found(lambda fields: fields.ids("it"), value) == ids
    assert found(lambda fields: fields.texts("it"), value) == texts


@pytest.mark.parametrize(
    ("value", "one", "many"),
    [
        ({"a": 1}, ["a"], REFUSED),
        ({}, [], REFUSED),
        (None, [], REFUSED),
        ([], REFUSED, []),
        ([{"a": 1}, {"b": 2}], REFUSED, [["a"], ["b"]]),
        ([1], REFUSED, REFUSED),
        ("x", REFUSED, REFUSED),
        (0, REFUSED, REFUSED),
    ],
)
def test_objects(value: Any, one: Any, many: Any) -> None:
    assert found(lambda fields: list(fields.object("it").names()), value) == one
    assert found(lambda fields: [list(each.names()) for each in fields.objects("it")], value) == many


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


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"0", 0),
        (b"-1", -1),
        (b"%d" % LARGEST, LARGEST),
        (b"%d" % (LARGEST + 1), None),
        (b"%d" % (-LARGEST - 1), -LARGEST - 1),
        (b"%d" % (-LARGEST - 2), None),
        (b"", None),
        (b"-", None),
        (b"--1", None),
        (b"x", None),
    ],
)
def test_offsets_of_old_consumers(data: bytes, offset: int | None) -> None:
    if offset is None:
        with pytest.raises(ZnodeError):
            resources.decode_offset("/a", data)
    else:
        assert resources.decode_offset("/a", data) == offset


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


@pytest.mark.parametrize(
    ("data", "epoch"),
    [(b"0", 0), (b"2147483647", 2**31 - 1), (b"2147483648", None), (b"", None), (b"-1", None), (b"1.", None)],
)
def test_epochs_and_ids_of_controllers(data: bytes, epoch: int | None) -> None:
    for read_it in (
        znodes.decode_controller_epoch,
        lambda one: znodes.decode_controller(one).broker_id,
    ):
        if epoch is None:
            with pytest.raises(ZnodeError):
                read_it(data)
        else:
            assert read_it(data) == epoch


@pytest.mark.parametrize(
    ("first", "last", "count"), [(0, 0, 1), (5, 9, 5), (5, 4, None), (-1, 3, None), (0, LARGEST, LARGEST + 1)]
)
def test_blocks_of_producer_ids(first: int, last: int, count: int | None) -> None:
    data = json.dumps({"version": 1, "broker": 3, "block_start": str(first), "block_end": last}).encode()
    if count is None:
        with pytest.raises(ZnodeError):
            znodes.decode_producer_ids(data)
    else:
        assert znodes.decode_producer_ids(data) == znodes.ProducerIdBlock(3, first, count)
