"""Answers of a registry and what a job makes of them: asks again, refuses the record, is incomplete. Without a registry."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.registry.errors import RegistryError
from barnabas.registry.schemas import Schema
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.formats import registry as registries
from barnabas_pipeline.formats.registry import Registry, Schemas

SCHEMA = Schema("AVRO", '"long"')


def no(status: int) -> RegistryError:
    return RegistryError(status, 0, f"status {status}")


class Client:
    """Stands for a client; answers what it is told to, one after the other."""

    url = "http://r"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def _next(self, *_: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    schema = latest = _next


@pytest.mark.parametrize(
    ("answers", "outcome", "pauses"),
    [
        (["a"], "a", []),
        ([no(0), "a"], "a", [0.2]),
        ([no(500), no(429), "a"], "a", [0.2, 0.4]),
        ([no(500), no(503), no(0)], None, [0.2, 0.4]),
        ([no(401)], None, []),
        ([no(499)], None, []),
        ([no(0), no(400)], None, [0.2]),
    ],
)
def test_transient_errors_of_a_registry_are_retried(
    answers: list[Any], outcome: str | None, pauses: list[float]
) -> None:
    client, slept = Client(*answers), list[float]()
    if outcome is None:
        with pytest.raises(IncompleteError, match=f"the schema registry: {answers[-1]}"):
            registries.ask(client.schema, sleep=slept.append)
    else:
        assert registries.ask(client.schema, sleep=slept.append) == outcome
    assert slept == pytest.approx(pauses)
    assert client.answers == []


def test_missing_subject_or_schema_is_none_and_others_raise() -> None:
    client: Any = Client()
    registry = Registry("http://r", asked=client)
    client.answers = ["found"]
    assert registry.latest("s") == "found"
    for ask, usage in ((registry.latest, True), (registry.schema, False)):
        client.answers = [no(404)]
        if usage:
            with pytest.raises(UsageError, match="http://r has no subject 5"):
                ask(5)  # type: ignore[arg-type]
        else:
            assert ask(5) is None  # type: ignore[arg-type]
        client.answers = [no(403)]
        with pytest.raises(IncompleteError, match="status 403"):
            ask(6)  # type: ignore[arg-type]


def test_schema_is_requested_once_and_a_missing_one_again() -> None:
    now, there, asked = [100.0], dict[int, Schema](), list[int]()
    schemas, registry = Schemas(lambda: now[0]), Registry("http://r")

    def schema(schema_id: int, of: Registry = registry) -> Schema | None:
        def look_up() -> tuple[Schema | None, None]:
            asked.append(schema_id)
            return there.get(schema_id), None

        return schemas.of(of, schema_id, look_up)[0]

    there[1] = SCHEMA
    assert [schema(1), schema(2), schema(1), schema(2)] == [SCHEMA, None] * 2
    now[0] += registries.ASK_AGAIN_SECONDS - 0.1
    assert (schema(2), asked) == (None, [1, 2])
    now[0] += 0.2
    there[2] = SCHEMA
    assert (schema(2), asked) == (SCHEMA, [1, 2, 2])
    now[0] += 1e9
    there.clear()
    assert [schema(1), schema(2)] == [SCHEMA] * 2, "what is there stays as it is"
    assert asked == [1, 2, 2]
    assert schema(1, Registry("http://other")) is None, "another registry has other schemas"


def test_schema_without_sense_is_there_and_not_understood() -> None:
    client: Any = Client(Schema("AVRO", "?"))
    registry = Registry("http://senseless", asked=client)
    assert (registry.schema(3), registry.understood(3)) == (Schema("AVRO", "?"), None)


@pytest.mark.parametrize(
    ("strategy", "record", "is_key", "subject"),
    [
        ("topic", "", False, "t-value"),
        ("topic", "r", True, "t-key"),
        ("record", "r", False, "r"),
        ("record", "r", True, "r"),
        ("topic-record", "r", False, "t-r"),
        ("record", "", False, None),
        ("topic-record", "", True, None),
    ],
)
def test_subjects_are_named_by_topic_or_record(
    strategy: str, record: str, is_key: bool, subject: str | None
) -> None:
    if subject is None:
        with pytest.raises(UsageError, match=f"--subjects {strategy} needs --record"):
            registries.subject_of(strategy, "t", record, is_key=is_key)
    else:
        assert registries.subject_of(strategy, "t", record, is_key=is_key) == subject
