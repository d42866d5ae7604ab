"""Requests to a registry, by its routes, without a topic: what is answered, and with which refusals."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import trio

from barnabas.registry.access import Caller
from barnabas.registry.errors import RegistryError
from barnabas.registry.parsing import Parsing
from barnabas.registry.reading import STEP_SUBJECTS, Reading
from barnabas.registry.records import Version, schema_record
from barnabas.registry.registering import Registering
from barnabas.registry.removing import Removing
from barnabas.registry.routes import ROUTER, Call, Registry
from barnabas.registry.schemas import Schema
from barnabas.registry.setting import Setting
from barnabas.registry.state import State
from tests.support.inline import Inline
from tests.support.registries import Written

VERSION_REFUSED = 422, 42202
NUMBERS = ["0", "2147483648", "1.0", "+1", "٣", "one", "", "-2", "9" * 5000]


class Everybody(Caller):
    """A caller that may do everything."""

    async def check(self, need: str, subject: str | None) -> None:
        """Refuse nothing."""

    async def readable(self, subjects: Any) -> set[str]:
        """Return all subjects."""
        return set(subjects)


class Watched(Everybody):
    """A caller that may read what begins with m, and remembers what the broker was asked about."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def readable(self, subjects: Any) -> set[str]:
        """Return the subjects that may be read."""
        self.asked.append(sorted(subjects))
        return {subject for subject in subjects if subject.rpartition(":")[2].startswith("m")}


class Asked:
    """A registry that is asked by its routes."""

    def __init__(self, caller: Any = None, sandbox: Any = None, written: Written | None = None) -> None:
        self.caller: Any = caller or Everybody()
        self.written = written or Written()
        store: Any = self.written
        parsing = Parsing(sandbox or Inline())
        self.registry = Registry(
            store, Reading(store.state, parsing), Registering(store, parsing), Removing(store), Setting(store)
        )

    async def __call__(self, method: str, target: str, body: Any = None) -> Any:
        """Return an answer. Raises RegistryError."""
        url = urlsplit(target)
        route, parts = ROUTER.find_segments(method, url.path.split("/"))
        return await route.handle(self.registry, Call(self.caller, parts, dict(parse_qsl(url.query)), body))

    async def refused(self, method: str, target: str, body: Any = None) -> tuple[int, int]:
        """Return status and code of a refusal."""
        with pytest.raises(RegistryError) as refused:
            await self(method, target, body)
        return refused.value.status, refused.value.code

    async def register(self, subject: str, title: str, **more: Any) -> Any:
        """Register a schema in JSON; returns its id."""
        body = {"schemaType": "JSON", "schema": json.dumps({"type": "object", "title": title}), **more}
        return (await self("POST", f"/subjects/{subject}/versions", body))["id"]


@pytest.fixture
async def asked() -> Asked:
    """A registry with three versions of a subject, of which the second is deleted."""
    asked = Asked()
    for title in ("a", "b", "c"):
        await asked.register("s", title)
    await asked("DELETE", "/subjects/s/versions/2")
    return asked


@pytest.mark.parametrize("number", NUMBERS)
async def test_a_number_that_no_version_has_is_refused_in_any_spelling(asked: Asked, number: str) -> None:
    if number:
        assert await asked.refused("GET", f"/subjects/s/versions/{number}") == VERSION_REFUSED
        if number != "0":
            code = 40403 if number == "-2" else 404  # as that of any id that no schema has
            assert await asked.refused("GET", f"/schemas/ids/{number}") == (404, code)
    assert await asked.refused("GET", "/subjects/s/versions/2147483647") == (404, 40402)
    assert await asked.refused("GET", "/schemas/ids/0") == (404, 40403)


async def test_a_deleted_version_is_seen_by_who_asks_for_it_alone(asked: Asked) -> None:
    assert await asked("GET", "/subjects/s/versions") == [1, 3]
    assert await asked("GET", "/subjects/s/versions?deleted=true") == [1, 2, 3]
    assert await asked("GET", "/subjects/s/versions?deletedOnly=true") == [2]
    assert await asked.refused("GET", "/subjects/s/versions/2") == (404, 40402)
    assert (await asked("GET", "/subjects/s/versions/2?deleted=true"))["id"] == 2
    assert await asked("GET", "/subjects") == ["s"]
    assert await asked("GET", "/subjects?deletedOnly=true") == []
    await asked("DELETE", "/subjects/s")
    assert await asked("GET", "/subjects") == []
    assert await asked("GET", "/subjects?deleted=true") == ["s"]
    assert await asked("GET", "/subjects?deletedOnly=true") == ["s"]
    assert await asked.refused("GET", "/subjects/s/versions/latest") == (404, 40401)


