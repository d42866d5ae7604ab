"""Truncation of error texts in a response that exceed the limit of a string.

The rule: a text may repeat a name of the client's, which may already have that length. Only the text is truncated, never
the response.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Final

from barnabas.wire.primitives import STRING_BYTES_MAX

SHOWN: Final = 1_000
"""Characters of a truncated text."""
_FIELD_SUFFIXES: Final = ("error_message", "status_detail")


def cut_error_texts(response: Any) -> bool:
    """Truncate each error text in a response that is too long for a string; returns whether any was."""
    is_cut = False
    structs = [response]
    while structs:
        struct = structs.pop()
        for field in fields(struct):
            value = getattr(struct, field.name)
            if isinstance(value, list):
                structs += [entry for entry in value if is_dataclass(entry)]
            elif is_dataclass(value):
                structs.append(value)
            elif isinstance(value, str) and field.name.endswith(_FIELD_SUFFIXES) and _is_too_long(value):
                setattr(struct, field.name, f"{value[:SHOWN]}... ({len(value):,} characters)")
                is_cut = True
    return is_cut


def _is_too_long(text: str) -> bool:
    return len(text.encode(errors="surrogatepass")) > STRING_BYTES_MAX
