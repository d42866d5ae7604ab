"""Topics of a load: by name, by regular expression, and a file that has settings for some of them.

    defaults:
      format: avro
      registry: http://127.0.0.1:8081
    topics:
      orders: {event-time: at, partition-by: day(at)}
    patterns:
      'logs\\..*': {format: string, keep-snapshots: 100}

The rule: a setting is an option of the command under its own name. The most specific setting applies: of the topic, of the
first pattern that its name matches, of the defaults, of the command line.
"""

from __future__ import annotations

import argparse
import copy
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from barnabas.log.format.names import why_no_topic
from barnabas.patterns import PatternError, compile_pattern
from barnabas.tools import marked_yaml
from barnabas_pipeline.errors import UsageError

if TYPE_CHECKING:
    from barnabas_pipeline.data_types import Json
    from barnabas_pipeline.jobs.choices import Pattern

A = TypeVar("A")
DEFAULTS, TOPICS, PATTERNS = "defaults", "topics", "patterns"
BY_TOPIC = (
    "schema", "format", "key-format", "key-schema", "registry", "registry-user", "registry-ca", "registry-cert",
    "registry-key", "subjects", "record", "key-record", "event-time", "tombstones", "evolve", "table", "partition-by",
    "keep-snapshots", "value-bytes-max", "past-max-days", "on-data-loss", "offsets-per-commit-max", "split-bytes",
    "target-file-bytes", "from-offsets", "to-offsets", "from-time", "to-time", "lateness",
)  # fmt: skip
"""Options that can be set by topic; `lateness` is audit's."""
FILES = ("schema", "key-schema", "registry-ca", "registry-cert", "registry-key")
"""Settings that may name a file, relative to the directory of the settings."""


def add_topics(group: argparse._ArgumentGroup) -> None:
    """Add the options that choose several topics."""
    group.add_argument("--topic", action="append", default=[], metavar="NAME,...")
    group.add_argument(
        "--topic-pattern",
        action="append",
        default=[],
        metavar="REGEX",
        help="regular expression for whole names; a running load adds new topics that match; internal topics never match",
    )
    group.add_argument("--exclude", action="append", default=[], metavar="REGEX", help="topics to leave out")


class Settings:
    """Settings by topic, from a file; empty without a file."""

    def __init__(self, path: str | None, actions: Mapping[str, argparse.Action]) -> None:
        """`actions` are the options by name. Raises UsageError that names the file and the key."""
        self._path = path
        self._actions = actions
        self._lines: dict[marked_yaml.Place, int] = {}
        held = self._read() if path is not None else {}
        for key in held:
            if key not in (DEFAULTS, TOPICS, PATTERNS):
                raise self._wrong((key,), f"is none of {DEFAULTS}, {TOPICS}, {PATTERNS}")
        self._defaults = self._checked((DEFAULTS,), held.get(DEFAULTS))
        self._by_name = self._each(TOPICS, held)
        self._by_pattern = self._each(PATTERNS, held)
        for name in self._by_name:
            if why := why_no_topic(name):
                raise self._wrong((TOPICS, name), f"is not the name of a topic: {why}")
        self._patterns: dict[str, Pattern] = {}
        for text in self._by_pattern:
            try:
                self._patterns[text] = compile_pattern(text)
            except PatternError as error:
                raise self._wrong((PATTERNS, text), f"is no regular expression: {error.reason}") from None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of topics in the file."""
        return tuple(self._by_name)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The regular expressions in the file."""
        return tuple(self._by_pattern)

    def of(self, topic: str, args: A) -> A:
        """Return the options of a command for one topic."""
        matching = next(
            (
                settings
                for text, settings in self._by_pattern.items()
                if self._patterns[text].fullmatch(topic)
            ),
            {},
        )
        chosen = self._defaults | matching | self._by_name.get(topic, {})
        mine = copy.copy(args)
        for name, value in chosen.items():
            if hasattr(mine, name):  # not all commands have all options
                setattr(mine, name, value)
        vars(mine)["topic"] = topic
        return mine

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self) -> Mapping[str, Json]:
        path = Path(self._path or "")
        try:
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".toml":
                held = tomllib.loads(text)
            else:
                held, self._lines = marked_yaml.load(text)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        except ValueError as error:  # of UTF-8, TOML and YAML
            raise UsageError(f"{path}: {error}") from None
        if held is not None and not isinstance(held, dict):
            raise UsageError(f"{path}: has {DEFAULTS}, {TOPICS} and {PATTERNS}, not {type(held).__name__}")
        return held or {}

    def _each(self, part: str, held: Mapping[str, Json]) -> dict[str, dict[str, object]]:
        entries = held.get(part) or {}
        if isinstance(entries, list):
            entries = dict.fromkeys(map(str, entries))
        if not isinstance(entries, dict):
            raise self._wrong((part,), "has a mapping of names to settings, or a list of names")
        return {str(name): self._checked((part, str(name)), entry) for name, entry in entries.items()}

    def _checked(self, place: tuple[str, ...], held: Json) -> dict[str, object]:
        """Return settings as values of the command line, by their names in its namespace."""
        if held is not None and not isinstance(held, dict):
            raise self._wrong(place, "has settings, such as format: json")
        options = {}
        for key, value in (held or {}).items():
            name = str(key)
            if name not in BY_TOPIC:
                raise self._wrong((*place, name), f"is no setting of a topic: {', '.join(BY_TOPIC)}")
            action = self._actions[name]
            try:
                options[action.dest] = self._value(name, action, value)
            except (ValueError, UsageError) as error:
                raise self._wrong((*place, name), str(error)) from None
        return options

    def _value(self, name: str, action: argparse.Action, value: Json) -> object:
        if action.nargs == 0:
            if not isinstance(value, bool):
                raise ValueError(f"{value!r} is neither true nor false")
            return value
        if isinstance(value, Mapping) and name in ("from-offsets", "to-offsets"):
            value = json.dumps({str(partition): offset for partition, offset in value.items()})
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{value!r} is no text or number")
        if action.choices is not None and value not in action.choices:
            raise ValueError(f"{value!r} is none of {', '.join(map(str, action.choices))}")
        if callable(action.type):
            try:
                return action.type(str(value))
            except ValueError:
                raise ValueError(f"{value!r} is no {getattr(action.type, '__name__', 'value')}") from None
        if name in FILES and (Path(self._path or "").parent / str(value)).is_file():
            return str(Path(self._path or "").parent / str(value))
        return str(value)

    def _wrong(self, place: tuple[str, ...], why: str) -> UsageError:
        line = self._lines.get(place)
        where = f"{self._path}, line {line}" if line else f"{self._path}"
        return UsageError(f"{where}: {'.'.join(place)} {why}")


def options_by_name(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """Return the options of a command by name, without the dashes."""
    return {
        option.removeprefix("--"): action for action in parser._actions for option in action.option_strings
    }


def names_in(texts: Iterable[str]) -> list[str]:
    """Return the topics of `--topic`, each of which may list several. Raises UsageError for an invalid name."""
    names = [part.strip() for text in texts for part in text.split(",")]
    for name in names:
        if why := why_no_topic(name):
            raise UsageError(f"{name!r} is not the name of a topic: {why}; --topic-pattern takes a pattern")
    return list(dict.fromkeys(names))
