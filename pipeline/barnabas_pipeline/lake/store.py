"""Objects of a table in its store: local files, S3, GCS, Azure, HDFS; all through pyiceberg's FileIO.

The rule: an object becomes visible when it is complete and on disk, so that a catalog never names an object that a power
cut could lose. Names have no meaning; the catalog's snapshots and the ledger do.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from pyarrow import fs
from pyiceberg.io import FileIO, load_file_io

from barnabas.system.files import sync
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake import conditional, hdfs
from barnabas_pipeline.lake.pyiceberg_internals import HdfsFileIO, StoredFile

if TYPE_CHECKING:
    from pyiceberg.io import OutputStream
    from typing_extensions import Buffer

LOCAL = "file"
CHUNK_BYTES = 1 << 20


class SyncedFile(io.BufferedWriter):
    """A local file that is forced to the disk, with its name, when it is closed."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        super().__init__(io.FileIO(path, "w"), CHUNK_BYTES)

    def close(self) -> None:
        """Sync and close the file; a second call does nothing."""
        if self.closed:
            return
        try:
            self.flush()
            sync(self.fileno())
        finally:
            super().close()
        descriptor = os.open(self._path.parent, os.O_RDONLY)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)


class StoreFile(StoredFile):
    """A file of a store; a local one is synced when it is closed."""

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream to write it. Raises FileExistsError."""
        if not isinstance(self.file_system, fs.LocalFileSystem):
            return super().create(overwrite)
        if not overwrite and os.path.exists(self.path):
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        return SyncedFile(Path(self.path))


class StoreIO(HdfsFileIO):
    """pyiceberg's FileIO over Arrow, which syncs local files."""

    def new_output(self, location: str) -> StoreFile:
        """Return a file to write to or read from."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        return StoreFile(location, path, self.fs_by_scheme(scheme, netloc))

    def file_system(self, location: str) -> tuple[fs.FileSystem, str]:
        """Return Arrow's file system of a location, and its path there."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        return self.fs_by_scheme(scheme, netloc), path

    def open_hdfs(self, scheme: str, netloc: str | None) -> fs.FileSystem:
        """Return HDFS by the package `hdfs-native`, else by libhdfs. Raises UsageError if neither is installed."""
        if scheme == "hdfs" and hdfs.is_installed():
            return hdfs.open_hdfs(netloc or "", self.properties)
        try:
            return super().open_hdfs(scheme, netloc)
        except OSError as error:
            if "Unable to load lib" not in str(error):
                raise
            raise UsageError(f"{scheme}://{netloc} needs a client of HDFS: pip install hdfs-native") from None


IO_PROPERTIES = {"py-io-impl": f"{StoreIO.__module__}.{StoreIO.__name__}"}


def open_io(properties: dict[str, str], location: str) -> FileIO:
    """Return the FileIO for a location, as a worker needs it."""
    return load_file_io(properties, location)


class Digesting:
    """A writer of a new file that counts and digests its bytes."""

    def __init__(self, io: FileIO, location: str) -> None:
        self.location = location
        self.size = 0
        self.closed = False
        self._sha256 = hashlib.sha256()
        self._stream = io.new_output(location).create(overwrite=True)

    def write(self, data: Buffer) -> int:
        """Write some bytes."""
        self._sha256.update(data)
        self._stream.write(cast("bytes", data))
        count = memoryview(data).nbytes
        self.size += count
        return count

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.size

    def flush(self) -> None:
        """Do nothing: an object appears when it is closed."""

    def close(self) -> None:
        """Finish the file, which makes the object visible."""
        if not self.closed:
            self.closed = True
            self._stream.close()

    @property
    def sha256(self) -> str:
        """The SHA-256 of all bytes, in hex."""
        return self._sha256.hexdigest()


def write(io: FileIO, location: str, data: bytes) -> None:
    """Write a new object."""
    with io.new_output(location).create(overwrite=True) as stream:
        stream.write(data)


def read(io: FileIO, location: str) -> bytes:
    """Read an object. Raises FileNotFoundError."""
    with io.new_input(location).open() as stream:
        return bytes(stream.read())


def copy(io: FileIO, location: str, other: str) -> None:
    """Copy an object, unless the target has the same bytes already."""
    data = read(io, location)
    with suppress(FileNotFoundError):
        if read(io, other) == data:
            return
    write(io, other, data)


