"""Parts of a broker that are made, and modules that are imported, when they are first needed.

The rule: whoever assembles the broker says how the part is made; whoever uses it cannot tell.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

OPENSSL_USERS = "ssl", "hmac"
"""Modules of the standard library that Trio imports, and which bring OpenSSL: 5 MB."""

_loading = RLock()


def import_modules(*names: str) -> None:
    """Import these modules, in a thread where that takes long: whoever needs them finds them then."""
    for name in names:
        import_module(name)


class _ModuleToCome(ModuleType):
    """A module that is executed when something of it is asked for which every module has not."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        with _loading:
            # Its own code may ask for what is not there yet, and so may who has waited for the lock.
            if type(self) is _ModuleToCome and not self.__dict__.get("__executing__"):
                assert spec is not None
                assert spec.loader is not None
                self.__dict__["__executing__"] = True
                try:
                    spec.loader.exec_module(self)
                    self.__class__ = ModuleType  # type: ignore[assignment]  # from here on it is as any other
                finally:
                    del self.__dict__["__executing__"]
        return ModuleType.__getattribute__(self, name)


def import_when_used(*names: str) -> None:
    """Have modules that nobody has imported yet be executed when something of them is first used.

    `importlib.util.LazyLoader` executes them at the second `import` already. For programs, not for libraries: whoever
    imports these modules later in this process gets such a module too.
    """
    for name in names:
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            module = module_from_spec(spec)
            module.__class__ = _ModuleToCome
            sys.modules[name] = module


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
