"""Every attack, by what it goes at; importing this fills the table."""

from compat.hostile.attack import ATTACKS
from compat.hostile.attacks import connections, fetching, frames, groups, metrics, pipelining, records, topics

__all__ = [
    "ATTACKS",
    "connections",
    "fetching",
    "frames",
    "groups",
    "metrics",
    "pipelining",
    "records",
    "topics",
]