async def test_schema_gets_its_id_elsewhere_and_a_deleted_one_its_own(asked: Asked) -> None:
    assert await asked.register("t", "c") == 3
    assert await asked.register("s", "b") == 2
    assert await asked("GET", "/subjects/s/versions?deleted=true") == [1, 3, 4], (
        "the deleted one was replaced"
    )
    assert await asked.register("t", "d") == 4
    assert await asked.register(":.other:t", "z") == 1, "another context counts for itself"


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE", "IMPORT"])
async def test_a_mode_refuses_new_schemas_and_not_those_that_are_there(asked: Asked, mode: str) -> None:
    await asked("PUT", "/mode/s?force=true", {"mode": mode})
    assert await asked.register("s", "a") == 1
    written = len(asked.written.records)
    body = {"schemaType": "JSON", "schema": '{"title":"new"}'}
    assert await asked.refused("POST", "/subjects/s/versions", body) == (422, 42205)
    assert len(asked.written.records) == written
    assert await asked.register("t", "new") == 4


async def test_modes_are_taken_back_one_by_one_or_those_of_a_context(asked: Asked) -> None:
    assert await asked.refused("DELETE", "/mode/s") == (404, 40401)
    for subject in ("s", "t", ":.c:u"):
        await asked("PUT", f"/mode/{subject}", {"mode": "READONLY"})
    assert await asked("DELETE", "/mode/s") == {"mode": "READONLY"}
    assert await asked.refused("GET", "/mode/s") == (404, 40409)
    assert await asked("GET", "/mode/t") == {"mode": "READONLY"}
    assert await asked("DELETE", "/mode?recursive=true") == {"mode": None}
    assert await asked.refused("GET", "/mode/t") == (404, 40409)
    assert await asked("GET", "/mode/:.c:u") == {"mode": "READONLY"}, "another context"


async def test_an_import_gives_ids_and_versions(asked: Asked) -> None:
    body = {"schemaType": "JSON", "schema": '{"title":"new"}', "id": 50, "version": 7}
    assert await asked.refused("POST", "/subjects/t/versions", body) == (422, 42205)
    await asked("PUT", "/mode/t", {"mode": "IMPORT"})
    assert (await asked("POST", "/subjects/t/versions", body))["id"] == 50
    assert await asked("GET", "/subjects/t/versions") == [7]
    other = {**body, "schema": '{"title":"other"}'}
    assert await asked.refused("POST", "/subjects/t/versions", {**other, "version": 8}) == (422, 42207)
    assert await asked.register("u", "next") == 51


async def test_a_list_is_answered_in_parts(asked: Asked) -> None:
    for subject in ("t", "u"):
        await asked.register(subject, "a")
    for query, expected in (
        ("", ["s", "t", "u"]),
        ("?limit=-1", ["s", "t", "u"]),
        ("?limit=0", []),
        ("?limit=2", ["s", "t"]),
        ("?offset=1", ["t", "u"]),
        ("?offset=1&limit=1", ["t"]),
        ("?offset=3", []),
        ("?subjectPrefix=t", ["t"]),
    ):
        assert await asked("GET", f"/subjects{query}") == expected, query
    assert await asked.refused("GET", "/subjects?limit=x") == (404, 404)


def filled(asked: Asked, count: int) -> Asked:
    """Fill a registry with subjects with names that begin with m, and the same with n, each with an id of its own."""
    for number in range(count):
        for letter in "nm":
            schema = Schema("JSON", f'{{"title":"{letter}{number}"}}')
            version = Version(f"{letter}{number:05}", 1, 2 * number + (letter == "n") + 1, schema)
            asked.written.state.apply(*schema_record(version))
    return asked


async def test_an_id_is_looked_up_by_the_topics_of_its_subjects_alone() -> None:
    caller = Watched()
    asked = filled(Asked(caller), 10)
    assert (await asked("GET", "/schemas/ids/1"))["schema"] == '{"title":"m0"}'
    assert await asked.refused("GET", "/schemas/ids/2") == (404, 40403)
    assert await asked("GET", "/schemas/ids/3/subjects") == ["m00001"]
    assert await asked("GET", "/schemas/ids/5/versions") == [{"subject": "m00002", "version": 1}]
    assert caller.asked == [["m00000"], ["n00000"], ["m00001"], ["m00002"]]


async def test_a_list_asks_about_no_more_subjects_than_it_shows() -> None:
    caller = Watched()
    asked = filled(Asked(caller), 2 * STEP_SUBJECTS)
    assert await asked("GET", "/subjects?limit=2&offset=1") == ["m00001", "m00002"]
    assert [version.id for version in await asked("GET", "/schemas?limit=2")] == [1, 3]
    assert await asked("GET", "/contexts") == ["."]
    assert [len(subjects) for subjects in caller.asked] == [STEP_SUBJECTS] * 3
    assert len(await asked("GET", "/subjects")) == 2 * STEP_SUBJECTS, "those that may be read"


