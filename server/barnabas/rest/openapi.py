"""All routes of the REST API as OpenAPI describes them, and as a page: both printed from the table of routes."""

from __future__ import annotations

from html import escape
from http import HTTPStatus
from typing import Any

from barnabas import __version__
from barnabas.rest.base import OURS, V2, V3, Parameter, Route
from barnabas.rest.formats import JSON_TYPE, OF_TYPES, V2_TYPE, V2_TYPES

TITLES = {V2: "API v2", V3: "API v3", OURS: "Additions"}
_ERROR = {
    "type": "object",
    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
    "required": ["error_code", "message"],
}
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color-scheme:light dark}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.3em .6em;border-bottom:1px solid #8884}
code{font-size:13px;white-space:nowrap}
td:first-child code{white-space:normal}
dl{margin:0}
dt{float:left;margin-right:.6em}
dd{margin:0}
"""


def _routes() -> tuple[Route, ...]:
    from barnabas.rest.routes import router

    return router().routes


def types_of_request(route: Route) -> tuple[str, ...]:
    """Return the types of content that the body of a route may have."""
    if route.method == "GET" and not route.body:
        return ()
    if route.version == V3:
        return (JSON_TYPE,)
    is_produce = route.has_formats and route.path.startswith("/topics/")
    return tuple(V2_TYPES) if is_produce else (V2_TYPE, JSON_TYPE)


def types_of_answer(route: Route) -> tuple[str, ...]:
    """Return the content types of a route's responses, the usual one first."""
    if route.version == OURS:
        return {"/openapi": ("text/html",), "/openapi.json": (JSON_TYPE,)}.get(
            route.path, ("text/event-stream",)
        )
    if route.version == V3:
        return (JSON_TYPE,)
    is_of_records = route.path.endswith(("/records", "/messages"))
    return tuple(V2_TYPES) if is_of_records else (V2_TYPE, JSON_TYPE)


def document(url: str = "") -> dict[str, Any]:
    """Return the description of all routes; `url` is where they are."""
    paths: dict[str, dict[str, Any]] = {}
    for route in _routes():
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Barnabas: REST API",
            "version": __version__,
            "description": "Produce, consume and administration over HTTP, as Confluent's REST proxy has them.",
        },
        "servers": [{"url": url or "/"}],
        "security": [{}, {"basic": []}],
        "tags": [{"name": title} for title in TITLES.values()],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
    ]
    parameters += [
        {"name": query.name, "in": "query", "description": query.text, "schema": {"type": query.kind}}
        for query in route.query
    ]
    content: dict[str, Any] = {name: {} for name in types_of_answer(route)} if route.status != 204 else {}
    success = {"description": HTTPStatus(route.status).phrase} | ({"content": content} if content else {})
    error = {
        "description": "An error",
        "content": {JSON_TYPE: {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    operation: dict[str, Any] = {
        "operationId": route.handler.__module__.rpartition(".")[2] + "_" + _identifier(route),
        "summary": route.summary,
        "tags": [TITLES[route.version]],
        "parameters": parameters,
        "responses": {str(route.status): success, "default": error},
    }
    if route.body:
        schema = {"type": "object", "properties": {field.name: _field(field) for field in route.body}}
        operation["requestBody"] = {"content": {name: {"schema": schema} for name in types_of_request(route)}}
    return operation


def _identifier(route: Route) -> str:
    parts = [part.strip("{}").replace("-", "_").replace(":", "_") for part in route.path.split("/")[1:]]
    return "_".join([route.method.lower(), *(part or "root" for part in parts)])


def _field(field: Parameter) -> dict[str, Any]:
    more: dict[str, Any] = {"items": {}} if field.kind == "array" else {}
    return {"type": field.kind, "description": field.text, **more}


def page() -> bytes:
    """Return a self-contained page of all routes."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>REST API</title>",
        f"<style>{STYLE}</style><h1>REST API</h1>",
        "<p>As Confluent's REST proxy has it, with additions. <a href=openapi.json>OpenAPI 3.1</a></p>",
        f"<p>FORMAT in a type of content is one of {', '.join(OF_TYPES)}.</p>",
    ]
    for version, title in TITLES.items():
        parts.append(f"<h2>{title}</h2><table><tr><th>request<th>what it does<th>query<th>body")
        parts += [
            f"<tr><td><code>{route.method} {escape(route.path)}</code><td>{escape(route.summary)}"
            f"<td>{_listed(route.query)}<td>{_listed(route.body)}"
            for route in _routes()
            if route.version == version
        ]
        parts.append("</table>")
    return "\n".join(parts).encode()


def _listed(parameters: tuple[Parameter, ...]) -> str:
    rows = (f"<dt><code>{escape(name)}</code><dd>{escape(text)}" for name, _, text in parameters)
    return f"<dl>{''.join(rows)}</dl>" if parameters else ""
