"""YAML files, with mistakes that can be reported with their line. Pure.

The rule: plain data alone (YAML's safe types), and no key twice; the library is loaded by the first file.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

Place = tuple[str | int, ...]
"""Path to a value: keys of mappings, positions in lists."""
_BOOLEAN = "tag:yaml.org,2002:bool"


class YamlError(ValueError):
    """A text is not YAML, or has a key twice; `line` counts from 1."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(f"line {line}: {text}")
        self.text = text
        self.line = line


def load(text: str) -> tuple[Any, dict[Place, int]]:
    """Return the value of a document, None if it is empty, and the line of each place in it. Raises YamlError."""
    import yaml

    lines: dict[Place, int] = {}
    try:
        loader = _loader()(text)
        try:
            node = loader.get_single_node()
            if node is not None:
                _mark(node, (), lines, set())
            value = loader.construct_document(node) if node is not None else None
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise YamlError(problem, mark.line + 1 if mark is not None else 1) from error
    return value, lines


@cache
def _loader() -> Any:
    """Return the class of loaders: safe types; only true and false are booleans, as in YAML 1.2, not on and off."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
        pass

    Loader.yaml_implicit_resolvers = {
        letter: [resolver for resolver in resolvers if resolver[0] != _BOOLEAN]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(_BOOLEAN, re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
    return Loader


def _mark(node: Any, place: Place, lines: dict[Place, int], above: set[int]) -> None:
    """Record the lines of a node and of its inner nodes. Raises YamlError."""
    import yaml

    lines[place] = node.start_mark.line + 1
    if id(node) in above:
        raise YamlError("an alias stands within what it names", node.start_mark.line + 1)
    above = above | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _mark(item, (*place, number), lines, above)
    elif isinstance(node, yaml.MappingNode):
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise YamlError("a key is a word", key.start_mark.line + 1)
            inner = (*place, key.value)
            if inner in lines:
                raise YamlError(f"{key.value} stands here twice", key.start_mark.line + 1)
            _mark(item, inner, lines, above)
            lines[inner] = key.start_mark.line + 1
