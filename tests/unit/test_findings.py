"""Findings about other software have the form that their page states: a head, pinned packages, a comparison, a row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "findings"
SCRIPTS = sorted(FOLDER.glob("*.sh"))


def test_each_finding_has_a_row_and_each_row_a_finding() -> None:
    rows = re.findall(r"^\| \[(\S+)\]\((\S+)\) \| .+ \|$", (FOLDER / "README.md").read_text(), re.M)
    assert rows == [(path.stem, path.name) for path in SCRIPTS]
    assert {path.name for path in FOLDER.iterdir()} == {"README.md", *(path.name for path in SCRIPTS)}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_finding_has_the_form_of_its_page(path: Path) -> None:
    text = path.read_text()
    assert path.stat().st_mode & 0o111
    assert re.match(r"#!/bin/bash\n# \S.* \d+\.\d+\S*.*: .+\n# Seen: (?:.*\n)+?# (?:Judge|Beside it)\b", text)
    assert "set -euo pipefail\ndir=$(mktemp -d)\ntrap '" in text
    assert "\nSEEN\n" in text
    assert "barnabas" not in text.lower()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_finding_installs_only_pinned_packages(path: Path) -> None:
    installs = re.findall(r"^[^#\n]*(?:pip\" .*install|go get) (.+)", path.read_text(), re.M)
    packages = [word for words in installs for word in words.split(" 2>")[0].split()]
    versions = re.findall(r"^for version in (.+); do$", path.read_text(), re.M)  # of a Maven artifact
    versions += re.findall(r"<artifactId>\S+</artifactId><version>(\d[^<]*)</version>", path.read_text())
    packages += [f"artifact=={version}" for words in versions for version in words.split()]
    assert packages
    assert [word for word in packages if not re.fullmatch(r"\S+(==|@v)\d+\.\d+\.\d+", word)] == []
