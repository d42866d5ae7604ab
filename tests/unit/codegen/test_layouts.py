"""A version that was published never changes, and the compiler sees to it."""

import pytest

from codegen.layouts import check_layouts, extend_layouts, layout_of, read_lock
from codegen.model import SchemaError
from tests.support.schemas import definition

PING = [
    {"name": "Id", "type": "int32", "versions": "0+"},
    {"name": "Note", "type": "string", "versions": "1+", "nullableVersions": "2+"},
    {"name": "Items", "type": "[]Item", "versions": "0+", "fields": [
        {"name": "Key", "type": "uuid", "versions": "0+"}]},
]  # fmt: skip
TAG = {"name": "Extra", "type": "int8", "versions": "2+", "taggedVersions": "2+", "tag": 0}


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / "layouts.lock"
    extend_layouts([definition(fields=PING)], path)
    return path


def changed(**keys):
    return [{**PING[0], **keys}, *PING[1:]]


def test_what_was_recorded_is_accepted(lock):
    check_layouts([definition(fields=PING)], lock)
    assert set(read_lock(lock)) == {("PingRequest", version) for version in range(4)}


def test_names_defaults_and_descriptions_change_no_layout(lock):
    check_layouts([definition(fields=changed(name="Number", default="7", ignorable=True, about="x"))], lock)


@pytest.mark.parametrize(
    "fields",
    [
        changed(type="int64"),
        changed(type="uint32"),
        changed(versions="1+"),
        PING[1:],
        [PING[1], PING[0], PING[2]],
        [*PING, {"name": "More", "type": "int8", "versions": "0+"}],
        [PING[0], {**PING[1], "nullableVersions": "1+"}, PING[2]],
        [*PING[:2], {**PING[2], "fields": [{"name": "Key", "type": "string", "versions": "0+"}]}],
    ],
)
def test_changed_layout_of_a_recorded_version_is_refused(lock, fields):
    before = lock.read_text()
    for check in (check_layouts, extend_layouts):
        with pytest.raises(
            SchemaError, match=r"PingRequest: version \d was published and its layout changed"
        ):
            check([definition(fields=fields)], lock)
    assert lock.read_text() == before


def test_an_earlier_flexible_version_is_another_layout(lock):
    with pytest.raises(SchemaError, match="version 1 was published"):
        check_layouts([definition(fields=PING, flexibleVersions="1+")], lock)


def test_a_version_that_is_gone_is_refused(lock):
    with pytest.raises(SchemaError, match="version 0 was published and is gone"):
        extend_layouts([definition(fields=PING, validVersions="1-3")], lock)
    with pytest.raises(SchemaError, match="was published and is gone"):
        extend_layouts([], lock)


def test_a_new_version_is_recorded_on_demand_only(lock):
    newer = definition(fields=PING, validVersions="0-4")
    with pytest.raises(SchemaError, match=r"PingRequest v4 is not recorded.*--extend-layouts"):
        check_layouts([newer], lock)
    extend_layouts([newer], lock)
    check_layouts([newer], lock)


def test_a_version_that_may_still_change_is_not_recorded(lock):
    check_layouts([definition(fields=PING, validVersions="0-4", latestVersionUnstable=True)], lock)


def test_published_version_may_gain_but_not_lose_tagged_fields(lock):
    more = definition(fields=[*PING, TAG])
    with pytest.raises(SchemaError, match="PingRequest v2 has new tagged fields"):
        check_layouts([more], lock)
    extend_layouts([more], lock)
    check_layouts([more], lock)
    for fields in (
        PING,
        [*PING, {**TAG, "type": "int16"}],
        [*PING, {**TAG, "versions": "3+", "taggedVersions": "3+"}],
    ):
        with pytest.raises(SchemaError, match="tagged field 0=int8 changed or is gone"):
            extend_layouts([definition(fields=fields)], lock)


def test_tagged_fields_inside_structs_have_their_path():
    inner = {**PING[2], "fields": [*PING[2]["fields"], TAG]}
    assert layout_of(definition(fields=[*PING[:2], inner]), 3).tags == {"Items.0=int8"}
