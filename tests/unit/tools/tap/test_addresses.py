"""Addresses of brokers in answers are changed, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.tools.inspection.frames import read_response
from barnabas.tools.tap import addresses
from barnabas.wire import registry
from barnabas.wire.headers import encode_response
from tests.support.messages import all_messages, random_message

NAMED = sorted(addresses._FIRST_VERSION)


def _frame(key: int, version: int, message: Any, tags: dict[int, bytes] | None = None) -> bytes:
    return b"".join(bytes(one) for one in encode_response(key, version, 9, message, tags))[4:]  # type: ignore[arg-type]


def _nodes(message: Any) -> list[Any]:
    for name in ("brokers", "coordinators", "node_endpoints"):
        found = getattr(message, name, None)
        if found is not None:
            return [*found, message] if hasattr(message, "host") else list(found)
    return []


@pytest.mark.parametrize("key", NAMED, ids=registry.name_of)
def test_every_version_is_changed_in_host_and_port_only(key: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    definition = all_messages()[f"{registry.name_of(key)}Response"]
    codec = registry.response_codec(key)
    versions = [
        version
        for version in range(codec.min_version, codec.max_version + 1)
        if addresses.may_have_addresses(key, version)
    ]
    changes = 0
    for version in versions:
        for _ in range(10):
            message = random_message(definition, version, rng, unknown_tags=True)
            for node in _nodes(message):
                node.host, node.port = "broker.example.com", rng.choice((0, 9092, -1))
            if key == addresses.FIND_COORDINATOR and version >= 4:
                message.host, message.port = "", 0  # which these versions do not have
            frame = _frame(key, version, message)
            decoded = read_response(frame, key, version).message
            new = addresses.changed(key, version, frame, decoded, lambda _host, _port: ("localhost", 19092))
            assert read_response(frame, key, version).message == decoded, "it is as before"
            if new is None:
                assert not any(node.host and node.port == 9092 for node in _nodes(decoded))
                continue
            changes += 1
            assert int.from_bytes(new[:4], "big") == len(new) - 4
            assert new[4:8] == frame[:4]
            after = read_response(new[4:], key, version)
            assert after.problem == ""
            for node, other in zip(_nodes(decoded), _nodes(after.message), strict=True):
                if node.port == 9092:
                    assert (other.host, other.port) == ("localhost", 19092)
                other.host, other.port = node.host, node.port
            assert after.message == decoded
    assert changes
