"""Known failures with Barnabas, and properties of single clients that the matrix needs.

The rule: one line per cause, with the reason that readers see in the table. A line is removed when its cases work: a listed
case that passes fails the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch


@dataclass(frozen=True)
class Known:
    """A case that fails, for the clients with names that match `clients`."""

    case: str
    reason: str
    clients: str = "*"


KNOWN: tuple[Known, ...] = ()

# Clients that write no headers, or others than the README's: readers do not check the headers of their topics.
WITHOUT_HEADERS = ("java-0.10", "java-0.8", "java-0.9", "kafka-tools", "kcat")


def known_reason(client: str, case: str) -> str:
    """Return why this case is known to fail for this client, empty if it is not."""
    for row in KNOWN:
        if row.case == case and fnmatch(client, row.clients):
            return row.reason
    return ""
