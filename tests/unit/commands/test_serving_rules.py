"""Commands that serve: what keeps one from it, how it ends, and the registry that it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.cli import main
from barnabas.commands import serving
from barnabas.registry import access
from barnabas.registry import serving as registry_serving
from tests.support.certificates import written as certificates_in

# --- the registry --------------------------------------------------------------------------------------------------


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Registries that serve nothing, by what they were made and run with."""
    noted: list[tuple[Any, ...]] = []

    class Server:
        url = "http://here:8081"

        def __init__(self, address: Any, *, may_be_reached: bool) -> None:
            noted.append((address, may_be_reached))

        async def run(
            self, bootstrap: Any, settings: Any, logins: Any, topic: str, *, task_status: Any
        ) -> None:
            noted.append((bootstrap, settings.client_id, logins, topic))
            task_status.started()

    monkeypatch.setattr(registry_serving, "RegistryServer", Server)
    monkeypatch.setattr(access, "Logins", lambda bootstrap, make: (bootstrap, make("ann", "pw").sasl))

    def serve_once(name: str, start: Callable[[trio.Nursery], Awaitable[str]], level: str) -> int:
        async def run() -> None:
            async with trio.open_nursery() as nursery:
                noted.append((name, await start(nursery), level))

        trio.run(run)
        return 0

    monkeypatch.setattr(serving, "serve", serve_once)
    return noted


def test_registry_certificate_may_have_its_key_in_another_file(
    served: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    files = certificates_in(tmp_path)
    listen = ("registry", "--listen", "localhost:0", "--listen-cert")
    assert main([*listen, str(files.client), "--listen-key", str(files.client_key)]) == 0
    assert main([*listen, str(files.broker)]) == 0
    assert [address.tls is not None for address, _ in (served[0], served[3])] == [True, True]
