"""Answers to any request to a route of the console: failures, views, parameters, pages."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    ResponseError,
    UnsupportedVersionError,
)
from barnabas.console.base import Call, ConsoleError
from barnabas.console.outcomes import registry_failure
from barnabas.console.routes import failure_of
from barnabas.registry.errors import RegistryError
from tests.support.console_cluster import REFUSED, REFUSED_TEXT, Cluster, refused


@pytest.mark.parametrize(
    ("error", "status", "answer"),
    [
        (ConsoleError(418, "tea"), 418, {"error": "tea"}),
        (REFUSED, 403, {"error": REFUSED_TEXT, "code": "TOPIC_AUTHORIZATION_FAILED"}),
        (ResponseError(69, "x"), 404, {"error": "x: GROUP_ID_NOT_FOUND", "code": "GROUP_ID_NOT_FOUND"}),
        (ResponseError(68, "x"), 409, {"error": "x: NON_EMPTY_GROUP", "code": "NON_EMPTY_GROUP"}),
        (ResponseError(69, "looking for group 'g'"), 404, {"error": "There is no group 'g'", "code": "GROUP_ID_NOT_FOUND"}),
        (ResponseError(3, "asking for topic 'a b'"), 404,
         {"error": "There is no topic 'a b'", "code": "UNKNOWN_TOPIC_OR_PARTITION"}),
        (ResponseError(31, "x", "Cluster authorization failed."), 403,
         {"error": "You may not do this with the cluster", "code": "CLUSTER_AUTHORIZATION_FAILED"}),
        (AuthenticationError("who?"), 401, {"error": "who?", "code": "Authentication"}),
        (ConnectionLostError("gone"), 503, {"error": "gone", "code": "ConnectionLost"}),
        (UnsupportedVersionError("old"), 501, {"error": "old", "code": "UnsupportedVersion"}),
        (ClientError("odd"), 502, {"error": "odd", "code": "Client"}),
        (ExceptionGroup("", [ClientError("odd"), ConsoleError(404, "tea")]), 502, {"error": "odd", "code": "Client"}),
    ],
)  # fmt: skip
def test_what_is_raised_becomes_a_status_and_a_text(
    error: Exception, status: int, answer: dict[str, str]
) -> None:
    assert failure_of(error, "GET /x") == (status, answer)


def test_a_defect_is_logged_and_goes_before_other_failures(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "barnabas.console.routes"):
        group = ExceptionGroup("", [ClientError("odd"), KeyError("x")])
        assert failure_of(group, "GET /x") == (500, {"error": "internal error: KeyError"})
    (record,) = caplog.records
    assert record.getMessage() == "GET /x failed"
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError


async def test_unknown_path_and_method_are_refused() -> None:
    cluster = Cluster(delete_groups={"a/b": None})
    assert await refused(cluster, "GET", "/api/nothing") == (404, "there is nothing at /api/nothing")
    assert await refused(cluster, "PUT", "/api/groups/x") == (405, "/api/groups/x takes GET, DELETE")
    assert await refused(cluster, "DELETE", "/api/groups/x", []) == (
        400,
        "a JSON object is expected as the body",
    )
    assert await cluster.ask("DELETE", "/api/groups/a%2Fb", {"confirm": "a/b"}) == (204, None)
    assert cluster.asked == [("delete_groups", ["a/b"])]


@pytest.mark.parametrize(
    ("views", "operations", "path", "status"),
    [
        ({"log", "metrics"}, {"alter"}, "/api/log", 200),
        ({"log", "metrics"}, {"describe"}, "/api/log", 403),
        ({"connections"}, {"describe"}, "/api/connections", 200),
        ({"connections"}, {"alter"}, "/api/connections", 403),
        ({"connections"}, {"alter"}, "/api/log", 404),
        (None, {"alter"}, "/api/log", 404),
    ],
)
async def test_inside_view_needs_the_same_right_over_the_cluster(
    views: set[str] | None, operations: set[str], path: str, status: int
) -> None:
    cluster = Cluster(operations=frozenset(operations))
    if views is not None:
        cluster.live = SimpleNamespace(views=views, log_lines=lambda since: [since], connections=list)
    answered, value = await cluster.ask("GET", path, since="7")
    assert answered == status
    if status == 403:
        assert (
            value["error"]
            == f"this needs the right to {'alter' if path == '/api/log' else 'describe'} the cluster"
        )


def call(body: dict[str, Any] | None = None, **query: str) -> Call:
    backend: Any = None
    return Call(backend, {}, query, body or {})


def test_what_destroys_is_done_for_who_has_named_it() -> None:
    call({"confirm": "x"}).confirmed("x")
    for body in ({}, {"confirm": "y"}, {"confirm": True}):
        with pytest.raises(ConsoleError, match='"confirm": "x"') as raised:
            call(body).confirmed("x")
        assert raised.value.status == 409


@pytest.mark.parametrize(
    ("status", "told"),
    [(0, 502), (399, 502), (400, 400), (401, 502), (402, 402), (404, 404), (599, 599), (600, 502)],
)
def test_registry_with_another_login_does_not_ask_the_visitor(status: int, told: int) -> None:
    error = registry_failure(RegistryError(status, 1, "no"))
    assert (error.status, str(error)) == (told, "no")
