"""Parts of a broker that are created, and modules that are imported, when they are first needed.

The rule: the code that assembles the broker provides the constructor of the part; the code that uses it need not know.
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
    """Import these modules, in a thread if that takes long: a later import of them is immediate."""
    for name in names:
        import_module(name)


class _ModuleToCome(ModuleType):
    """A module that is executed at the first access to an attribute which an empty module lacks."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        with _loading:
            # Its own code, or a thread that has waited for the lock, may ask for names not yet defined.
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
    """Defer the execution of modules not imported yet until an attribute of them is first used.

    `importlib.util.LazyLoader` executes them at the second `import` already. For programs, not for libraries: later imports
    of these modules in this process get such a lazy module, too.
    """
    for name in names:
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            module = module_from_spec(spec)
            module.__class__ = _ModuleToCome
            sys.modules[name] = module


class Lazy(Generic[T]):
    """A part that is created by the first `get`."""

    __slots__ = ("_beside", "_make", "_modules", "if_made")

    def __init__(
        self,
        make: Callable[[], T],
        *modules: str,
        beside: Callable[[Callable[[], None]], Awaitable[None]] | None = None,
    ) -> None:
        """`modules` are imported by `make`: as that takes long, `ready` imports them by `beside`, in a thread."""
        self._make = make
        self._modules = modules
        self._beside = beside
        self.if_made: T | None = None
        """The part, None before its first use."""

    def load(self) -> None:
        """Import the modules that `make` needs."""
        import_modules(*self._modules)

    async def ready(self) -> T:
        """Return the part, created if necessary, without blocking the event loop by imports."""
        if self.if_made is None and self._beside is not None:
            await self._beside(self.load)
        return self.get()

    def get(self) -> T:
        """Return the part, created if necessary."""
        part = self.if_made
        if part is None:
            part = self.if_made = self._make()
        return part
