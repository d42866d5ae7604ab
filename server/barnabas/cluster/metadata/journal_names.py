"""Names of the files in which older versions kept the metadata of a broker that is alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.log.disk import Disk

JOURNAL: Final = "barnabas-metadata.jsonl"
COPY: Final = "barnabas-metadata.copy.jsonl"
TAKEN_OVER: Final = ".taken-over"
"""Suffix of the files once a metadata log has replaced them."""

READY: Final = "barnabas-metadata.ready"
"""Directory with the log that replaces the journal: once it exists it counts."""


def journal_files(disk: Disk, dirs: Iterable[str], suffix: str = "") -> list[str]:
    """Return the paths of all copies in the log dirs that can be read, the journal itself first."""
    paths = []
    for directory in dirs:
        try:
            present = {entry.name for entry in disk.list(directory)}
        except OSError:
            continue  # faults of a log dir are reported where it is opened
        paths += [f"{directory}/{name}{suffix}" for name in (JOURNAL, COPY) if name + suffix in present]
    return paths
