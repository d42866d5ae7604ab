"""Routes of a registry, each with the permission that it needs and its handler.

The rule: a row defines a route completely; a caller without the permission is refused before the body is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.network.routes import Router
from barnabas.registry import names, reading, refusals
from barnabas.registry.access import CHANGE, DELETE, READ, WRITE
from barnabas.registry.errors import RegistryError
from barnabas.registry.reading import LATEST, Page, Reading, version_number
from barnabas.registry.records import Version
from barnabas.registry.registering import Registering, SchemaRequest
from barnabas.registry.removing import Removing
from barnabas.registry.setting import Setting

if TYPE_CHECKING:
    from barnabas.registry.access import Caller
    from barnabas.registry.store import Store

LIMIT_MAX = 2**31
SUBJECT = "{subject}"


class Text(str):
    """An answer that is sent as it is."""

    __slots__ = ()


@dataclass(slots=True)
class Registry:
    """Parts of a registry."""

    store: Store
    reading: Reading
    registering: Registering
    removing: Removing
    setting: Setting


@dataclass(slots=True)
class Call:
    """A request: its caller, the parts of the path, the query, the body."""

    caller: Caller
    parts: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    owner: Hashable = None
    """User or connection; its schemas are processed one at a time."""

    @property
    def subject(self) -> str:
        """The subject of the path."""
        return names.normal(self.parts["subject"])

    @property
    def scope(self) -> str | None:
        """The subject of the path as the scope of settings; None for the global ones."""
        return names.normal(self.parts.get("subject", "")) or None

    @property
    def version(self) -> int:
        """The version of the path. Raises RegistryError."""
        return version_number(self.parts["version"])

    def has(self, name: str) -> bool:
        """Return whether a flag of the query is set."""
        return self.query.get(name, "").lower() == "true"

    @property
    def page(self) -> Page:
        """The part of a list that `offset` and `limit` select. Raises RegistryError."""
        offset = _number(self.query.get("offset", "0"))
        return Page(max(offset, 0), _number(self.query.get("limit", "-1")))


def _number(text: str) -> int:
    if text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 11:
        return max(int(text), -1)
    raise RegistryError(404, 404, "HTTP 404 Not Found")


Handle = Callable[[Registry, Call], Awaitable[Any]]


class Route(NamedTuple):
    """A method and a path; `need` is the caller's permission on the subject of the path, or on all subjects."""

    method: str
    path: str
    need: str
    handle: Handle


# --- subjects and versions ------------------------------------------------------------------------------------------


async def _subjects(registry: Registry, call: Call) -> Any:
    deleted, only = call.has("deleted"), call.has("deletedOnly")
    prefix = call.query.get("subjectPrefix", names.ALL)
    return await registry.reading.subjects(prefix, call.caller, call.page, deleted=deleted, deleted_only=only)


async def _schema_request(call: Call) -> SchemaRequest:
    """Return the schema of a request, if the caller may read its references. Raises RegistryError."""
    request = SchemaRequest.of(call.body, normalize=call.has("normalize"))
    for reference in request.schema.references:
        await call.caller.check(READ, names.beside(call.subject, reference.subject))
    return request


async def _lookup(registry: Registry, call: Call) -> Any:
    request = await _schema_request(call)
    deleted = call.has("deleted")
    state = registry.store.state
    if not state.versions(call.subject, deleted=deleted):
        raise refusals.subject_not_found(call.subject)
    version = await registry.registering.lookup(
        state, call.subject, request, deleted=deleted, owner=call.owner
    )
    if version is None:
        raise refusals.schema_not_found()
    return await _shown(registry, call, version)


async def _delete_subject(registry: Registry, call: Call) -> Any:
    return await registry.removing.subject(call.subject, permanent=call.has("permanent"))


async def _with_metadata(registry: Registry, call: Call) -> Any:
    properties = {call.query["key"]: call.query.get("value", "")} if "key" in call.query else {}
    version = registry.reading.latest_with(call.subject, properties, deleted=call.has("deleted"))
    return await _shown(registry, call, version)


