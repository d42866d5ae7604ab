"""Routes over a registry of schemas: subjects, their versions, and schemas; of any registry with Confluent's REST API."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import trio

from barnabas.console.base import Call, ConsoleError, Parameter, Route
from barnabas.console.paging import QUERY, page_of

SECONDS_MAX = 10.0
ANSWER_BYTES_MAX = 32 << 20
_TYPE = "application/vnd.schemaregistry.v1+json"


async def ask(call: Call, method: str, path: str, body: Any = None) -> Any:
    """Ask the registry. Raises ConsoleError."""
    url = call.backend.registry_url.rstrip("/")
    if not url:
        raise ConsoleError(404, "no registry of schemas is known: give --registry URL")
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{url}{path}", data, {"Content-Type": _TYPE, "Accept": _TYPE}, method=method)

    if call.backend.credentials:  # the registry's users are those of the broker
        request.add_header("Authorization", f"Basic {call.backend.credentials}")

    def fetch() -> Any:
        with urlopen(request, timeout=SECONDS_MAX) as answer:
            return json.loads(answer.read(ANSWER_BYTES_MAX))

    try:
        return await trio.to_thread.run_sync(fetch, abandon_on_cancel=True)
    except HTTPError as error:
        with error:
            raise ConsoleError(error.code, _text_of(error.read(100_000))) from None
    except (URLError, OSError, ValueError) as error:
        raise ConsoleError(502, f"the registry does not answer: {error}") from None


def _text_of(content: bytes) -> str:
    try:
        found = json.loads(content)
        return str(found["message"])
    except (ValueError, KeyError, TypeError):
        return content[:300].decode("utf-8", "replace")


async def list_subjects(call: Call) -> object:
    """Return a page of subjects."""
    names: list[str] = await ask(call, "GET", "/subjects")
    page = page_of(call, names, {"name": lambda name: name}, lambda name: name)
    return page.as_json({"name": name} for name in page.rows)


async def show_subject(call: Call) -> object:
    """Return a subject: its versions, and the schema of one."""
    subject = quote(call.path["subject"], safe="")
    versions = await ask(call, "GET", f"/subjects/{subject}/versions")
    version = call.whole("version", versions[-1], least=1)
    schema = await ask(call, "GET", f"/subjects/{subject}/versions/{version}")
    level = await ask(call, "GET", f"/config/{subject}?defaultToGlobal=true")
    return {"versions": versions, "schema": schema, "compatibility": level.get("compatibilityLevel")}


async def register_schema(call: Call) -> object:
    """Register a schema, or see only if it is compatible."""
    subject = quote(call.path["subject"], safe="")
    body = {"schema": call.field("schema", str), "schemaType": call.field("type", str, "AVRO")}
    if call.field("check", bool, False):
        return await ask(
            call, "POST", f"/compatibility/subjects/{subject}/versions/latest?verbose=true", body
        )
    return await ask(call, "POST", f"/subjects/{subject}/versions", body)


async def delete_subject(call: Call) -> object:
    """Delete a subject, softly."""
    call.confirmed(call.path["subject"])
    return {"versions": await ask(call, "DELETE", f"/subjects/{quote(call.path['subject'], safe='')}")}


ROUTES = (
    Route("GET", "/api/subjects", list_subjects, "A page of subjects of the registry", query=QUERY),
    Route("GET", "/api/subjects/{subject}", show_subject, "A subject: versions, compatibility, a schema",
          query=(Parameter("version", "its number (the last)"),)),
    Route("POST", "/api/subjects/{subject}", register_schema, "Register a schema",
          body=(Parameter("schema", "its text"), Parameter("type", "AVRO, JSON or PROTOBUF (AVRO)"),
                Parameter("check", "true to only see if it is compatible (false)"))),
    Route("DELETE", "/api/subjects/{subject}", delete_subject, "Delete a subject, so that it can be restored",
          body=(Parameter("confirm", "the subject's name, from who is sure"),)),
)  # fmt: skip
