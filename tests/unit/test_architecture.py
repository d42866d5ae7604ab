"""ARCHITECTURE.md names the packages, in the order of the layers that import-linter checks, and a request's stages."""

from __future__ import annotations

import re
import tomllib
from itertools import zip_longest
from pathlib import Path

import pytest

from barnabas.serving.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]


def layers() -> list[set[str]]:
    """The layers of pyproject.toml, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rows,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["barnabas"]]
    return [set(layer.split(" | ")) for layer in rows if layer != "__main__"]


def rows() -> list[list[str]]:
    """The packages of each row of the table, in its order."""
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("| Package |")[2].partition("\n\n")[0]
    return [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:]]


def test_every_package_stands_below_its_importers() -> None:
    listed = [package for row in rows() for package in row]
    packages = {package for layer in layers() for package in layer}
    assert packages - {*listed} == set(), "in the layers of pyproject.toml, and in no row of ARCHITECTURE.md"
    assert sorted(listed) == sorted(packages), (
        "in two rows of ARCHITECTURE.md, or in no layer of pyproject.toml"
    )
    level = {package: number for number, layer in enumerate(layers()) for package in layer}
    assert [level[package] for package in listed] == sorted(level[package] for package in listed)


def stages_in(page: str) -> list[str]:
    """The stages of a request as ARCHITECTURE.md or the table of request-pipeline.md names them."""
    text = (ROOT / page).read_text()
    if page == "ARCHITECTURE.md":
        return re.findall(r"STAGES: (.+)", text)[0].split(" > ")
    table = text[text.index("| token |") :].partition("\n\n")[0]
    return ", ".join(re.findall(r"^\| ([\w, ]+) \|", table, re.M)).split(", ")


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/design/request-pipeline.md"])
def test_the_stages_of_a_request_are_named_in_their_order(page: str) -> None:
    named, stages = stages_in(page), [stage.__name__ for stage in STAGES]
    pairs = zip_longest(named, stages, fillvalue="")
    wrong = [pair for pair in pairs if not pair[0] or pair[0].replace(" ", "_") not in pair[1]]
    assert wrong == [], f"{page} names other stages than STAGES of serving/stages.py"
