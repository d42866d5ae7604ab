"""An administrator of a cluster with answers, and versions, that a test says."""

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
    """An administrator, and what its cluster was asked: hosts and requests, without those that look for brokers."""

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
        """Hosts that were asked, in turn."""
        return [host for host, _ in self.asked]


@asynccontextmanager
async def scripted_admin(
    answer: Callable[[str, Any], Any] | Any,
    versions: Mapping[str, int] | None = None,
    *,
    cluster: ScriptedCluster | None = None,
    **settings: Any,
) -> AsyncIterator[ScriptedAdmin]:
    """Administer brokers that answer so, in versions up to those given by API; `answer` may be one response for all."""
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
    """Return the code of an outcome, which has to be the error of a broker."""
    assert isinstance(outcome, ResponseError), outcome
    return outcome.code
