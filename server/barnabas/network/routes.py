"""Routes of the HTTP servers: the console's, the schema registry's, the control API's.

The rule: a route is a row with a method and a path, as `/subjects/{subject}`; of the routes that match a path, the first
with the method of the request answers it. A parameter of a path is one segment that is not empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import unquote


class PathRoute(Protocol):
    """A row of a table of routes."""

    @property
    def method(self) -> str:
        """HTTP method, in capitals."""

    @property
    def path(self) -> str:
        """Path, with parameters in braces, each a whole segment."""


RouteT = TypeVar("RouteT", bound=PathRoute)


class NoRouteError(Exception):
    """No route answers a request: status 404, or 405 if the path has other `methods`."""

    def __init__(self, path: str, methods: Sequence[str]) -> None:
        super().__init__(f"{path} takes {', '.join(methods)}" if methods else f"there is nothing at {path}")
        self.status = 405 if methods else 404


class Router(Generic[RouteT]):
    """Routes of one server, in the order in which they are tried."""

    def __init__(self, routes: Iterable[RouteT]) -> None:
        self.routes = tuple(routes)
        self._patterns = [(route.path.split("/"), route) for route in self.routes]

    def find(self, method: str, path: str) -> tuple[RouteT, dict[str, str]]:
        """Return the route of a request, and the parameters of its path with their escapes resolved.

        Raises NoRouteError.
        """
        route, parameters = self.find_segments(method, path.split("/"))
        return route, {name: unquote(text) for name, text in parameters.items()}

    def find_segments(self, method: str, segments: Sequence[str]) -> tuple[RouteT, dict[str, str]]:
        """Return the route of a request by the undecoded segments of its path, the first of which is empty.

        Raises NoRouteError.
        """
        methods = []
        for pattern, route in self._patterns:
            parameters = _parameters(pattern, segments)
            if parameters is not None:
                if route.method == method:
                    return route, parameters
                methods.append(route.method)
        raise NoRouteError("/".join(segments), methods)


def router_of(package: str, modules: Iterable[str]) -> Router[Any]:
    """Return the router of the `ROUTES` of a package's modules."""
    return Router(route for name in modules for route in import_module(f"{package}.{name}").ROUTES)


def _parameters(pattern: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    """Return the parameters of a path that matches a pattern, None if it does not."""
    if len(pattern) != len(segments):
        return None
    parameters = {}
    for expected, segment in zip(pattern, segments, strict=True):
        if expected.startswith("{") and segment:
            parameters[expected[1:-1]] = segment
        elif expected != segment:
            return None
    return parameters
