"""An admin client of a cluster with scripted responses and API versions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from barnabas.client import ClientSettings, ResponseError, open_client
from barnabas.client.admin import Admin
from barnabas.wire import registry
from barnabas.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.support.scripted_broker import BOOTSTRAP, VERSIONS, ScriptedCluster

COORDINATOR = 2
"""The broker that coordinates all groups and transactional ids."""


class ScriptedAdmin(Admin):
    """An admin client, and the requests to its cluster, with their hosts; without those that discover brokers."""

    def __init__(self, client: Any, cluster: ScriptedCluster) -> None:
        super().__init__(client)
        self.cluster = cluster
        self.asked: list[tuple[str, Any]] = []

    @property
    def request(self) -> Any:
        """The newest request."""
        return self.asked[-1][1]

    @property
    def hosts(self) -> list[str]:
        """Hosts of the requests, in order."""
        return [host for host, _ in self.asked]


@asynccontextmanager
async def scripted_admin(
    answer: Callable[[str, Any], Any] | Any,
    versions: Mapping[str, int] | None = None,
    *,
    cluster: ScriptedCluster | None = None,
    **settings: Any,
) -> AsyncIterator[ScriptedAdmin]:
    """Yield an admin client of brokers that return `answer`, or its result; `versions` are the newest versions by API."""
    cluster = cluster or ScriptedCluster()
    newest = {name: registry.info(registry.key_of(name)).max_stable_version for name in versions or {}}
    spans = {
        registry.key_of(name): (
            registry.info(registry.key_of(name)).request_min_version,
            min(most, newest[name]),
        )
        for name, most in (versions or {}).items()
    }
    cluster.versions = {**VERSIONS, **spans}
    async with (
        cluster.serving(),
        open_client([BOOTSTRAP], ClientSettings(**settings), dial=cluster.dial) as client,
    ):
        admin = ScriptedAdmin(client, cluster)

        def answered(host: str, request: Any) -> Any:
            if isinstance(request, FindCoordinatorRequest):
                address = cluster.addresses[COORDINATOR]
                coordinators = [
                    FindCoordinatorResponse.Coordinator(key, COORDINATOR, *address)
                    for key in request.coordinator_keys or [""]
                ]
                return FindCoordinatorResponse(coordinators=coordinators)
            admin.asked.append((host, request))
            return answer(host, request) if callable(answer) else answer

        cluster.answer = answered
        yield admin


def code_of(outcome: Any) -> int:
    """Return the error code of an outcome, which must be a broker's error."""
    assert isinstance(outcome, ResponseError), outcome
    return outcome.code
