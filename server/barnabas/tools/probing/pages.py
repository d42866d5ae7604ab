"""Reports as one HTML file each, with everything in it; the only module that needs jinja2.

The rule: a broker's answers are text: templates escape them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from barnabas import __version__


def render(package: str, template: str, values: Mapping[str, Any]) -> str:
    """Return a page, rendered from a template of a package; pages share the frame of this package."""
    from jinja2 import ChoiceLoader

    loaders = [PackageLoader(package), PackageLoader("barnabas.tools.probing")]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(program=f"barnabas {__version__}", **values)


def write(path: str, text: str) -> None:
    """Write a page. Raises OSError."""
    Path(path).write_text(text, encoding="utf-8")
