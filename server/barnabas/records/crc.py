"""CRC-32C, straight from the extension module of the crc32c package.

The package looks up its own version when it is imported, which loads importlib.metadata and costs more time than the rest
of `records` together. The extension module in it needs nothing.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final, Protocol

from barnabas.records.varint import Buffer


class _Function(Protocol):
    def __call__(self, data: Buffer, value: int = 0) -> int: ...


def _load() -> _Function:
    package = PathFinder.find_spec("crc32c")
    spec = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        from crc32c import crc32c as function  # a release with another layout

        return function
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.crc32c  # type: ignore[no-any-return]


crc32c: Final = _load()
