"""A broker in this process, with its control API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.support.control_api import Api, host_in


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    host = host_in(tmp_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        yield Api(host)
        host.stop()