async def _versions(registry: Registry, call: Call) -> Any:
    deleted, only = call.has("deleted"), call.has("deletedOnly")
    return call.page.of(registry.reading.numbers(call.subject, deleted=deleted, deleted_only=only))


async def _register(registry: Registry, call: Call) -> Any:
    request = await _schema_request(call)
    version = await registry.registering.register(
        call.subject, request, force=call.has("force"), owner=call.owner
    )
    # A client caches this as the schema of the id, so the response has the client's own text.
    shown = {name: value for name, value in version.plain().items() if name != "subject"}
    return {**shown, "schema": request.schema.text}


def _version_of(registry: Registry, call: Call) -> Version:
    number = call.version
    return registry.reading.version(call.subject, number, deleted=call.has("deleted"))


async def _version(registry: Registry, call: Call) -> Any:
    return await _shown(registry, call, _version_of(registry, call))


async def _version_schema(registry: Registry, call: Call) -> Any:
    return Text((await _shown(registry, call, _version_of(registry, call)))["schema"])


async def _referenced_by(registry: Registry, call: Call) -> Any:
    ids = registry.reading.referring_to(call.subject, call.version, deleted=call.has("deleted"))
    return call.page.of(ids)


async def _delete_version(registry: Registry, call: Call) -> Any:
    return await registry.removing.version(call.subject, call.version, permanent=call.has("permanent"))


async def _shown(registry: Registry, call: Call, version: Version) -> dict[str, Any]:
    return await registry.reading.schema(version, call.query.get("format", ""), call.owner)


# --- schemas --------------------------------------------------------------------------------------------------------


async def _schemas(registry: Registry, call: Call) -> Any:
    prefix = call.query.get("subjectPrefix", names.ALL)
    deleted, latest = call.has("deleted"), call.has("latestOnly")
    return await registry.reading.schemas(prefix, call.caller, call.page, deleted=deleted, latest_only=latest)


async def _types(registry: Registry, call: Call) -> Any:  # noqa: ARG001
    return reading.types()


async def _with_id(registry: Registry, call: Call) -> list[Version]:
    subject = names.normal(call.query.get("subject", ""))
    number = reading.number_of(call.parts["id"])
    return await registry.reading.with_id(number, subject, call.caller)


async def _schema(registry: Registry, call: Call) -> Any:
    version = (await _with_id(registry, call))[0]
    shown = await _shown(registry, call, version)
    answer = {name: value for name, value in shown.items() if name not in ("subject", "version", "id")}
    if call.has("fetchMaxId"):
        answer["maxId"] = registry.reading.last_id(version.subject)
    return answer


async def _schema_text(registry: Registry, call: Call) -> Any:
    return Text((await _shown(registry, call, (await _with_id(registry, call))[0]))["schema"])


async def _with_id_listed(registry: Registry, call: Call) -> list[Version]:
    try:
        versions = await _with_id(registry, call)
    except RegistryError as error:
        raise refusals.schema_not_found() if error.code == refusals.SCHEMA_NOT_FOUND else error from None
    rest = names.split(call.query.get("subject", ""))[1]
    return [
        version
        for version in sorted(versions, key=lambda version: (version.subject, version.number))
        if (not version.is_deleted or call.has("deleted"))
        and (not rest or names.split(version.subject)[1] == rest)
    ]


async def _subjects_of_id(registry: Registry, call: Call) -> Any:
    return call.page.of(
        list(dict.fromkeys(version.subject for version in await _with_id_listed(registry, call)))
    )


async def _versions_of_id(registry: Registry, call: Call) -> Any:
    versions = await _with_id_listed(registry, call)
    return call.page.of([{"subject": version.subject, "version": version.number} for version in versions])


# --- compatibility, settings, modes, contexts -----------------------------------------------------------------------


async def _check_all(registry: Registry, call: Call) -> Any:
    return await _checked(registry, call, registry.store.state.versions(call.subject))


async def _check_one(registry: Registry, call: Call) -> Any:
    versions = registry.store.state.versions(call.subject)
    if not versions:
        if call.version != LATEST:
            raise refusals.version_not_found(call.version)
        return await _checked(registry, call, [])
    return await _checked(registry, call, [registry.reading.version(call.subject, call.version)])


