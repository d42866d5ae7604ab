"""Reading settings: Java properties text, `key=value` pairs, and the typed result.

The rule: a wrong setting is explained before anything starts, with the nearest known name where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from barnabas.config import broker, topic
from barnabas.config.setting import Setting, SettingError

T = TypeVar("T")

# Where a value comes from, as DescribeConfigs tells it.
DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
GROUP_CONFIG = 8


class BrokerConfig:
    """What is set for one broker; everything else has its default.

    A setting of the broker's own file gives way to one that was set for all brokers while they run, and that to one
    set for this broker (KIP-226). `sources` tells for each set name which of them counts.
    """

    __slots__ = ("_static", "_values", "sources", "unknown")

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """Take texts by name. Raises SettingError for a value that cannot be used."""
        self._values: dict[str, Any] = {}
        self.unknown: list[str] = []
        for name, text in (settings or {}).items():
            known = broker.SETTINGS.get(broker.SYNONYMS.get(name, name))
            if known is None:
                self.unknown.append(name)
            else:
                self._values[known.name] = known.parse(text)
        self._static = dict(self._values)
        self.sources = dict.fromkeys(self._static, STATIC_BROKER_CONFIG)

    def set_dynamic(self, of_all: Mapping[str, str], of_this: Mapping[str, str]) -> None:
        """Take up what was set while brokers run: for all of them, and for this one."""
        self._values = dict(self._static)
        self.sources = dict.fromkeys(self._static, STATIC_BROKER_CONFIG)
        for settings, source in ((of_all, DYNAMIC_DEFAULT_BROKER_CONFIG), (of_this, DYNAMIC_BROKER_CONFIG)):
            for name, text in settings.items():
                self._values[name] = broker.SETTINGS[name].parse(text)
                self.sources[name] = source

    def get(self, setting: Setting[T]) -> T:
        """The value of a setting, or its default."""
        value: T = self._values.get(setting.name, setting.default)
        return value

    def is_set(self, name: str) -> bool:
        """Whether the broker's own configuration names it."""
        return name in self._values

    def value_of(self, name: str) -> Any:
        """The value of a broker setting by name. Raises KeyError for one that does not exist."""
        return self._values.get(name, broker.SETTINGS[name].default)

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The directories for the logs."""
        return self.get(broker.LOG_DIRS) or (self.get(broker.LOG_DIR),)

    def listener_security_protocols(self) -> dict[str, str]:
        """Which protocol the listeners of each name speak. Raises SettingError."""
        protocols = {}
        for item in self.get(broker.LISTENER_SECURITY_PROTOCOL_MAP):
            name, colon, protocol = item.partition(":")
            if not colon:
                raise SettingError(
                    f"listener.security.protocol.map: {item!r} is not of the form NAME:PROTOCOL"
                )
            protocols[name.strip().upper()] = protocol.strip().upper()
        return protocols

    def topic_default(self, setting: Setting[Any]) -> tuple[Any, str | None]:
        """A topic setting's value for topics that do not set it, and the broker setting it is from, if set."""
        for name in setting.broker_names:
            if name in self._values and self._values[name] is not None:
                unit = topic.UNIT_MS.get(name.rpartition(".")[2])
                value = self._values[name]
                return (value * unit if unit and value >= 0 else value), name
        return setting.default, None

    def topic_values(self, overrides: Mapping[str, str]) -> dict[str, Any]:
        """All settings of a topic with these overrides, typed. Raises SettingError."""
        values = {}
        for row in topic.ROWS:
            text = overrides.get(row.name)
            values[row.name] = row.parse(text) if text is not None else self.topic_default(row)[0]
        return values


def explain_unknown(name: str) -> str:
    """What to tell somebody who has set a setting that does not exist."""
    from difflib import get_close_matches

    near = get_close_matches(name, [*broker.SETTINGS, *broker.SYNONYMS], n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown setting {name!r}{hint}"


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """`key=value` texts as a mapping; later ones win. Raises SettingError."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"{pair!r} is not of the form key=value")
        settings[name.strip()] = value.strip()
    return settings


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a Java properties file: comments, continued lines and escapes included."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        settings[_unescape(key)] = _unescape(value)
    return settings


def _logical_lines(text: str) -> Iterable[str]:
    pending = ""
    for raw in text.splitlines():
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    escaped = False
    for position, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "=: \t\f":
            rest = line[position:].lstrip(" \t\f")
            if rest[:1] in ("=", ":"):
                rest = rest[1:].lstrip(" \t\f")
            return line[:position], rest
    return line, ""


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text.rstrip() if text != text.rstrip() else text
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u" and position + 4 <= len(text):
            out.append(chr(int(text[position : position + 4], 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(character, character))
    return "".join(out)
