"""A large mapping with cheap changed copies: their cost is that of the changes. Pure.

The rule: a copy shares the base of its original, and has its own changes above it. Once these are many, the copy gets a
new base.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

LAYERED_SIZE_MIN = 5_000
"""Smaller mappings are copied: that takes less than a millisecond, and looking something up is quicker in a dict."""
CHANGES_MAX = 2_000
_GONE: Final[Any] = object()


def copied(before: Mapping[K, V]) -> MutableMapping[K, V]:
    """Return a copy that can be changed; `before` must not be changed any longer."""
    if isinstance(before, LayeredMap):
        return before.copied()
    return dict(before) if len(before) < LAYERED_SIZE_MIN else LayeredMap(before, {}, len(before))


class LayeredMap(MutableMapping[K, V]):
    """A mapping of `changes`, or else of `base`. No value is None. Iterates in the order of first insertion."""

    __slots__ = ("_base", "_changes", "_size")

    def __init__(self, base: Mapping[K, V], changes: dict[K, V], size: int) -> None:
        """`changes` may mark a key of the base as removed; `size` is the number of remaining keys."""
        self._base = base
        self._changes = changes
        self._size = size

    def copied(self) -> LayeredMap[K, V]:
        """Return a copy, with a new base if there are many changes."""
        if len(self._changes) > CHANGES_MAX:
            merged = dict(self._base)  # a copy of a dict is quick, also with a few holes
            for key, value in self._changes.items():
                if value is _GONE:
                    merged.pop(key, None)
                else:
                    merged[key] = value
            return LayeredMap(merged, {}, self._size)
        return LayeredMap(self._base, dict(self._changes), self._size)

    def __getitem__(self, key: K) -> V:
        changed = self._changes.get(key)
        if changed is None:
            return self._base[key]
        if changed is _GONE:
            raise KeyError(key)
        return changed

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, `default` if the key is missing."""
        changed = self._changes.get(key)
        if changed is None:
            return self._base.get(key, default)
        return default if changed is _GONE else changed

    def __contains__(self, key: object) -> bool:
        changed = self._changes.get(key)  # type: ignore[arg-type]
        return key in self._base if changed is None else changed is not _GONE

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self:
            self._size += 1
        self._changes[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._size -= 1
        if key in self._base:
            self._changes[key] = _GONE
        else:
            del self._changes[key]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.pairs())

    def items(self) -> ItemsView[K, V]:
        """Return a view of (key, value)."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return a view of the values."""
        return _Values(self)

    def pairs(self) -> Iterator[tuple[K, V]]:
        """Iterate over (key, value)."""
        changes, base = self._changes, self._base
        for key, value in base.items():
            changed = changes.get(key)
            if changed is None:
                yield key, value
            elif changed is not _GONE:
                yield key, changed
        for key, value in changes.items():
            if key not in base:
                yield key, value


class _Items(ItemsView[K, V]):
    _mapping: LayeredMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping.pairs()


class _Values(ValuesView[V]):
    _mapping: LayeredMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.pairs())