async def test_a_context_is_shown_to_who_may_read_something_in_it() -> None:
    asked = Asked(Watched())
    for subject in (":.a:m", ":.b:n", "n", ":.c:n", ":.c:m"):
        await asked.register(subject, "a")
    assert await asked("GET", "/contexts") == [".", ".a", ".c"]
    await asked("DELETE", "/subjects/:.a:m")
    await asked("DELETE", "/subjects/:.a:m?permanent=true")
    assert await asked("GET", "/contexts") == [".", ".c"]


async def test_a_long_list_gives_others_their_turn() -> None:
    asked = filled(Asked(), 3 * STEP_SUBJECTS)
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns[-1] += 1
            await trio.lowlevel.checkpoint()

    for path, count in (("/subjects", 6 * STEP_SUBJECTS), ("/schemas", 6 * STEP_SUBJECTS), ("/contexts", 1)):
        turns.append(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            assert len(await asked("GET", path)) == count
            nursery.cancel_scope.cancel()
    assert turns[0] > 5
    assert turns[1] >= 5


async def test_names_stay_in_order_when_subjects_come_and_go() -> None:
    asked = Asked()
    for subject in ("b", "a", ":.c:d", "c"):
        await asked.register(subject, "a")
    assert await asked("GET", "/subjects") == [":.c:d", "a", "b", "c"]
    await asked.register("aa", "a")
    assert await asked("GET", "/subjects") == [":.c:d", "a", "aa", "b", "c"]
    for query in ("", "?permanent=true"):
        await asked("DELETE", f"/subjects/a{query}")
    assert await asked("GET", "/subjects?deleted=true") == [":.c:d", "aa", "b", "c"]
    asked.written.state.clear()
    assert await asked("GET", "/subjects?deleted=true") == []


def spelled(kind: str, subject: str | None, **more: Any) -> bytes:
    """A key as older registries have written it."""
    return json.dumps(
        {"subject": subject, **more, "magic": 0, "keytype": kind}, separators=(",", ":")
    ).encode()


class Log:
    """Records of a topic as compaction leaves them: the last one of each key, none once its tombstone is gone."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._before: list[tuple[bytes, bytes | None]] = []

    def write(self, key: bytes, value: Any) -> None:
        """Write as another registry does."""
        data = json.dumps(value).encode()
        self._asked.written.state.apply(key, data)
        self._before.append((key, data))

    def left(self) -> State:
        """Return what a registry reads that starts now."""
        state = State()
        last = dict([*self._before, *self._asked.written.records])
        for key, value in [*self._before, *self._asked.written.records]:
            if value is not None and last[key] is value:
                state.apply(key, value)
        return state


@pytest.mark.parametrize("path", ["/subjects/old/versions/1", "/subjects/old"])
async def test_permanent_deletion_covers_each_spelling_of_its_key(path: str) -> None:
    asked = Asked()
    log = Log(asked)
    version = {"subject": "old", "version": 1, "id": 7, "schema": '"long"', "deleted": False}
    log.write(spelled("SCHEMA", "old", version=1), version)
    log.write(spelled("CONFIG", "old"), {"compatibilityLevel": "NONE"})
    log.write(spelled("MODE", "old"), {"mode": "READWRITE"})
    await asked("PUT", "/config/old", {"compatibility": "FULL"})
    await asked("DELETE", path)
    assert log.left().subjects["old"][1].id == 7, "only marked"
    await asked("DELETE", f"{path}?permanent=true")
    kept = log.left()
    assert (kept.subjects, kept.configs, kept.modes) == ({}, {}, {})


async def test_settings_are_taken_back_in_each_spelling_of_their_key() -> None:
    asked = Asked()
    log = Log(asked)
    for subject in (None, "old"):
        log.write(spelled("CONFIG", subject), {"compatibilityLevel": "NONE"})
        log.write(spelled("MODE", subject), {"mode": "READONLY_OVERRIDE"})
    for path in ("/mode", "/mode/old", "/config", "/config/old"):
        await asked("DELETE", path)
    kept = log.left()
    assert (kept.configs, kept.modes) == ({}, {})
    assert len(asked.written.records) == 8, "each in both spellings"
    await asked("PUT", "/config/old", {"compatibility": "FULL"})
    await asked("DELETE", "/config/old")
    assert len(asked.written.records) == 10, "what is gone needs no other tombstone"


async def test_an_import_and_a_new_version_leave_no_old_spelling() -> None:
    asked = Asked()
    log = Log(asked)
    for number, text in ((1, '"long"'), (2, '"int"')):
        version = {"subject": "old", "version": number, "id": number, "schema": text, "deleted": True}
        log.write(spelled("SCHEMA", "old", version=number), version)
    await asked("POST", "/subjects/old/versions", {"schema": '"long"'})
    assert [*log.left().subjects["old"]] == [2, 3], "the new one took the place of the deleted one"
    await asked("DELETE", "/subjects/old")
    await asked("PUT", "/mode/old", {"mode": "IMPORT"})
    assert log.left().subjects == {}
