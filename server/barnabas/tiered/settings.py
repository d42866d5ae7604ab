"""Settings of a remote store: texts by name, each of which must be read.

The rule: a setting that is unknown, or cannot be honoured, stops the start. A typing error in `encryption.enabled` would
otherwise store records in the clear.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import overload


class StoreSettingsError(ValueError):
    """A setting of a remote store is missing, has a wrong value, or is not offered."""


class StoreSettings:
    """Settings without their prefix, as `storage.root` of `rsm.config.storage.root`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._read: set[str] = set()

    def required(self, name: str) -> str:
        """Return a required text. Raises StoreSettingsError."""
        value = self.text(name)
        if not value:
            raise StoreSettingsError(f"{name} has to be set")
        return value

    @overload
    def text(self, name: str) -> str | None: ...
    @overload
    def text(self, name: str, default: str) -> str: ...
    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a text, `default` if it is not set."""
        self._read.add(name)
        value = self._settings.get(name)
        return default if value is None else value.strip()

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a truth value. Raises StoreSettingsError."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise StoreSettingsError(f"{name} is true or false, not {value!r}")
        return value.lower() == "true"

    @overload
    def number(self, name: str, default: int, smallest: int = 0, largest: int = ...) -> int: ...
    @overload
    def number(self, name: str, default: None, smallest: int = 0, largest: int = ...) -> int | None: ...
    def number(
        self, name: str, default: int | None, smallest: int = 0, largest: int = 2**63 - 1
    ) -> int | None:
        """Return a whole number between two bounds. Raises StoreSettingsError."""
        value = self.text(name)
        if value is None:
            return default
        try:
            number = int(value)
        except ValueError:
            raise StoreSettingsError(f"{name} is a whole number, not {value!r}") from None
        if not smallest <= number <= largest:
            raise StoreSettingsError(f"{name} is from {smallest} to {largest}, not {number}")
        return number

    def words(self, name: str) -> list[str]:
        """Return the parts of a list that commas separate."""
        return [word.strip() for word in self.text(name, "").split(",") if word.strip()]

    def without_effect(self, names: Collection[str]) -> None:
        """Accept settings that have no effect here, with any values."""
        self._read.update(names)

    def fixed(self, name: str, value: str, way_out: str) -> None:
        """Accept a setting with one value only. Raises StoreSettingsError."""
        if (self.text(name) or value).lower() != value:
            raise StoreSettingsError(f"{name} cannot be anything but {value}: {way_out}")

    def finish(self, store: str) -> None:
        """Refuse the settings that were not read. Raises StoreSettingsError."""
        unknown = sorted(self._settings.keys() - self._read)
        if unknown:
            raise StoreSettingsError(f"the store {store} has no setting {', '.join(unknown)}")
