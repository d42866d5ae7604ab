"""Rules in one line: `OffsetCommit v2-8 group=g nth=3 -> error=REBALANCE_IN_PROGRESS`.

The rule: it is another notation for the same rule; `->` separates its condition from its effect. Words with blanks are
quoted as in a shell.
"""

from __future__ import annotations

import shlex
from typing import Any

from barnabas.tools.faults.actions import ACTIONS
from barnabas.tools.faults.errors import FaultError
from barnabas.tools.faults.events import EVENTS
from barnabas.tools.faults.matching import NAMES
from barnabas.tools.faults.rule import WHEN

ARROW = "->"
_TRUE_BY_DEFAULT = frozenset(action.name for action in ACTIONS)


def parse(text: str) -> dict[str, Any]:
    """Return the rule that a line stands for. Raises FaultError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise FaultError(f"{text!r}: {str(error).lower()}") from error
    if words.count(ARROW) != 1:
        raise FaultError(
            f"{text!r} is not of the form WHAT {ARROW} DO, as 'Produce topic=t nth=2 {ARROW} error=NOT_LEADER_OR_FOLLOWER'"
        )
    arrow = words.index(ARROW)
    on: dict[str, Any] = {}
    when: dict[str, Any] = {}
    rule: dict[str, Any] = {}
    for word in words[:arrow]:
        name, equals, value = word.partition("=")
        if not equals:
            _bare(word, on)
        elif name in NAMES:
            on[name] = value
        elif name in WHEN:
            when[name] = value
        elif name == "name":
            rule["name"] = value
        else:
            raise FaultError(f"there is no such condition; there are {', '.join((*NAMES, *WHEN))}", name)
    do: dict[str, Any] = {}
    for word in words[arrow + 1 :]:
        name, equals, value = word.partition("=")
        do[name] = value if equals else True
    if "api" in on and on.get("event", "request") != "request":
        raise FaultError(f"there is no API in {on['event']}", "on.api")
    return {**rule, "on": on, **({"when": when} if when else {}), "do": do}


def _bare(word: str, on: dict[str, Any]) -> None:
    """Read a word without `=`: an event, versions, or an API."""
    if word in EVENTS:
        on["event"] = word
    elif word[:1] == "v" and word[1:2].isdigit():
        on["version"] = word[1:]
    elif word == "*":
        on.pop("api", None)
    elif "api" in on:
        raise FaultError(f"{word!r}: one API is named already; several are written as Produce,Fetch")
    else:
        on["api"] = word
