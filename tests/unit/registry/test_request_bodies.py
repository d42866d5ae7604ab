"""Bodies of requests: every part of each kind of value, and what becomes of the few that are taken."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.registry.errors import RegistryError
from barnabas.registry.request_bodies import schema_of
from tests.unit.registry.test_requests import Asked

VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    1.5,
    "",
    " ",
    "x",
    [],
    [1],
    ["x"],
    [{}],
    {},
    {"a": 1},
    {"a": {}},
    {"a": ["x"]},
]
SCHEMA = '"int"'
WRONG, NULL, INVALID, RULES = (400, 400), (422, 422), (422, 42201), (422, 42210)
REFERENCE = {"name": "n", "subject": "s", "version": 1}
RULE = {"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL"}


def answer(body: Any) -> Any:
    """Return the schema of a body, or status and code of its refusal."""
    try:
        return schema_of(body)
    except RegistryError as error:
        return error.status, error.code


def is_taken(body: Any) -> bool:
    return not isinstance(answer(body), tuple)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("schemaType", [None]),
        ("references", [None, []]),
        ("metadata", [None, {}, {"a": 1}, {"a": {}}, {"a": ["x"]}]),
        ("ruleSet", [None, {}, {"a": 1}, {"a": {}}, {"a": ["x"]}]),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused(name: str, taken: list[Any]) -> None:
    accepted = [value for value in VALUES if is_taken({"schema": SCHEMA, name: value})]
    assert accepted == taken


@pytest.mark.parametrize("body", VALUES)
async def test_a_body_without_a_schema_is_refused_by_every_route(body: Any) -> None:
    asked = Asked()
    await asked("POST", "/subjects/s/versions", {"schema": SCHEMA})
    expected = NULL if body is None else INVALID if isinstance(body, dict) else WRONG
    for path in ("/subjects/s", "/subjects/s/versions", "/compatibility/subjects/s/versions/latest"):
        assert await asked.refused("POST", path, body) == expected, path
    assert len(asked.written.records) == 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": None}, INVALID), ({"name": ""}, INVALID), ({"name": 5}, WRONG), ({"subject": None}, INVALID),
        ({"subject": []}, WRONG), ({"version": None}, INVALID), ({"version": "1"}, WRONG), ({"version": 1.5}, WRONG),
        ({"version": True}, WRONG),
    ],
)  # fmt: skip
def test_a_reference_lacks_nothing(changes: dict[str, Any], expected: tuple[int, int]) -> None:
    assert is_taken({"schema": SCHEMA, "references": [REFERENCE]})
    assert answer({"schema": SCHEMA, "references": [{**REFERENCE, **changes}]}) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kind": "NOPE"}, WRONG), ({"kind": "condition"}, WRONG), ({"mode": "NOPE"}, WRONG), ({"mode": 5}, WRONG),
        ({"type": None}, RULES), ({"type": 5}, WRONG), ({"name": None}, RULES), ({"name": ""}, RULES), ({"name": 5}, WRONG),
        ({"name": "1r"}, RULES), ({"name": "-r"}, RULES), ({"name": "a b"}, RULES), ({"name": "r" * 257}, RULES),
        ({"name": "_r-1"}, None), ({"name": "é"}, None), ({"expr": []}, WRONG), ({"tags": "x"}, WRONG),
        ({"params": []}, WRONG),
        ({"disabled": "no"}, WRONG), ({"onFailure": "NONE,DLQ"}, RULES),
        ({"onFailure": "NONE,DLQ", "mode": "WRITEREAD"}, None),
    ],
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused(
    changes: dict[str, Any], expected: tuple[int, int] | None
) -> None:
    answered = answer({"schema": SCHEMA, "ruleSet": {"domainRules": [{**RULE, **changes}]}})
    assert (answered if isinstance(answered, tuple) else None) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [(None, NULL), ([], WRONG), (5, WRONG), ("FULL", WRONG), ({"compatibility": 5}, (422, 42203)),
     ({"compatibility": "x"}, (422, 42203)), ({"normalize": "x"}, (422, 422))],
)  # fmt: skip
async def test_settings_of_the_wrong_kind_are_refused(body: Any, expected: tuple[int, int]) -> None:
    asked = Asked()
    assert await asked.refused("PUT", "/config/s", body) == expected
    assert await asked.refused("PUT", "/config", body) == expected
    assert asked.written.records == []


async def test_a_setting_that_is_null_is_taken_back() -> None:
    asked = Asked()
    for body, answered, level, shown in (
        (
            {"compatibility": "FULL", "normalize": True},
            {"compatibility": "FULL", "normalize": True},
            "FULL",
            True,
        ),
        ({}, {"compatibility": "FULL", "normalize": True}, "FULL", True),
        ({"normalize": None}, {"compatibility": "FULL"}, "FULL", None),
        ({"compatibility": None}, {}, "BACKWARD", None),
        ({"normalize": False}, {"normalize": False}, "BACKWARD", False),
    ):
        assert await asked("PUT", "/config/s", body) == answered
        for query in ("", "?defaultToGlobal=true"):
            config = await asked("GET", f"/config/s{query}")
            assert (config["compatibilityLevel"], config.get("normalize")) == (level, shown)
    assert await asked("DELETE", "/config/s") == {"compatibilityLevel": "BACKWARD", "normalize": False}
    assert await asked.refused("GET", "/config/s") == (404, 40408)


async def test_what_is_not_there_has_the_code_that_clients_look_for() -> None:
    asked = Asked()
    body = {"schema": SCHEMA}
    await asked("POST", "/subjects/s/versions", body)
    assert (await asked("GET", "/subjects/s/versions/Latest"))["schemaType"] == "AVRO"
    assert await asked.refused("POST", "/compatibility/subjects/none/versions/1", body) == (404, 40402)
    assert await asked("POST", "/compatibility/subjects/none/versions/latest", body) == {
        "is_compatible": True
    }
    wide = {"schema": '{"type":"record","name":"R","fields":[]}'}
    assert await asked.refused("POST", "/subjects/s/versions", wide) == (409, 40901)
    for path in ("subjects", "versions"):
        with pytest.raises(RegistryError, match=r"Schema not found \(40403\)"):
            await asked("GET", f"/schemas/ids/9/{path}")
    assert await asked.refused("POST", "/subjects/none", {**body, "schemaType": "XML"}) == INVALID
