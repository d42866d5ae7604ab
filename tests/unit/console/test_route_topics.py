"""Routes over topics, the cluster and subjects, with what is measured and told of them."""

from __future__ import annotations

import json
from typing import Any

from barnabas.client.admin import (
    PartitionInfo,
    TopicInfo,
)
from barnabas.console.measuring import led_by
from barnabas.console.topic_index import TopicRow, row_of
from barnabas.registry.errors import RegistryError
from tests.support.console_cluster import Cluster, refused, shown


def row(name: str, *leaders: int, under: int = 0, internal: bool = False) -> TopicRow:
    offline = sum(leader < 0 for leader in leaders)
    return TopicRow(name, len(leaders), 2, under, offline, internal, leaders)


def test_a_row_counts_what_its_partitions_lack() -> None:
    parts = (
        PartitionInfo(0, 1, 0, (1, 2, 3), (1, 2), ()), PartitionInfo(1, -1, 0, (1,), (), ()),
        PartitionInfo(2, 2, 0, (2,), (2,), ()),
    )  # fmt: skip
    assert row_of(TopicInfo("t", "", True, parts)) == TopicRow("t", 3, 3, 2, 1, True, (1, -1, 2))
    assert row_of(TopicInfo("t", "", False, ())) == TopicRow("t", 0, 0, 0, 0, False, ())
    assert led_by([row("a", 1, -1, 2, 1), row("b", 2)]) == {1: {"a": [0, 3]}, 2: {"a": [2], "b": [0]}}


# --- subjects ------------------------------------------------------------------------------------------------------


class Registry:
    """A registry that answers by path, and keeps what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = answers
        self.asked: list[tuple[Any, ...]] = []

    async def ask_unread(self, path: str) -> bytes:
        return json.dumps(await self.ask("GET", path)).encode()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        self.asked.append((method, path, *([] if body is None else [body])))
        answer = self.answers[path]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_subject_is_shown_with_its_last_version_or_that_which_was_named() -> None:
    registry = Registry()
    at = "/subjects/a%2Fb/versions"
    registry.answers = {
        "/subjects": ["b", "a/b"], at: [1, 3], f"{at}/3": {"id": 7}, f"{at}/1": {"id": 5},
        "/config/a%2Fb?defaultToGlobal=true": {"compatibilityLevel": "FULL"},
    }  # fmt: skip
    cluster = Cluster()
    assert await refused(cluster, "GET", "/api/subjects") == (
        404, "there is no schema registry: set it with --registry URL",
    )  # fmt: skip
    cluster.registry = registry
    subjects = json.loads(await shown(cluster, "/api/subjects"))
    assert [one["name"] for one in subjects["rows"]] == ["a/b", "b"]
    assert cluster.sandbox.called == [("subjects_page", "ann")], "a list is read beside the event loop"
    assert await refused(cluster, "GET", "/api/subjects", sort="size") == (400, "sort: one of name expected")
    registry.answers["/subjects"] = {"no": "list"}
    assert (await refused(cluster, "GET", "/api/subjects"))[0] == 502
    assert await shown(cluster, "/api/subjects/a%2Fb") == {
        "versions": [1, 3],
        "schema": {"id": 7},
        "compatibility": "FULL",
    }
    assert (await shown(cluster, "/api/subjects/a%2Fb", version="1"))["schema"] == {"id": 5}
    registry.answers["/subjects"] = RegistryError(401, 1, "who?")
    assert await refused(cluster, "GET", "/api/subjects") == (502, "who?")
