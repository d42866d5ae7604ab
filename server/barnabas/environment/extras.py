"""Packages that only some brokers need, and the extra of the project that installs each.

The rule: a module imports such a package where it uses it. A missing package ends a start, or refuses a change of a
setting, with the name of its extra.
"""

from __future__ import annotations

EXTRAS = {
    "cryptography": "security", "joserfc": "security", "jinja2": "pages", "fastavro": "registry", "jsonschema": "registry",
    "proto_schema_parser": "registry", "msgpack": "console", "cbor2": "console", "mcp": "agents",
    "obstore": "tiered",
}  # fmt: skip
"""Packages by import name, and their extras in pyproject.toml."""


def explain(error: ModuleNotFoundError) -> str | None:
    """Return how to install a missing package, None if it belongs to no extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    extra = EXTRAS[package]
    return (
        f"the package {package} is missing, which the extra `{extra}` brings: pip install 'barnabas[{extra}]'"
    )
