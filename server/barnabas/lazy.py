"""Parts of a broker that are made, and modules that are imported, when they are first needed.

The rule: whoever assembles the broker says how the part is made; whoever uses it cannot tell.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")


def import_modules(*names: str) -> None:
    """Import these modules, in a thread where that takes long: whoever needs them finds them then."""
    for name in names:
        import_module(name)


class Lazy(Generic[T]):
    """A part that is made by the first `get`."""

    __slots__ = ("_beside", "_make", "_modules", "if_made")

    def __init__(
        self,
        make: Callable[[], T],
        *modules: str,
        beside: Callable[[Callable[[], None]], Awaitable[None]] | None = None,
    ) -> None:
        """`modules` are what `make` imports: that takes so long that `ready` has it done by `beside`, in a thread."""
        self._make = make
        self._modules = modules
        self._beside = beside
        self.if_made: T | None = None
        """The part, None as long as nobody has asked for it."""

    def load(self) -> None:
        """Import what making the part needs."""
        import_modules(*self._modules)

    async def ready(self) -> T:
        """Return the part, made if need be, without holding up the event loop by imports."""
        if self.if_made is None and self._beside is not None:
            await self._beside(self.load)
        return self.get()

    def get(self) -> T:
        """Return the part, made if need be."""
        part = self.if_made
        if part is None:
            part = self.if_made = self._make()
        return part
