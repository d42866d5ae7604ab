"""Logs of the replicas of a partition, compared byte by byte.

The rule: the bytes on the disks are compared, of all segments in sequence; brokers may begin segments at different offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from compat.cluster.nodes import Brokers, ClusterError, Node, wait_until

HEADER = struct.Struct(">qi")  # base offset, bytes that follow


def content(directory: Path) -> bytes:
    """The batches of a partition's segments, in order; a partial batch at the end is omitted."""
    content_bytes = b""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        end = 0
        while end + HEADER.size <= len(data):
            _, size = HEADER.unpack_from(data, end)
            if size <= 0 or end + HEADER.size + size > len(data):
                break
            end += HEADER.size + size
        content_bytes += data[:end]
    return content_bytes


def offsets(log: bytes) -> list[int]:
    """The base offset of each batch."""
    base_offsets, position = [], 0
    while position < len(log):
        base, size = HEADER.unpack_from(log, position)
        base_offsets.append(base)
        position += HEADER.size + size
    return base_offsets


def log_of(node: Node, name: str) -> Path:
    """The directory of a partition's log at a broker, in whichever of its log dirs it is."""
    paths = [log_dir / name for log_dir in node.log_dirs]
    return next((path for path in paths if path.exists()), paths[0])


def compare(cluster: Brokers, topics: Iterable[str]) -> tuple[int, int]:
    """Check that all replicas of these topics have the same bytes, once writing has ended.

    Returns the number of partitions and the bytes of one replica of each. Raises ClusterError.
    """
    partitions = size = 0
    for topic in topics:
        assignment = cluster.assignment(topic)
        for index, replicas in assignment.items():
            directories = {
                broker_id: log_of(cluster.nodes[broker_id], f"{topic}-{index}") for broker_id in replicas
            }

            def same(directories: dict[int, Path] = directories) -> bool:
                return len({content(path) for path in directories.values()}) == 1

            def found(directories: dict[int, Path] = directories) -> str:
                return difference({broker_id: content(path) for broker_id, path in directories.items()})

            wait_until(same, f"the replicas of {topic}-{index} have the same bytes", found, seconds=20)
            partitions += 1
            size += len(content(next(iter(directories.values()))))
    return partitions, size


def difference(logs: dict[int, bytes]) -> str:
    """The first difference between replicas, in words."""
    shortest = min(len(log) for log in logs.values())
    first = next(iter(logs.values()))
    at = next(
        (n for n in range(shortest) if any(log[n] != first[n] for log in logs.values())),
        shortest,
    )
    where = [
        f"broker {broker_id}: {len(log)} bytes, batches {offsets(log)[-3:]}"
        for broker_id, log in logs.items()
    ]
    return f"they differ at byte {at}; " + "; ".join(where)


__all__ = ["ClusterError", "compare", "content"]
