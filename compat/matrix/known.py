"""Known failures with Barnabas, and knowledge of single clients that the matrix must have.

The rule: one line per cause, with the reason a reader sees in the table. A line goes when what it names works: a case
that passes though it is listed fails the run.
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
    """Why this case is known to fail for this client, or the empty string."""
    for row in KNOWN:
        if row.case == case and fnmatch(client, row.clients):
            return row.reason
    return ""
