"""Fields of znodes by their types: what is read, at each edge, and what is refused instead."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.json_znodes import ZnodeError, read

REFUSED = object()


def found(ask: Any, value: Any) -> Any:
    """Return the value as which a field is read."""
    fields = read("/a", json.dumps({"it": value} if value is not REFUSED else {}).encode())
    try:
        return ask(fields)
    except ZnodeError:
        return REFUSED


# --- edges of single znodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "is_taken"), [(0, False), (1, True), (2**15 - 1, True), (2**15, False)])
@pytest.mark.parametrize(("status", "is_status"), [(-1, False), (0, True), (1, True), (2, False)])
def test_levels_of_features(level: int, is_taken: bool, status: int, is_status: bool) -> None:
    data = json.dumps(
        {"version": 2, "status": status, "features": {"f": {"max_version_level": level}}}
    ).encode()
    if is_taken and is_status:
        assert resources.decode_features(data) == resources.FinalizedFeatures(status == 1, {"f": level})
    else:
        with pytest.raises(ZnodeError):
            resources.decode_features(data)
