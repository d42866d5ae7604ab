"""Routes over a registry of schemas: subjects, their versions, and schemas; of any registry with Confluent's REST API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import trio

from barnabas.console.base import Call, ConsoleError, Parameter, Query, Route, as_json
from barnabas.console.outcomes import registry_failure
from barnabas.console.paging import QUERY, page_of
from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import RegistryError
from barnabas.sandbox.messages import SandboxError

ASKED_MAX = 8
"""Subjects of a page that are requested in parallel."""
FRESH_SECONDS = 30.0
"""Age at which a subject of a list is requested again."""
REMEMBERED_MAX = 1_000
LIST_BYTES_MAX = 16 << 20
"""Size of a list of subjects that is looked at: some 300,000 names."""


def registry_of(call: Call) -> RegistryClient:
    """Return the client of the registry. Raises ConsoleError without one."""
    if call.backend.registry is None:
        raise ConsoleError(404, "there is no schema registry: set it with --registry URL")
    return call.backend.registry


async def ask(call: Call, method: str, path: str, body: Any = None) -> Any:
    """Ask the registry. Raises ConsoleError."""
    try:
        return await registry_of(call).ask(method, path, body)
    except RegistryError as error:
        raise registry_failure(error) from None


async def list_subjects(call: Call) -> object:
    """Return a page of subjects."""
    try:
        data = await registry_of(call).ask_unread("/subjects")
    except RegistryError as error:
        raise registry_failure(error) from None
    if len(data) > LIST_BYTES_MAX:
        raise ConsoleError(413, f"the list of subjects has more than {LIST_BYTES_MAX} bytes")
    backend = call.backend
    try:
        content = await backend.sandbox.call(subjects_page, data, dict(call.query), owner=backend.owner)
    except ValueError:
        raise ConsoleError(502, "the response of the registry is not a list of subjects") from None
    except SandboxError as error:
        raise ConsoleError(503, f"the list of subjects cannot be read: {error}") from None
    page = json.loads(content)
    page["rows"] = await _described(call, [row["name"] for row in page["rows"]])
    return page


async def _described(call: Call, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return subjects with their newest versions, some seconds old at most; requests a few at a time."""
    client, remembered = registry_of(call), call.backend.subjects
    limiter = trio.CapacityLimiter(ASKED_MAX)

    async def look(name: str) -> None:
        async with limiter:
            row: dict[str, Any] = {
                "name": name,
                "type": None,
                "version": None,
                "id": None,
                "level": None,
                "error": None,
            }
            try:
                newest = await client.latest(name)
                level = await client.ask("GET", f"/config/{quote(name, safe='')}?defaultToGlobal=true")
                row |= {"type": newest.schema.format, "version": newest.version, "id": newest.id}
                row["level"] = str(level.get("compatibilityLevel")) if isinstance(level, dict) else None
            except RegistryError as error:
                row["error"] = error.message
            remembered[name] = trio.current_time(), row

    fresh_s = trio.current_time() - FRESH_SECONDS
    async with trio.open_nursery() as nursery:
        for name in names:
            if name not in remembered or remembered[name][0] < fresh_s:
                nursery.start_soon(look, name)
    rows = [remembered[name][1] for name in names]
    while len(remembered) > REMEMBERED_MAX:
        del remembered[next(iter(remembered))]
    return rows


def subjects_page(data: bytes, query: Mapping[str, str]) -> bytes:
    """Return the page that a query asks for of a list of subjects, both as JSON. Raises ConsoleError, ValueError."""
    names = json.loads(data)
    if not isinstance(names, list):
        raise ValueError
    page = page_of(Query(query), map(str, names), {"name": lambda name: name}, lambda name: name)
    return as_json(page.as_json({"name": name} for name in page.rows))


async def show_subject(call: Call) -> object:
    """Return a subject: its versions, and the schema of one version."""
    subject = quote(call.path["subject"], safe="")
    versions = await ask(call, "GET", f"/subjects/{subject}/versions")
    version = call.whole("version", versions[-1], least=1)
    schema = await ask(call, "GET", f"/subjects/{subject}/versions/{version}")
    level = await ask(call, "GET", f"/config/{subject}?defaultToGlobal=true")
    return {"versions": versions, "schema": schema, "compatibility": level.get("compatibilityLevel")}


async def compare_versions(call: Call) -> object:
    """Return two versions of a subject side by side."""
    from barnabas.console.versions import compare

    subject = quote(call.path["subject"], safe="")
    versions: list[int] = await ask(call, "GET", f"/subjects/{subject}/versions")
    newer = call.whole("newer", versions[-1], least=1)
    before = [version for version in versions if version < newer]
    older = call.whole("older", before[-1] if before else newer, least=1)
    level = await ask(call, "GET", f"/config/{subject}?defaultToGlobal=true")
    try:
        comparison = await compare(
            call.backend, registry_of(call), call.path["subject"], versions, older, newer
        )
    except RegistryError as error:
        raise registry_failure(error) from None
    return {**comparison, "compatibility": level.get("compatibilityLevel")}


async def register_schema(call: Call) -> object:
    """Register a schema, or see only if it is compatible."""
    subject = quote(call.path["subject"], safe="")
    body = {"schema": call.field("schema", str), "schemaType": call.field("type", str, "AVRO")}
    if call.field("check", bool, False):
        return await ask(
            call, "POST", f"/compatibility/subjects/{subject}/versions/latest?verbose=true", body
        )
    call.backend.subjects.pop(call.path["subject"], None)
    return await ask(call, "POST", f"/subjects/{subject}/versions", body)


async def delete_subject(call: Call) -> object:
    """Delete a subject, softly."""
    call.confirmed(call.path["subject"])
    call.backend.subjects.pop(call.path["subject"], None)
    return {"versions": await ask(call, "DELETE", f"/subjects/{quote(call.path['subject'], safe='')}")}


ROUTES = (
    Route("GET", "/api/subjects", list_subjects, "A page of subjects of the registry", query=QUERY),
    Route("GET", "/api/subjects/{subject}", show_subject, "A subject: versions, compatibility, a schema",
          query=(Parameter("version", "its number (the last)"),)),
    Route("GET", "/api/subjects/{subject}/compare", compare_versions,
          "Two versions: what differs line by line, and what each level of compatibility says of the newer after the older",
          query=(Parameter("older", "its number (the one before the newer)"), Parameter("newer", "its number (the last)"))),
    Route("POST", "/api/subjects/{subject}", register_schema, "Register a schema",
          body=(Parameter("schema", "its text"), Parameter("type", "AVRO, JSON or PROTOBUF (AVRO)"),
                Parameter("check", "true to only see if it is compatible (false)"))),
    Route("DELETE", "/api/subjects/{subject}", delete_subject, "Delete a subject, so that it can be restored",
          body=(Parameter("confirm", "the subject's name, from who is sure"),)),
)  # fmt: skip
