"""Selection of mutants: of packages, files or changed lines, without known equivalents; and sampling."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import yaml

from tools.mutants.slips import Mutant, mutants
from tools.mutants.source import ROOT, Source

PACKAGE = Path("server") / "barnabas"
PIPELINE = Path("pipeline") / "barnabas_pipeline"
HERE = Path(__file__).parent
EQUIVALENT = HERE / "equivalent.yaml"
PLANTED = HERE / "planted.yaml"
GENERATED = PACKAGE / "wire" / "generated"


def sources(names: Sequence[str]) -> Iterator[Source]:
    """Yield the modules of the named packages (`log`, `log/cleaner`, `pipeline/lake`) and files, or, without names, of
    the whole broker. Raises SystemExit if one does not exist.
    """
    paths: set[Path] = set()
    for name in names or [""]:
        path = ROOT / place_of(name)
        if not path.exists():
            raise SystemExit(f"there is no {path.relative_to(ROOT)}")
        paths.update([path] if path.is_file() else path.rglob("*.py"))
    for path in sorted(paths):
        relative = path.relative_to(ROOT)
        if GENERATED not in relative.parents:
            yield Source(str(relative), path.read_text())


def place_of(name: str) -> Path:
    """Return the path of a package or file from its name on the command line, relative to the checkout."""
    if name.startswith(("server/", f"{PIPELINE}/")):
        return Path(name)
    first, _, rest = name.partition("/")
    return PIPELINE / rest if first == "pipeline" else PACKAGE / name


@dataclass(frozen=True)
class Equivalent:
    """A reviewed mutant: no test can distinguish it from the program."""

    path: str
    function: str
    before: str
    after: str
    reason: str
    at: int | None = None
    """Its line within the function, if the text of the lines alone is ambiguous; else None."""


def equivalents() -> list[Equivalent]:
    """Read the list of reviewed equivalent mutants."""
    return [Equivalent(**entry) for entry in yaml.safe_load(EQUIVALENT.read_text()) or []]


def is_in(equivalents: Iterable[Equivalent], mutant: Mutant) -> bool:
    """Return whether a mutant is in the list."""
    key = (mutant.path, mutant.unit.name, mutant.before, mutant.after)
    at = mutant.line - mutant.unit.first_line
    return any(
        key == (each.path, each.function, each.before, each.after) and each.at in (None, at)
        for each in equivalents
    )


def changed_lines(base: str) -> Mapping[str, set[int]]:
    """Return the lines of each file of the broker and the pipeline that are new since a commit."""
    command = ["git", "diff", "--unified=0", "--no-color", base, "--", str(PACKAGE), str(PIPELINE)]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lines_by_path: dict[str, set[int]] = {}
    path = ""
    for line in text.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines_by_path.setdefault(path, set()).update(range(first, first + count))
    return lines_by_path


def sampled(mutants: Sequence[Mutant], count: int | None, seed: str) -> list[Mutant]:
    """Return a sample of `count` mutants, evenly over the kinds of slips; deterministic by the seed and the functions."""
    if count is None:
        return list(mutants)
    texts = {path: (ROOT / path).read_text() for path in {mutant.path for mutant in mutants}}
    by_slip: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_slip.setdefault(mutant.slip, []).append(mutant)
    for each in by_slip.values():
        each.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.id}".encode()).digest())
    chosen: list[Mutant] = []
    for mutant in filter(
        None, chain.from_iterable(zip_longest(*(by_slip[slip] for slip in sorted(by_slip))))
    ):
        if len(chosen) == count:
            break
        if mutant.compiles(texts[mutant.path]):
            chosen.append(mutant)
    return sorted(chosen, key=lambda mutant: (mutant.path, mutant.start, mutant.text))


def all_mutants(read: Iterable[Source]) -> list[Mutant]:
    """Return every mutant of these modules that is not known to be equivalent."""
    equivalent = equivalents()
    return [mutant for source in read for mutant in mutants(source) if not is_in(equivalent, mutant)]


@dataclass(frozen=True)
class Planted:
    """A bug that was planted by hand, and that tests have to notice."""

    name: str
    path: str
    tests: str
    """The file with a test that notices it."""
    before: str
    after: str

    def applied(self) -> str:
        """Return the module's text with the bug."""
        text = (ROOT / self.path).read_text()
        if text.count(self.before) != 1:
            raise SystemExit(f"planted bug {self.name!r}: its text must be in {self.path} once")
        return text.replace(self.before, self.after)


def planted() -> list[Planted]:
    """Read the list of bugs planted by hand."""
    entries: list[dict[str, Any]] = yaml.safe_load(PLANTED.read_text()) or []
    return [Planted(**entry) for entry in entries]
