"""HDFS as a file system of Arrow's, by the package `hdfs-native`: no Java, no libhdfs.

The rule: a file is on the disks of its datanodes when it is closed, and any failure of the library is an OSError.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyarrow import fs

from barnabas_pipeline.errors import UsageError

if TYPE_CHECKING:
    from hdfs_native import FileStatus
    from hdfs_native.fsspec import HdfsFile, HdfsFileSystem
    from typing_extensions import Buffer

PACKAGE = "hdfs_native"
OWN = "dfs."
"""Prefixes of the client's own properties, such as `dfs.client.failover.max.attempts`."""


def is_installed() -> bool:
    """Return whether the package is installed."""
    return find_spec(PACKAGE) is not None


def open_hdfs(netloc: str, properties: Mapping[str, str]) -> fs.FileSystem:
    """Return the file system of a namenode, or of a name service configured in HADOOP_CONF_DIR. Raises UsageError."""
    return _opened(netloc, tuple(sorted(entry for entry in properties.items() if entry[0].startswith(OWN))))


@cache
def _opened(netloc: str, properties: tuple[tuple[str, str], ...]) -> fs.FileSystem:
    """Open a file system once for a process, and keep it: a forked process would wait for the parent's threads at its
    end."""
    host, _, port = netloc.partition(":")
    try:
        file_system = _file_system()(host, int(port) if port else None, **dict(properties))
    except RuntimeError as error:
        raise UsageError(f"hdfs://{netloc}: {error}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(file_system))


def is_hdfs(system: fs.FileSystem) -> bool:
    """Return whether a file system of Arrow's is HDFS, by the package or by libhdfs."""
    return isinstance(system, fs.PyFileSystem) or type(system).__name__ == "HadoopFileSystem"


def rename(system: fs.FileSystem, source: str, target: str, *, overwrite: bool) -> None:
    """Rename a file atomically. Raises FileExistsError, UsageError for libhdfs, which cannot overwrite."""
    if not isinstance(system, fs.PyFileSystem):
        raise UsageError("results in HDFS need a client of it that is not libhdfs: pip install hdfs-native")
    system.handler.fs.mv(source, target, overwrite=overwrite)


class Raising:
    """A proxy of an object of the library, which raises OSError for its RuntimeErrors."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._inner, name)

        def call(*arguments: object, **named: object) -> object:
            try:
                return method(*arguments, **named)
            except RuntimeError as error:
                text = str(error).partition(r"\n")[0]  # the namenode's traceback follows
                raise OSError(f"HDFS: {text}") from error

        return call


class SyncedWriter(io.RawIOBase):
    """A writer that forces a file to the disks before it closes it."""

    def __init__(self, file: HdfsFile) -> None:
        self._file = file

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Buffer) -> int:
        """Write all of `data`, and return its length."""
        return int(self._file.write(data))

    def close(self) -> None:
        """Sync and close the file; a second call does nothing."""
        if self.closed:
            return
        try:
            self._file.hsync()
            self._file.close()
        finally:
            super().close()


@cache
def _file_system() -> type[HdfsFileSystem]:
    """Return the class; it is created here since the package need not be installed."""
    from hdfs_native.fsspec import HdfsFileSystem

    class FileSystem(HdfsFileSystem):
        """The library's file system, with the modification times of files where Arrow looks for them."""

        cachable = False  # fsspec drops its caches in each child process

        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)
            self.client: object = Raising(self.client)

        def _convert_file_status(self, file_status: FileStatus) -> dict[str, object]:
            status = dict(super()._convert_file_status(file_status))
            return {**status, "mtime": file_status.modification_time / 1000}

        def _open(self, path: str, mode: str = "rb", **more: object) -> io.RawIOBase:
            file = super()._open(path, mode, **more)
            file.inner = Raising(file.inner)
            return SyncedWriter(file) if mode == "wb" else file

    return FileSystem
