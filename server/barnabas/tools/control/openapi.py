"""The OpenAPI 3.1 document of the control API, generated from its routes."""

from __future__ import annotations

import re
from typing import Any

from barnabas import __version__
from barnabas.tools.control.routes import router
from barnabas.tools.control.routes.base import Route

_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}


def document() -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in router().routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Barnabas control API",
            "version": __version__,
            "description": "Steers a broker under test: its data, its faults, its clock, and what clients have asked it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    parameters += [
        {
            "name": parameter.name,
            "in": "query",
            "description": parameter.text,
            "schema": {"type": parameter.kind},
        }
        for parameter in route.query
    ]
    operation: dict[str, Any] = {"operationId": route.handler.__name__, "summary": route.summary}
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": dict(route.body)}}}
    operation["responses"] = {
        "200": {"description": "Done", "content": {"application/json": {"schema": dict(route.answer or {})}}},
        "204": {"description": "Done; there is nothing to say"},
        "default": {
            "description": "Why it was not done",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        },
    }
    return operation
