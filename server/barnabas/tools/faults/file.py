"""Files of faults: YAML with a seed, rules, short forms and named sets.

The rule: a file is applied completely or not at all, and errors name the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.tools import marked_yaml
from barnabas.tools.faults.errors import FaultError

if TYPE_CHECKING:
    from barnabas.tools.faults.engine import Faults

_PARTS = ("seed", "faults")


def read(text: str, faults: Faults) -> None:
    """Add the rules of a file. Raises FaultError, with a line; nothing is added then."""
    try:
        value, lines = marked_yaml.load(text)
    except marked_yaml.YamlError as error:
        raise FaultError(error.text, line=error.line) from error
    if value is None:
        return
    if not isinstance(value, dict):
        raise FaultError("`seed` and `faults` are expected", line=1)
    for name in value:
        if name not in _PARTS:
            raise FaultError(f"there is no {name!r} here; there are {', '.join(_PARTS)}", line=lines[name,])
    seed = value.get("seed", faults.seed)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise FaultError("a whole number is expected", "seed", lines["seed",])
    rules = value.get("faults") or []
    if not isinstance(rules, list):
        raise FaultError("a list of rules is expected", "faults", lines["faults",])
    faults.reset(seed)
    before = set(faults.rules)
    for number, item in enumerate(rules):
        try:
            _add(item, faults)
        except FaultError as error:
            for name in set(faults.rules) - before:
                faults.remove(name)
            raise FaultError(error.text, error.place, _line(lines, number, error.place)) from error


def _add(item: Any, faults: Faults) -> None:
    if isinstance(item, dict) and "set" in item:
        others = [name for name in item if name not in ("set", "parameters")]
        if others:
            raise FaultError("a set has `parameters` beside its name, and nothing else", others[0])
        parameters = item.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise FaultError("names and values are expected", "parameters")
        faults.use(str(item["set"]), parameters)
    else:
        faults.add(item)


def _line(lines: dict[marked_yaml.Place, int], number: int, place: str) -> int:
    """Return the line of a place in a rule: its own, or the nearest one around it."""
    path: tuple[str | int, ...] = ("faults", number, *(place.split(".") if place else ()))
    while path not in lines:
        path = path[:-1]
    return lines[path]