async def _checked(registry: Registry, call: Call, versions: list[Version]) -> Any:
    request = await _schema_request(call)
    try:
        messages = await registry.registering.check(
            registry.store.state, call.subject, request, versions, call.owner
        )
    except RegistryError as error:
        if not call.has("verbose"):
            raise
        messages = [error.message]
    return {"is_compatible": not messages, **({"messages": messages} if call.has("verbose") else {})}


async def _config(registry: Registry, call: Call) -> Any:
    return registry.reading.config(call.scope, default_to_global=call.has("defaultToGlobal"))


async def _put_config(registry: Registry, call: Call) -> Any:
    return await registry.setting.put_config(call.scope, call.body)


async def _delete_config(registry: Registry, call: Call) -> Any:
    return await registry.setting.delete_config(call.scope)


async def _mode(registry: Registry, call: Call) -> Any:
    return registry.reading.mode(call.scope, default_to_global=call.has("defaultToGlobal"))


async def _put_mode(registry: Registry, call: Call) -> Any:
    return await registry.setting.put_mode(call.scope, call.body, force=call.has("force"))


async def _delete_mode(registry: Registry, call: Call) -> Any:
    return await registry.setting.delete_mode(call.scope, recursive=call.has("recursive"))


async def _contexts(registry: Registry, call: Call) -> Any:
    return call.page.of(await registry.reading.contexts(call.caller))


async def _root(registry: Registry, call: Call) -> Any:  # noqa: ARG001
    return {}


async def _server_version(registry: Registry, call: Call) -> Any:  # noqa: ARG001
    from barnabas import __version__

    return {"version": f"barnabas-{__version__}", "commitId": ""}


ROUTES = [
    Route("GET", "/", READ, _root),
    Route("GET", "/subjects", READ, _subjects),
    Route("POST", "/subjects/{subject}", READ, _lookup),
    Route("DELETE", "/subjects/{subject}", DELETE, _delete_subject),
    Route("GET", "/subjects/{subject}/metadata", READ, _with_metadata),
    Route("GET", "/subjects/{subject}/versions", READ, _versions),
    Route("POST", "/subjects/{subject}/versions", WRITE, _register),
    Route("GET", "/subjects/{subject}/versions/{version}", READ, _version),
    Route("DELETE", "/subjects/{subject}/versions/{version}", DELETE, _delete_version),
    Route("GET", "/subjects/{subject}/versions/{version}/schema", READ, _version_schema),
    Route("GET", "/subjects/{subject}/versions/{version}/referencedby", READ, _referenced_by),
    Route("GET", "/schemas", READ, _schemas),
    Route("GET", "/schemas/types", READ, _types),
    Route("GET", "/schemas/ids/{id}", READ, _schema),
    Route("GET", "/schemas/ids/{id}/schema", READ, _schema_text),
    Route("GET", "/schemas/ids/{id}/subjects", READ, _subjects_of_id),
    Route("GET", "/schemas/ids/{id}/versions", READ, _versions_of_id),
    Route("POST", "/compatibility/subjects/{subject}/versions", READ, _check_all),
    Route("POST", "/compatibility/subjects/{subject}/versions/{version}", READ, _check_one),
    Route("GET", "/config", READ, _config),
    Route("PUT", "/config", CHANGE, _put_config),
    Route("DELETE", "/config", CHANGE, _delete_config),
    Route("GET", "/config/{subject}", READ, _config),
    Route("PUT", "/config/{subject}", CHANGE, _put_config),
    Route("DELETE", "/config/{subject}", CHANGE, _delete_config),
    Route("GET", "/mode", READ, _mode),
    Route("PUT", "/mode", CHANGE, _put_mode),
    Route("DELETE", "/mode", CHANGE, _delete_mode),
    Route("GET", "/mode/{subject}", READ, _mode),
    Route("PUT", "/mode/{subject}", CHANGE, _put_mode),
    Route("DELETE", "/mode/{subject}", CHANGE, _delete_mode),
    Route("GET", "/contexts", READ, _contexts),
    Route("GET", "/v1/metadata/version", READ, _server_version),
]
ROUTER = Router(ROUTES)
