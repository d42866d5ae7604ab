"""Content of the gallery: a directory for each bug, with `bug.yaml`, `faults.yaml` and a program.

The rule: a bug names the released version that has it, where it was reported, and a release without it, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

BUGS = Path(__file__).with_name("bugs")
FAULTS = "faults.yaml"


class CatalogueError(Exception):
    """A bug's directory is not as it should be; the message says where."""


@dataclass(frozen=True)
class Bug:
    """One entry."""

    name: str
    title: str
    client: str
    """The package as its users name it: `confluent-kafka`, `java`, `franz-go`, ..."""
    broken: str
    """The version that has it, which is run."""
    issue: str
    """Address of the report, or of the change that mended it."""
    seen: str
    """Effects that are seen when it is run, in a few sentences."""
    mended: str | None = None
    """A later version that does not have it, which is run too; None where none has been released."""
    happens: str = ""
    """When it happens in production."""
    with_packages: tuple[str, ...] = ()
    """Packages that the program needs besides the client, with their versions."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the broker."""
    ends_by_signal: bool = False
    """True if the bug ends the client's process."""

    @property
    def directory(self) -> Path:
        """The directory of its files."""
        return BUGS / self.name

    @property
    def program(self) -> Path:
        """The program that meets the bug. Raises CatalogueError."""
        programs = sorted(self.directory.glob("[Pp]rogram.*"))
        if len(programs) != 1:
            raise CatalogueError(
                f"{self.directory}: one file named program.* is expected, {len(programs)} are there"
            )
        return programs[0]

    @property
    def faults(self) -> Path:
        """The file of the broker's faults."""
        return self.directory / FAULTS

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that are run: the broken one first."""
        return (self.broken,) if self.mended is None else (self.broken, self.mended)


def names() -> list[str]:
    """Return the names of all bugs."""
    return sorted(path.parent.name for path in BUGS.glob("*/bug.yaml"))


def bug(name: str) -> Bug:
    """Return a bug. Raises CatalogueError."""
    path = BUGS / name / "bug.yaml"
    if name not in names():
        raise CatalogueError(f"there is no bug named {name!r}; there are {', '.join(names())}")
    fields: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    fields["with_packages"] = tuple(fields.pop("with", ()))
    texts = {
        key: " ".join(value.split()) if isinstance(value, str) else value for key, value in fields.items()
    }
    try:
        described = Bug(name, **texts)
    except TypeError as error:
        raise CatalogueError(f"{path}: {error}") from error
    if described.broken == described.mended:
        raise CatalogueError(f"{path}: the version that has it and the mended one are the same")
    return described
