"""ARCHITECTURE.md names every package, in the order of the layers that import-linter checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def layers() -> list[set[str]]:
    """The layers of pyproject.toml, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = [one["layers"] for one in contracts if one.get("containers") == ["barnabas"]]
    return [set(layer.split(" | ")) for layer in found if layer != "__main__"]


def rows() -> list[list[str]]:
    """The packages of each row of the table, in its order."""
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("| Package |")[2].partition("\n\n")[0]
    return [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:]]


def test_every_package_has_a_row_and_stands_below_those_that_may_import_it() -> None:
    listed = [package for row in rows() for package in row]
    assert sorted(listed) == sorted(package for layer in layers() for package in layer)
    level = {package: number for number, layer in enumerate(layers()) for package in layer}
    assert [level[package] for package in listed] == sorted(level[package] for package in listed)
