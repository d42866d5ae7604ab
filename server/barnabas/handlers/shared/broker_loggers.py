"""The broker's loggers as a resource with settings: one per logger, its value the logger's level.

The rule: levels have log4j's names, as Kafka's tools expect; a change takes effect immediately, and is lost when the
broker stops.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

ROOT = "root"
OURS = "barnabas"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def levels() -> dict[str, str]:
    """Return the effective level of each logger: its own or that of its parent."""
    level_names = {ROOT: _name(logging.root.level), OURS: _name(logging.getLogger(OURS).getEffectiveLevel())}
    for name in sorted(logging.root.manager.loggerDict):
        if name.startswith(OURS + "."):
            level_names[name] = _name(logging.getLogger(name).getEffectiveLevel())
    return level_names


def set_levels(level_names: Mapping[str, str | None]) -> None:
    """Set the levels of loggers; None removes a logger's own level."""
    for name, level in level_names.items():
        logger = logging.root if name == ROOT else logging.getLogger(name)
        logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _name(number: int) -> str:
    """The coarsest level that lets a record of `number` pass."""
    return next((name for name, value in LEVELS.items() if value >= number), "FATAL")
