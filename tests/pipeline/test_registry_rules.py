"""Answers of a registry and what a job makes of them: asks again, refuses the record, is incomplete. Without a registry."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.registry.errors import RegistryError, SchemaError
from barnabas.registry.schemas import Schema
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.formats import registry as registries
from barnabas_pipeline.formats.registry import Registry

SCHEMA = Schema("AVRO", '"long"')


def no(status: int) -> RegistryError:
    return RegistryError(status, 0, f"status {status}")


class Client:
    """Stands for a client; answers what it is told to, one after the other."""

    url = "http://r"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def _next(self, *_: Any) -> Any:
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    schema = latest = _next


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries."""
    found: list[float] = []
    monkeypatch.setattr(registries.time, "sleep", found.append)
    monkeypatch.setattr(registries, "_KNOWN", {})
    return found


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
    slept: list[float], answers: list[Any], outcome: str | None, pauses: list[float]
) -> None:
    client = Client(*answers)
    if outcome is None:
        with pytest.raises(IncompleteError, match=f"the schema registry: {answers[-1]}"):
            registries.ask(client.schema)
    else:
        assert registries.ask(client.schema) == outcome
    assert slept == pytest.approx(pauses)
    assert client.answers == []


def test_missing_subject_or_schema_is_none_and_others_raise(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    monkeypatch.setattr(registries, "_client", lambda _: client)
    one = Registry("http://r")
    client.answers = ["found"]
    assert one.latest("s") == "found"
    for ask, usage in ((one.latest, True), (one.schema, False)):
        client.answers = [no(404)]
        if usage:
            with pytest.raises(UsageError, match="http://r has no subject 5"):
                ask(5)  # type: ignore[arg-type]
        else:
            assert ask(5) is None  # type: ignore[arg-type]
        client.answers = [no(403)]
        with pytest.raises(IncompleteError, match="status 403"):
            ask(6)  # type: ignore[arg-type]
    assert slept == []


def test_schema_is_requested_once_and_a_missing_one_again(
    slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, now = Client(), [0.0]
    monkeypatch.setattr(registries, "_client", lambda _: client)
    monkeypatch.setattr(registries.time, "monotonic", lambda: now[0])

    async def parsed(_: Any, schema: Schema) -> Any:
        if schema.text == "?":
            raise SchemaError("no sense in it")
        return "parsed"

    monkeypatch.setattr(registries, "parsed_of", parsed)
    one = Registry("http://r")
    client.answers = [SCHEMA, no(404), Schema("AVRO", "?")]
    for _ in range(2):
        assert (one.schema(1), one.understood(1)) == (SCHEMA, (SCHEMA, "parsed"))
        assert (one.schema(2), one.understood(2)) == (None, None)
        assert (one.schema(3), one.understood(3)) == (Schema("AVRO", "?"), None)
    assert client.answers == []
    now[0] = registries.ASK_AGAIN_SECONDS - 0.5
    assert one.schema(2) is None
    now[0] = registries.ASK_AGAIN_SECONDS + 0.5
    client.answers = [SCHEMA]
    assert one.schema(2) == SCHEMA
    assert one.schema(1) == SCHEMA
    assert Registry("http://other") != one
    client.answers = [no(404)]
    assert Registry("http://other").schema(1) is None, "another registry has other schemas"


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
