"""A table on a file system: its manifests, its files, and the one way to commit.

The rule: `commit` is the only step that makes anything visible, and it is one `link` of a whole file. Two writers
cannot both put the same version: the second gets ConflictError and starts over from the new state.

The file system must have atomic hard links and fsync (any POSIX one, NFS too).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from barnabas.system.files import sync
from barnabas_pipeline import faults
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.lake.checkpoint import Checkpoints
from barnabas_pipeline.lake.manifest import BrokenLakeError, Manifest, TableState, digest

LOG, DATA, DEAD = "_log", "data", "dead"
CHECKPOINTS = "checkpoints"
ORPHAN_AGE_SECONDS = 24 * 3600.0


class ConflictError(IncompleteError):
    """Another writer has committed this version."""


class Table:
    """The table at `root`, which need not exist yet."""

    def __init__(self, root: str | Path) -> None:
        self.root = local_directory(root)
        self._state = TableState()
        self._checkpoints = Checkpoints(self.root / LOG / CHECKPOINTS)

    def path(self, relative: str) -> str:
        """Return the path of a file of a manifest."""
        return str(self.root / relative)

    def exists(self) -> bool:
        """Say whether anything was ever committed."""
        return self._log_path(1).exists()

    def manifests(self, after: int = 0) -> Iterator[tuple[Manifest, bytes]]:
        """Yield the manifests after a version, in order. Raises BrokenLakeError if one does not follow the one before."""
        version = after + 1
        previous = "" if after == 0 else None
        while True:
            try:
                data = self._log_path(version).read_bytes()
            except FileNotFoundError:
                break
            manifest = Manifest.decode(data)
            if previous is not None and manifest.previous != previous:
                raise BrokenLakeError(f"manifest {version} does not follow {version - 1}")
            yield manifest, data
            previous = digest(data)
            version += 1
        if self._log_path(version + 1).exists():
            raise BrokenLakeError(f"manifest {version} of {self.root} is missing")

    def state(self, version: int | None = None) -> TableState:
        """Fold the manifests: all (only those after the last call, or a checkpoint, are read), or those up to `version`."""
        if version is not None:
            state = self._checkpoints.load(version) or TableState()
            for manifest, data in self.manifests(state.version):
                if manifest.version > version:
                    break
                state.apply(manifest, data)
            if state.version != version:
                raise UsageError(f"{self.root} has no version {version}")
            return state
        if not self._state.version:
            self._state = self._checkpoints.load() or self._state
        for manifest, data in self.manifests(self._state.version):
            self._state.apply(manifest, data)
        return self._state

    def commit(self, manifest: Manifest) -> None:
        """Put the manifest of the next version. Raises ConflictError if there is one; nothing has changed then."""
        data = manifest.encode()
        state = self.state()
        if state.version >= manifest.version:
            raise ConflictError(f"version {manifest.version} of {self.root} was committed by another writer")
        state.copy().apply(manifest, data)  # what would make a broken lake is not even written
        target = self._log_path(manifest.version)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.parent / f".{target.name}.{os.getpid()}-{time.time_ns()}"
        write_synced(temporary, data)
        faults.point("commit.before_link")
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise ConflictError(
                f"version {manifest.version} of {self.root} was committed by another writer"
            ) from None
        finally:
            faults.point("commit.after_link")
            temporary.unlink()
        sync_directory(target.parent)
        if self._checkpoints.is_due(manifest.version):
            self._checkpoints.put(self.state())
        faults.point("commit.after")

    def orphans(self, age_seconds: float = ORPHAN_AGE_SECONDS, keep: Collection[str] = ()) -> list[Path]:
        """Files that no manifest ever named, or only older ones did, and that nobody has touched for so long."""
        state = self.state()
        known = {*state.files, *state.dead, *keep}
        before = time.time() - age_seconds
        found = []
        for directory in (DATA, DEAD, LOG):
            for path in (self.root / directory).rglob("*"):
                relative = path.relative_to(self.root).as_posix()
                is_temporary = path.name.startswith(".")
                wanted = relative in known or (directory == LOG and not is_temporary)
                if path.is_file() and not wanted and path.stat().st_mtime <= before:
                    found.append(path)
        return sorted(found)

    def _log_path(self, version: int) -> Path:
        return self.root / LOG / f"{version:020d}.json"


def local_directory(name: str | Path) -> Path:
    """Return the directory that a path or a `file:` URL names. Raises UsageError for a URL of another kind."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", str(name))
    if scheme is None:
        return Path(name).absolute()
    url = urlsplit(str(name))
    if scheme[1].lower() != "file" or url.netloc not in ("", "localhost"):
        raise UsageError(f"{name} is not a directory of this machine, and tables are kept in nothing else")
    return Path(unquote(url.path)).absolute()


def put_if_absent(path: Path, data: bytes) -> bool:
    """Give a whole file its name; False: somebody else has."""
    temporary = path.parent / f".{path.name}.{os.getpid()}-{time.time_ns()}"
    write_synced(temporary, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_directory(path.parent)
    return True


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and force it to the disk."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        sync(file.fileno())


def sync_directory(path: Path) -> None:
    """Force the names in a directory to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        sync(fd)
    finally:
        os.close(fd)
