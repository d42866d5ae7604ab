"""Allowed differences of a streams group of which Kafka has refused a static member."""

from __future__ import annotations

from typing import Any

import pytest

from compat.groups.known_differences import carl_is_there
from compat.kit.known import KnownDifference, differences_of


def _tasks(*numbers: int) -> dict[str, Any]:
    active = [{"SubtopologyId": "0", "Partitions": list(numbers)}] if numbers else []
    return {"ActiveTasks": active, "StandbyTasks": [], "WarmupTasks": []}


def _member(name: str, target: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "MemberId": f"id-of-{name}", "MemberEpoch": 3, "InstanceId": "i-carl" if name == "carl" else None,
        "ClientId": name, "Assignment": _tasks(), "TargetAssignment": target,
    } | changes  # fmt: skip


def _is_accepted(*ours: dict[str, Any]) -> bool:
    theirs = [_member("anna", _tasks(0, 1, 2), MemberEpoch=2)]
    whole = [{"Groups": [{"GroupId": "g", "Members": list(members)}]} for members in (theirs, ours)]
    (result,) = differences_of("then: StreamsGroupDescribe", *whole)
    return KnownDifference(".*", ".*/Members", "he is served", carl_is_there).covers(result)


def test_carl_has_a_part_of_what_anna_had() -> None:
    assert _is_accepted(_member("anna", _tasks(0, 1)), _member("carl", _tasks(2)))
    assert _is_accepted(_member("anna", _tasks(2)), _member("carl", _tasks(0, 1)))


@pytest.mark.parametrize(
    ("anna", "carl"),
    [
        (_member("anna", _tasks(0, 1)), _member("carl", _tasks())),  # nobody is to have 2
        (_member("anna", _tasks(0, 1)), _member("carl", _tasks(1, 2))),  # two are to have 1
        (_member("anna", _tasks(0, 1), ClientId="x"), _member("carl", _tasks(2))),
        (_member("anna", _tasks(0, 1)), _member("carl", _tasks(2), InstanceId=None)),
        (_member("bert", _tasks(0, 1)), _member("carl", _tasks(2))),
        (_member("anna", _tasks(0, 1)), _member("bert", _tasks(2))),
        (
            _member("anna", _tasks(0, 1), Assignment=_tasks(0)),
            _member("carl", _tasks(2), Assignment=_tasks(0)),
        ),
    ],
)
def test_what_else_is_there_is_refused(anna: Any, carl: Any) -> None:
    assert not _is_accepted(anna, carl)
