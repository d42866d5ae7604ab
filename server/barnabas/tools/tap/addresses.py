"""Rewriting of brokers' addresses in responses. Pure.

The rule: only host and port of a broker change; all other fields of the message are encoded as they were decoded,
including unknown tagged fields, and the header's bytes are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from barnabas.wire import registry
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.headers import parse_response_header
from barnabas.wire.primitives import Buffer, encode_uvarint

PRODUCE, FETCH, METADATA, FIND_COORDINATOR = 0, 1, 3, 10
DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE = 60, 78, 79
_FIRST_VERSION = {
    PRODUCE: 10,  # node endpoints since KIP-951
    FETCH: 16,
    METADATA: 0,
    FIND_COORDINATOR: 0,
    DESCRIBE_CLUSTER: 0,
    SHARE_FETCH: 0,
    SHARE_ACKNOWLEDGE: 0,
}
"""From which version on an API's answers name addresses of brokers."""
_LISTS = {
    PRODUCE: "node_endpoints",
    FETCH: "node_endpoints",
    METADATA: "brokers",
    FIND_COORDINATOR: "coordinators",
    DESCRIBE_CLUSTER: "brokers",
    SHARE_FETCH: "node_endpoints",
    SHARE_ACKNOWLEDGE: "node_endpoints",
}

AddressOf = Callable[[str, int], "tuple[str, int] | None"]
"""The address to give in place of a broker's; None to leave it."""


def may_have_addresses(key: int, version: int) -> bool:
    """Return whether answers of this API and version can name addresses of brokers."""
    first = _FIRST_VERSION.get(key)
    return first is not None and version >= first


def changed(key: int, version: int, frame: Buffer, message: Any, address_of: AddressOf) -> bytes | None:
    """Return the frame, with its size field, of the decoded answer `message` with other addresses; None if none change.

    `message` is as before afterwards.
    """
    name = _LISTS[key]
    nodes = getattr(message, name)
    others = [_moved(node, address_of) for node in nodes]
    is_single = key == FIND_COORDINATOR and version < 4
    other = _address(message, address_of) if is_single else None
    if other is None and all(new is old for new, old in zip(others, nodes, strict=True)):
        return None
    before = (message.host, message.port) if is_single else None
    setattr(message, name, others)
    if other is not None:
        message.host, message.port = other
    try:
        _, position = parse_response_header(frame, key, version)
        body = registry.response_codec(key).encode_bytes(message, version)
    finally:
        setattr(message, name, nodes)
        if before is not None:
            message.host, message.port = before
    return (position + len(body)).to_bytes(4, "big") + bytes(frame[:position]) + body


def changed_end(version: int, size: int, message: Any, address_of: AddressOf) -> tuple[bytes | None, bool]:
    """Return the tagged fields at the end of a Fetch response with new addresses, and whether they contain them.

    The bytes before them, with the size of the frame, have been forwarded, so the fields take exactly `size` bytes: an
    unknown tag pads them. Addresses that do not fit are omitted; a client then requests metadata, as with brokers before
    KIP-951. None if nothing changes.
    """
    nodes = message.node_endpoints
    others = [_moved(node, address_of) for node in nodes]
    if all(new is old for new, old in zip(others, nodes, strict=True)):
        return None, True
    for kept in (others, []):
        for tag in FILLING_TAGS:
            end = _end_of_size(version, size, kept, message.unknown_tagged_fields or {}, tag)
            if end is not None:
                return end, kept is others
    return None, False


FILLING_TAGS = (100, 200)
"""Numbers of tagged fields that no version of Kafka uses, encoded in one byte and in two: together they pad to any size."""


def _end_of_size(
    version: int, size: int, nodes: list[Any], unknown: dict[int, bytes], tag: int
) -> bytes | None:
    """Return the tagged fields of a Fetch response in `size` bytes; None if a field with this tag cannot pad them."""

    def encoded(fields: dict[int, bytes]) -> bytes:
        answer = FetchResponse(node_endpoints=nodes, unknown_tagged_fields=fields or None)
        return registry.response_codec(FETCH).encode_bytes(answer, version)[FETCH_FIELDS_BYTES:]

    end = encoded(unknown)
    if len(end) == size:
        return end
    for length_bytes in (1, 2, 3):
        count = size - len(end) - len(encode_uvarint(tag)) - length_bytes
        if count >= 0 and len(encode_uvarint(count)) == length_bytes:
            filled = encoded({**unknown, tag: bytes(count)})
            return filled if len(filled) == size else None
    return None


FETCH_FIELDS_BYTES = 11
"""Throttle time, error code, session id and no topics, of Fetch v12 and newer."""


def _moved(node: Any, address_of: AddressOf) -> Any:
    other = _address(node, address_of)
    return node if other is None else replace(node, host=other[0], port=other[1])


def _address(node: Any, address_of: AddressOf) -> tuple[str, int] | None:
    if not node.host or not 0 < node.port < 65536:
        return None  # no broker is known, or the answer is an error
    other = address_of(node.host, node.port)
    return None if other is None or other == (node.host, node.port) else other
