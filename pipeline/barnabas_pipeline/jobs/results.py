"""Files of a result: partials, results, and the commits that name them, in one directory of this machine.

The rule: a commit names at once how far each table was read, the partials of that, and the results that follow from them.
A file that no commit names does not exist, so whoever is killed has done nothing, or all of it.

    commits/<version>.json     put if absent
    files/<version>-<uuid>/    what a run has written: partials and what is condensed of them, by part; results
    results/<name>             the newest commit's, for people; linked there one after the other
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from barnabas_pipeline import faults
from barnabas_pipeline.lake.store import put_if_absent
from barnabas_pipeline.lake.table import ConflictError

COMMITS_KEPT = 10
"""Commits whose files are kept, for those who still read or extend them."""
PART = "part"
_DIRECTORY = "_part"


@dataclass(slots=True)
class ResultState:
    """A commit of a result; paths are below the directory."""

    version: int = 0
    inputs: dict[str, int] = field(default_factory=dict)
    """Version of each table up to which it was read."""
    digests: dict[str, str] = field(default_factory=dict)
    """Digest of the entry of that version: another table of that name, or one that went back, has another."""
    params: dict[str, Any] = field(default_factory=dict)
    settings: str = ""
    partials: dict[str, str] = field(default_factory=dict)
    condensed: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """All that it names."""
        return {*self.partials.values(), *self.condensed.values(), *self.results.values()}


class Results:
    """The directory of one result."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._commits = root / "commits"

    def state(self) -> ResultState:
        """The newest commit; version 0: none yet."""
        versions = sorted(self._commits.glob("*.json"))
        return ResultState(**json.loads(versions[-1].read_text())) if versions else ResultState()

    def begin(self, version: int) -> Path:
        """Return a new directory for the files of a version."""
        path = self.root / "files" / f"{version:020d}-{uuid.uuid4().hex}"
        path.mkdir(parents=True)
        return path

    def commit(self, state: ResultState) -> None:
        """Commit a version. Raises ConflictError if another run has."""
        self._commits.mkdir(parents=True, exist_ok=True)
        faults.point("derived.before_commit")
        text = json.dumps(asdict(state), sort_keys=True)
        is_first = put_if_absent(self._commit_file(state.version), text.encode())
        if not is_first or self.state().version >= state.version + COMMITS_KEPT:  # it was removed since
            raise ConflictError(f"version {state.version} of {self.root} was committed by another run")
        faults.point("derived.after_commit")
        self._vacuum(state.version)

    def publish(self, directory: Path) -> None:
        """Link the newest results into a directory, each as a whole, and remove those of earlier commits that are kept.

        Files of others stay.
        """
        published = -1
        while (state := self.state()).version != published:
            directory.mkdir(parents=True, exist_ok=True)
            for name, path in state.results.items():
                _link(self.root / path, directory / name)
                faults.point("derived.during_publish")
            for name in {name for one in self._kept() for name in one.results} - state.results.keys():
                (directory / name).unlink(missing_ok=True)
            published = state.version

    def path(self, path: str) -> str:
        """Return the place of a file that a commit names."""
        return str(self.root / path)

    def below(self, path: Path) -> str:
        """Return it as a commit names it."""
        return path.relative_to(self.root).as_posix()

    def write_parts(self, frame: Any, directory: Path) -> dict[str, str]:
        """Write a frame that has the column `part`, each part in a directory of its own; returns these by part."""
        named = frame.withColumn(_DIRECTORY, frame[PART]).repartition(_DIRECTORY)
        named.write.partitionBy(_DIRECTORY).parquet(str(directory))
        found = directory.glob(f"{_DIRECTORY}=*")
        return {unquote(one.name.partition("=")[2]): self.below(one) for one in found}

    def write_tables(self, tables: Iterable[tuple[str, Any]], directory: Path) -> dict[str, str]:
        """Write tables, each as Parquet and, unless it has lists, as CSV; returns the files by their names."""
        for name, table in tables:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            rows = table.sort_by([(one, "ascending") for one in table.column_names if _is_plain(table, one)])
            pq.write_table(rows, directory / f"{name}.parquet")
            if all(_is_plain(table, one) for one in table.column_names):
                pc_csv.write_csv(rows, directory / f"{name}.csv")
        return {one.relative_to(directory).as_posix(): self.below(one) for one in _files(directory)}

    def _commit_file(self, version: int) -> Path:
        return self._commits / f"{version:020d}.json"

    def _kept(self) -> list[ResultState]:
        """The commits that there are, the oldest first, without those that another run removes just now."""
        found = []
        for path in sorted(self._commits.glob("*.json")):
            with suppress(FileNotFoundError):
                found.append(ResultState(**json.loads(path.read_text())))
        return found

    def _vacuum(self, newest: int) -> None:
        """Remove what only commits name that are older than those kept, and what none names."""
        commits = self._kept()
        if len(commits) <= COMMITS_KEPT:
            return
        kept = {path for one in commits[-COMMITS_KEPT:] for path in one.paths}
        for run in (self.root / "files").iterdir():
            if int(run.name.partition("-")[0]) <= newest - COMMITS_KEPT:
                with suppress(FileNotFoundError):  # another run removes it just now
                    self._clean(run, kept)
        for one in commits[:-COMMITS_KEPT]:
            self._commit_file(one.version).unlink(missing_ok=True)

    def _clean(self, run: Path, kept: set[str]) -> None:
        """Remove what a run has written but for what is kept."""
        is_used = False
        for one in [*run.glob(f"*/{_DIRECTORY}=*"), *_files(run / "results")]:
            if self.below(one) in kept:
                is_used = True
            elif one.is_dir():
                shutil.rmtree(one)
            else:
                one.unlink()
        if not is_used:
            shutil.rmtree(run)


def _files(directory: Path) -> list[Path]:
    return [one for one in directory.rglob("*") if one.is_file()]


def _is_plain(table: Any, column: str) -> bool:
    kind = table.schema.field(column).type
    return not (pa.types.is_list(kind) or pa.types.is_struct(kind))


def _link(source: Path, target: Path) -> None:
    """Give a file a second name, in place of what has it now; where files cannot have two, copy it."""
    if target.exists() and target.samefile(source):
        return
    target.parent.mkdir(exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    temporary.replace(target)
