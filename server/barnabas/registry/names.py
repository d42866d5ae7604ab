"""Names of subjects: `subject` in the default context, `:.context:subject` in another.

The rule: each name has one spelling; each context has its own ids and settings.
"""

from __future__ import annotations

DEFAULT = "."
"""The context of subjects that name none."""
GLOBAL = ":.__GLOBAL:"
"""The name under which settings of all contexts are kept."""
ALL = ":*:"
"""Prefix for subjects of all contexts."""
_START = ":."


def split(name: str) -> tuple[str, str]:
    """Return the context and the rest of a name."""
    if not name.startswith(_START):
        return DEFAULT, name
    context, _, rest = name[1:].partition(":")
    return context, rest


def join(context: str, rest: str) -> str:
    """Return a name."""
    return rest if context == DEFAULT else f":{context}:{rest}"


def normal(name: str) -> str:
    """Return the normal spelling of a name; empty for the default context itself."""
    return join(*split(name))


def context_of(name: str) -> str:
    """Return the context of a name."""
    return split(name)[0]


def is_valid(name: str, *, is_setting: bool = False) -> bool:
    """Return whether a name is valid for a subject, or with `is_setting` for settings, which a context may have, too."""
    context, rest = split(name)
    if any(ord(letter) < 32 for letter in name) or (context == GLOBAL.strip(":") and not is_setting):
        return False
    return rest not in ("__GLOBAL", "__EMPTY") and bool(rest or is_setting)


def scopes(name: str | None) -> list[str | None]:
    """Return the names under which a setting of a subject is looked up, its own first; None is the default context's."""
    if name is None:
        return [None, GLOBAL]
    context, rest = split(name)
    of_context = None if context == DEFAULT else join(context, "")
    return [*([name] if rest else []), of_context, GLOBAL]


def beside(subject: str, referred: str) -> str:
    """Return the name of a subject that a schema of `subject` refers to, by default in the same context."""
    if referred.startswith(_START):
        return normal(referred)
    return join(context_of(subject), referred)
