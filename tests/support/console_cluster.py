"""A cluster with scripted responses, behind the routes of the console."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.client import ClientError, ResponseError
from barnabas.console.routes import dispatch
from tests.support.at_once_sandbox import AtOnce

REFUSED = ResponseError(29, "asking", "not you")
REFUSED_TEXT = "TOPIC_AUTHORIZATION_FAILED: not you"
"""Without the name of a topic there is no sentence."""
AWAY = ClientError("broker 2 is away")


class Cluster:
    """A visitor's backend, with an admin client that has scripted responses and records its requests."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[Any, ...]] = []
        self.forgotten = 0
        self.lags: dict[str, int] = {}
        self.admin = self
        self.live: Any = None
        self.registry: Any = None
        self.sandbox = AtOnce()
        self.owner = "ann"
        self.topics_index: list[Any] = []

    def forget(self) -> None:
        self.forgotten += 1

    async def history(self) -> Any:
        return SimpleNamespace(lags=SimpleNamespace(note=self.note_lag))

    def note_lag(self, group: str, lag: int) -> list[tuple[int, int]]:
        self.lags[group] = lag
        return [(5, lag)]

    def __getattr__(self, name: str) -> Any:
        async def answered(*arguments: Any, **named: Any) -> Any:
            args = [list(argument) if hasattr(argument, "__next__") else argument for argument in arguments]
            self.asked.append((name, *args, *([named] if named else [])))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*args) if callable(answer) else answer

        if name == "topics":  # both the administration's call and the index of the backend
            index = answered
            index.forget = self.forget  # type: ignore[attr-defined]
            return index
        return answered

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        backend: Any = self
        return await dispatch(backend, method, path, query, body)


async def shown(cluster: Cluster, path: str, **query: str) -> Any:
    status, value = await cluster.ask("GET", path, **query)
    assert status == 200, value
    return value


async def refused(
    cluster: Cluster, method: str, path: str, body: Any = None, **query: str
) -> tuple[int, str]:
    status, value = await cluster.ask(method, path, body, **query)
    return status, value["error"]
