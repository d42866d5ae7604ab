"""A capture to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.unit.tools.tap.test_captures import CONVERSATION, written
from tests.unit.tools.tap.test_session import request, response


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "a.pcapng"
    refused = HeartbeatResponse(error_code=25)
    beat = (
        (True, request(12, 4, 4, HeartbeatRequest("g", 1, "m"), "other")),
        (False, response(12, 4, 4, refused)),
    )
    path.write_bytes(written(*CONVERSATION, *beat))
    return path
