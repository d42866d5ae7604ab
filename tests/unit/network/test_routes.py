"""Routes of an HTTP server: the route of a request by method and path, and refusals."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from barnabas.network.routes import NoRouteError, Router


class Route(NamedTuple):
    method: str
    path: str


ROUTER = Router(
    [
        Route("GET", "/"),
        Route("GET", "/topics"),
        Route("GET", "/topics/{topic}"),
        Route("DELETE", "/topics/{topic}"),
        Route("GET", "/topics/all"),
        Route("GET", "/topics/{topic}/records/{offset}"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "pattern", "parameters"),
    [
        ("GET", "/", "/", {}),
        ("GET", "/topics", "/topics", {}),
        ("GET", "/topics/a", "/topics/{topic}", {"topic": "a"}),
        ("DELETE", "/topics/a%2Fb%20c", "/topics/{topic}", {"topic": "a/b c"}),
        ("GET", "/topics/all", "/topics/{topic}", {"topic": "all"}),
        ("GET", "/topics/a/records/7", "/topics/{topic}/records/{offset}", {"topic": "a", "offset": "7"}),
    ],
)
def test_first_route_of_path_and_method_is_found(
    method: str, path: str, pattern: str, parameters: dict[str, str]
) -> None:
    assert ROUTER.find(method, path) == (Route(method, pattern), parameters)


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/nothing", 404, "there is nothing at /nothing"),
        ("GET", "/topics/", 404, "there is nothing at /topics/"),
        ("GET", "/t%6Fpics", 404, "there is nothing at /t%6Fpics"),
        ("GET", "topics", 404, "there is nothing at topics"),
        ("GET", "/topics/a/records//7", 404, "there is nothing at /topics/a/records//7"),
        ("POST", "/topics", 405, "/topics takes GET"),
        ("HEAD", "/topics/a", 405, "/topics/a takes GET, DELETE"),
        ("OPTIONS", "/topics/all", 405, "/topics/all takes GET, DELETE, GET"),
    ],
)
def test_other_requests_are_refused_with_404_or_405(method: str, path: str, status: int, text: str) -> None:
    with pytest.raises(NoRouteError) as raised:
        ROUTER.find(method, path)
    assert (raised.value.status, str(raised.value)) == (status, text)


def test_segments_are_taken_as_they_are() -> None:
    assert ROUTER.find_segments("GET", ["", "topics", "a%2F/b"])[1] == {"topic": "a%2F/b"}
