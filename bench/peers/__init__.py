"""The brokers that are compared: how each is started on a data directory, reached, and stopped."""

from __future__ import annotations

from pathlib import Path

from bench.peers.barnabas import Barnabas
from bench.peers.base import Peer, Running, wait_until_ready
from bench.peers.floor import Floor
from bench.peers.kafka import Kafka
from bench.peers.memory import Kfake, Tansu
from bench.peers.mock import Mock
from bench.tools import BenchError

IN_MEMORY = {"kfake": Kfake, "tansu": Tansu}

__all__ = ["Peer", "Running", "parse_peer", "wait_until_ready"]


def parse_peer(spec: str) -> Peer:
    """A peer from `name[=label][@checkout or version][+setting=value]...`.

    So `barnabas=before@../old` compares two checkouts, `kafka@3.9.1` names another version, and
    `barnabas=header+record.validation=header` starts one with another setting. `floor` and `floor@blocking` answer
    Produce without looking at it. Raises BenchError, UnavailablePeerError where a peer cannot be built here.
    """
    head, *settings = spec.split("+")
    head, _, place = head.partition("@")
    name, _, label = head.partition("=")
    pairs = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise BenchError(f"a setting is name=value, not {setting!r}")
        pairs[key] = value
    if name == "barnabas":
        # Where there is none, Python would find the checkout that runs this.
        if place and not (Path(place) / "server").is_dir():
            raise BenchError(f"{place} is no checkout of Barnabas")
        return Barnabas(label or name, pairs, Path(place) if place else None)
    if name == "kafka":
        return Kafka(label or name, pairs, place or None)
    if name == "mock" and not pairs and not place:
        return Mock(label or name)
    if name in IN_MEMORY and not pairs and not place:
        return IN_MEMORY[name](label or name)
    if name == "floor" and not pairs:
        return Floor(label or name, place or "trio")
    raise BenchError(f"no such peer: {spec!r} (barnabas, kafka, mock, kfake, tansu, floor)")
