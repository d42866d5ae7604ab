"""Chunks of logs in memory, up to so many bytes, each loaded once even if several readers want it at the same time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock


class ChunkCache:
    """The chunks that were read last; for several threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._chunks: OrderedDict[Hashable, bytes] = OrderedDict()
        self._loading: dict[Hashable, Future[bytes]] = {}
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes of the chunks that are kept."""
        return self._bytes

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._chunks or key in self._loading

    def get(self, key: Hashable, load: Callable[[], bytes]) -> bytes:
        """Return a chunk, from memory or by `load`; an error of `load` is raised to all readers waiting for this chunk."""
        with self._lock:
            chunk = self._chunks.get(key)
            if chunk is not None:
                self._chunks.move_to_end(key)
                return chunk
            loading = self._loading.get(key)
            if loading is None:
                own: Future[bytes] = Future()
                self._loading[key] = own
        if loading is not None:
            return loading.result()
        try:
            chunk = load()
        except BaseException as error:
            with self._lock:
                del self._loading[key]
            own.set_exception(error)
            raise
        with self._lock:
            del self._loading[key]
            self._keep(key, chunk)
        own.set_result(chunk)
        return chunk

    def forget(self, matches: Callable[[Hashable], bool]) -> None:
        """Drop chunks, for example those of a deleted segment."""
        with self._lock:
            for key in [key for key in self._chunks if matches(key)]:
                self._bytes -= len(self._chunks.pop(key))

    def clear(self) -> None:
        """Drop all chunks."""
        self.forget(lambda _: True)

    def _keep(self, key: Hashable, chunk: bytes) -> None:
        if len(chunk) > self._bytes_max:
            return
        self._chunks[key] = chunk
        self._bytes += len(chunk)
        while self._bytes > self._bytes_max:
            _, oldest = self._chunks.popitem(last=False)
            self._bytes -= len(oldest)
