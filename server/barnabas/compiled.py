"""Compiled modules: the code that runs for every record, compiled by mypyc from the sources that are here.

The rule: a compiled module is the same source, or it is not used. What was compiled is compared with the sources at each
start; where it is missing, old, or for another Python, the sources run. `BARNABAS_COMPILED=no` has them run anyway.

`python -m tools.accelerate` makes them, see docs/decisions/0040-compiled-records.md.
"""

from __future__ import annotations

import os
import sys
import zlib
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec

PACKAGE = "barnabas.records"
MODULES = (
    "batch",
    "control",
    "convert",
    "crc",
    "cursor",
    "errors",
    "legacy",
    "record",
    "scan",
    "validate",
    "varint",
)
SWITCH = "BARNABAS_COMPILED"
STAMP = "stamp"
"""The file that says of which sources the compiled modules were made."""

_HERE = os.path.dirname(__file__)
SOURCES = os.path.join(_HERE, "records")
DIRECTORY = os.path.join(_HERE, "_compiled", str(sys.implementation.cache_tag))


class Finder:
    """Finds compiled modules by their names, before the import system finds their sources."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder`."""
        file = self._files.get(name)
        return ModuleSpec(name, ExtensionFileLoader(name, file), origin=file) if file else None


def stamp(sources: str = SOURCES) -> str:
    """What stands for the sources as they are now. Raises OSError."""
    crc = 0
    for module in MODULES:
        with open(os.path.join(sources, f"{module}.py"), "rb") as source:
            crc = zlib.crc32(source.read(), crc)
    return f"{crc:08x}"


def find(directory: str = DIRECTORY, sources: str = SOURCES) -> dict[str, str]:
    """The compiled modules' files by name, with the library that they share; none if they are not of these sources."""
    try:
        with open(os.path.join(directory, STAMP), encoding="ascii") as file:
            if file.read() != stamp(sources):
                return {}
        suffix = EXTENSION_SUFFIXES[0]
        stems = {entry.removesuffix(suffix) for entry in os.listdir(directory) if entry.endswith(suffix)}
    except OSError:
        return {}
    return {
        f"{PACKAGE}.{stem}" if stem in MODULES else stem: os.path.join(directory, stem + suffix)
        for stem in stems
    }


def use() -> bool:
    """Prefer compiled modules from now on, if there are any; says so."""
    if os.environ.get(SWITCH, "").lower() in ("no", "0", "off", "false"):
        return False
    files = find()
    if files:
        sys.meta_path.insert(0, Finder(files))
    return bool(files)


IN_USE = use()
"""Whether this process has the compiled modules."""