def sha256_of(io: FileIO, location: str) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 of an object. Raises FileNotFoundError."""
    sha256 = hashlib.sha256()
    size = 0
    with io.new_input(location).open(seekable=False) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            sha256.update(chunk)
            size += len(chunk)
    return size, sha256.hexdigest()


@dataclass(frozen=True, slots=True)
class Listed:
    """An object, and the time of its last write, in seconds since 1970."""

    location: str
    modified: float


def listing(io: FileIO, location: str) -> Iterator[Listed]:
    """Yield all objects below a location. Raises UsageError for a FileIO that cannot list."""
    if not isinstance(io, StoreIO):
        raise UsageError(f"{type(io).__name__} cannot list what is below {location}")
    system, path = io.file_system(location)
    prefix = location.removesuffix(path)
    for info in system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True)):
        if info.is_file:
            yield Listed(f"{prefix}{info.path}", info.mtime.timestamp())


def names(io: StoreIO, location: str) -> set[str]:
    """Return the objects directly below a location."""
    system, path = io.file_system(location)
    prefix = location.removesuffix(path)
    listed = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return {f"{prefix}{info.path}" for info in listed}


def location_of(name: str | Path) -> str:
    """Return the location that a path or URL names, in the form that Iceberg compares. Raises UsageError."""
    text = str(name)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if scheme is not None and scheme[1].lower() != LOCAL:
        rest = text[len(scheme[1]) + 1 :]
        rest = (rest if rest.startswith("//") else f"//{rest}").rstrip("/") or "//"
        return f"{scheme[1].lower()}:{rest}"
    if scheme is not None:
        url = urlsplit(text)
        if url.netloc not in ("", "localhost"):
            raise UsageError(f"{name} is on another machine: a file URL is of this one")
        text = unquote(url.path)
    path = str(Path(text).absolute())
    if any(character in path for character in "#?%"):
        raise UsageError(f"Iceberg cannot name files below {path}: no #, ?, % in a path")
    return f"{LOCAL}://{path}"


_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}
"""Schemes by which other engines name the same store, as used by Iceberg's removal of orphan files."""


def comparable(location: str) -> str:
    """Return a location in one form, since catalogs and engines write `file:/a` for `file:///a`, and `s3a` for `s3`."""
    scheme, separator, rest = location.partition(":")
    if not separator or "/" in scheme:
        return location
    scheme = _SCHEMES.get(scheme.lower(), scheme.lower())
    return f"{scheme}:{rest}" if rest.startswith("//") else f"{scheme}://{rest}"


def put_if_absent(io: StoreIO, location: str, data: bytes) -> bool:
    """Put a whole object, unless it exists; returns whether it was put. After an OSError it may exist."""
    system, path = io.file_system(location)
    if _is_object_store(system):
        return conditional.create(location, data, io.properties, getattr(system, "region", None))
    with _whole(io, location, data) as temporary:
        try:
            if isinstance(system, fs.LocalFileSystem):
                os.link(temporary, path)
            else:
                hdfs.rename(system, temporary, path, overwrite=False)
        except FileExistsError:
            return False
    return True


def replace(io: StoreIO, location: str, data: bytes) -> None:
    """Replace an object atomically: readers see the old bytes or the new bytes."""
    system, path = io.file_system(location)
    if _is_object_store(system):
        write(io, location, data)
        return
    with _whole(io, location, data) as temporary:
        if isinstance(system, fs.LocalFileSystem):
            os.replace(temporary, path)
        else:
            hdfs.rename(system, temporary, path, overwrite=True)


def _is_object_store(system: fs.FileSystem) -> bool:
    """Return whether objects appear as a whole, unlike files."""
    return not isinstance(system, fs.LocalFileSystem) and not hdfs.is_hdfs(system)


@contextmanager
def _whole(io: StoreIO, location: str, data: bytes) -> Iterator[str]:
    """Write a file beside its final name; yields its path, and removes it if it is still there."""
    directory, _, name = location.rpartition("/")
    temporary = f"{directory}/.{name}.{uuid.uuid4().hex}"
    try:
        write(io, temporary, data)
        yield io.file_system(temporary)[1]
    finally:
        with suppress(FileNotFoundError):
            io.delete(temporary)


LEDGER, DEAD, CURRENT, GONE, ERASED = "_ledger", "_dead", "_current", "_gone", "_erased"
"""Directories of ours below a table's location. Iceberg's removal of orphan files skips names with an underscore.

In tables of earlier releases the first four have no underscore.
"""
_EARLIER = re.compile(r"(?:(?<=^)|(?<=/))(ledger|dead|current|gone)(?=/)")


def hidden(location: str, root: str) -> str:
    """Return the present location of an object of ours below a table's location, by that in an earlier release."""
    below = location.removeprefix(f"{root}/")
    return location if below == location else f"{root}/" + _EARLIER.sub(r"_\1", below)


def earlier(location: str) -> str:
    """Return the location that a table of dead letters or current rows had in an earlier release."""
    table, directory, name = location.rpartition(f"/{CURRENT}/")
    if directory and name and "/" not in name:
        return f"{table}/{CURRENT[1:]}/{name}"
    return f"{location.removesuffix(DEAD)}{DEAD[1:]}" if location.endswith(f"/{DEAD}") else location


def local_path(location: str) -> Path | None:
    """Return the directory of a location on this machine, if it is one."""
    scheme, separator, path = location.partition("://")
    return Path(path) if separator and scheme == LOCAL else None
