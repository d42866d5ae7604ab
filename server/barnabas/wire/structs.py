"""Structs that a generated struct holds, read off its declaration. Pure."""

from __future__ import annotations

import sys
from dataclasses import Field, is_dataclass
from typing import Any


def is_array(field: Field[Any]) -> bool:
    """Return whether a field is an array."""
    return str(field.type).startswith("list[")


def struct_of(holder: type[Any], field: Field[Any]) -> type[Any] | None:
    """Return the generated struct type of a field of `holder`, or of its array's entries; None for any other type."""
    kind = str(field.type).removeprefix("list[").split("]")[0].split(" ")[0]
    outer, _, inner = kind.rpartition(".")
    struct = getattr(getattr(sys.modules[holder.__module__], outer, None), inner, None) if outer else None
    return struct if isinstance(struct, type) and is_dataclass(struct) else None
