"""The settings of one broker, typed: of its file, dynamic ones, and defaults for the rest.

The rule: an invalid setting is explained before anything starts, with the place where it was set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from barnabas.config import broker, releases, tables, topic
from barnabas.config.setting import Setting, SettingError

T = TypeVar("T")

NODE_ID_DEFAULT = 1

# Where a value comes from, as DescribeConfigs tells it.
DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
DYNAMIC_BROKER_LOGGER_CONFIG = 6
CLIENT_METRICS_CONFIG = 7
GROUP_CONFIG = 8


class BrokerConfig:
    """Settings of one broker; unset ones have their defaults.

    A dynamic setting of all brokers takes precedence over the broker's own file, and one of this broker over both
    (KIP-226). `sources` maps each set name to the source that counts.
    """

    __slots__ = (
        "_defaults",
        "_limits",
        "_static",
        "_texts",
        "_values",
        "has_metadata_log",
        "is_node_id_set",
        "kept_for_all",
        "release",
        "revision",
        "sources",
        "unknown",
    )

    def __init__(
        self, settings: Mapping[str, str] | None = None, origins: Mapping[str, str] | None = None
    ) -> None:
        """Take texts by name; `origins` names the place where each was set, for messages.

        Raises SettingError for a value that cannot be used.
        """
        self._static: dict[str, Any] = {}
        self.revision = 0
        """Number of changes of dynamic settings: values derived from settings must be computed again after each."""
        self.release = (settings or {}).get(broker.KAFKA_VERSION.name, "")
        """The release of Kafka that is followed, empty for the newest; limits and defaults are its own."""
        self._limits = releases.limits_of(self.release) if self.release in releases.NAMES else {}
        self.unknown: list[str] = []
        texts: dict[str, str] = {}
        for name, text in (settings or {}).items():
            texts[name] = text
            setting = self.find(name)
            if setting is None:
                if not tables.belongs_to_plugin(name):
                    self.unknown.append(name)
                continue
            try:
                self._static[name] = self.limited(setting).parse(text)
            except SettingError as error:
                origin = (origins or {}).get(name)
                raise SettingError(f"{origin}: {error}" if origin else str(error)) from error
        self._name_the_node(texts)
        self.has_metadata_log = False
        """True if the log dir was formatted for a controller, as the reader of the disk has found."""
        self.kept_for_all: Mapping[str, str] = {}
        """Texts by name of the settings that `keep_for_all` counts as set for all brokers."""
        self._texts: list[tuple[int, Mapping[str, str]]] = [(STATIC_BROKER_CONFIG, texts)]
        self._defaults = _defaults_of(self.release)
        self._values = {**self._defaults, **self._static}
        self.sources = dict.fromkeys(self._static, STATIC_BROKER_CONFIG)

    def find(self, name: str) -> Setting[Any] | None:
        """Return the broker setting with this name; None if the release that is followed lacks it."""
        setting = tables.find(name)
        if setting is None or not releases.has_setting(self.release, setting.base or name):
            return None
        return setting

    def limited(self, setting: Setting[Any]) -> Setting[Any]:
        """A broker setting with the limits that it has in the release that is followed."""
        allowed = self._limits.get(setting.base or setting.name)
        return setting if allowed is None else setting.with_limits(allowed)

    def _name_the_node(self, texts: dict[str, str]) -> None:
        """Set both names of the node's number: each stands for the other."""
        old, new = broker.BROKER_ID.name, broker.NODE_ID.name
        if self._static.get(old, -1) < 0:
            texts.pop(old, None)
            self._static.pop(old, None)
        self.is_node_id_set = old in self._static or new in self._static
        if not self.is_node_id_set:
            self._static[new], texts[new] = NODE_ID_DEFAULT, str(NODE_ID_DEFAULT)
        for name, other in ((old, new), (new, old)):
            if name in self._static and other not in self._static:
                self._static[other], texts[other] = self._static[name], texts[name]
        if self._static.get(old) != self._static.get(new):
            raise SettingError(f"{old}={texts[old]} and {new}={texts[new]} must be the same number")

    def use_node_id(self, node_id: int) -> None:
        """Use the broker's number from its log dirs, if its settings have none."""
        for name in (broker.NODE_ID.name, broker.BROKER_ID.name):
            self._static[name] = self._values[name] = node_id
            texts = dict(self._texts[-1][1])
            texts[name] = str(node_id)
            self._texts[-1] = (STATIC_BROKER_CONFIG, texts)

    def keep_for_all(self, names: Iterable[str]) -> None:
        """Let settings count as set for all brokers, to their values here, until they are set explicitly.

        Apache Kafka keeps `min.insync.replicas` in this way if it has eligible leader replicas (KIP-966).
        """
        self.kept_for_all = {
            name: self._texts[-1][1].get(name, tables.setting(name).format(tables.setting(name).default))
            for name in names
        }
        self.set_dynamic({}, {})

    def set_dynamic(self, of_all: Mapping[str, str], of_this: Mapping[str, str]) -> list[SettingError]:
        """Apply dynamic settings, of all brokers and of this one; returns the errors of invalid ones.

        Those have no effect: controllers and ZooKeeper accept values that only the broker itself can validate. Settings
        that require a restart have no effect either: names that Kafka no longer has can be set, and are stored.
        """
        ignored = []
        of_all = {**self.kept_for_all, **of_all}
        self.revision += 1
        self._values = {**self._defaults, **self._static}
        self.sources = dict.fromkeys(self._static, STATIC_BROKER_CONFIG)
        for settings, source in ((of_all, DYNAMIC_DEFAULT_BROKER_CONFIG), (of_this, DYNAMIC_BROKER_CONFIG)):
            for name, text in settings.items():
                setting = self.find(name)
                if setting is None or not setting.dynamic:
                    continue
                try:
                    self._values[name] = self.limited(setting).parse(text)
                    self.sources[name] = source
                except SettingError as error:
                    ignored.append(error)
        self._texts[:-1] = [(DYNAMIC_BROKER_CONFIG, of_this), (DYNAMIC_DEFAULT_BROKER_CONFIG, of_all)]
        return ignored

    def with_dynamic(self, of_all: Mapping[str, str], of_this: Mapping[str, str]) -> BrokerConfig:
        """These settings, if that were set while brokers run. Raises SettingError."""
        other = BrokerConfig()
        other._static, other._texts = self._static, list(self._texts)
        other.release, other._limits, other._defaults = self.release, self._limits, self._defaults
        other.kept_for_all = self.kept_for_all
        other.is_node_id_set, other.has_metadata_log = self.is_node_id_set, self.has_metadata_log
        for error in other.set_dynamic(of_all, of_this):
            raise error
        return other

    def get(self, setting: Setting[T]) -> T:
        """The value of a setting, or its default."""
        value: T = self._values.get(setting.name, setting.default)
        return value

    def value_if_set(self, name: str) -> Any:
        """The value of a setting by name where it is set, None where its default counts."""
        return self._values.get(name)

    def is_set(self, name: str) -> bool:
        """Return whether a setting has a source other than its default."""
        return name in self.sources

    def default_of(self, name: str) -> Any:
        """Return the default of a broker setting by name, as its release has it. Raises KeyError."""
        return self._defaults[name] if name in self._defaults else tables.setting(name).default

    def names_set(self) -> Iterable[str]:
        """The names of all set settings, including unknown ones."""
        return dict.fromkeys(name for _, texts in self._texts for name in texts)

    def texts_of(self, name: str) -> list[tuple[str, int]]:
        """Return (text, source) of every place where a setting is set, in order of precedence."""
        return [(texts[name], source) for source, texts in self._texts if name in texts]

    def value_of(self, name: str) -> Any:
        """The value of a broker setting by name. Raises KeyError for an unknown name."""
        return self._values[name] if name in self._values else tables.setting(name).default

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The directories for the logs."""
        return self.get(broker.LOG_DIRS) or self.get(broker.LOG_DIR)

    def listeners(self) -> tuple[str, ...]:
        """The addresses to listen on, NAME://host:port; those of controllers in a Kafka file are excluded."""
        controllers = self.controller_listener_names()
        return tuple(
            address
            for address in self.get(broker.LISTENERS)
            if address.partition("://")[0].strip().upper() not in controllers
        )

    def controller_listener_names(self) -> set[str]:
        """The names of the listeners that a Kafka file has for its controllers."""
        return {name.strip().upper() for name in self.get(broker.CONTROLLER_LISTENER_NAMES) or ()}

    def listener_security_protocols(self) -> dict[str, str]:
        """Return the security protocol of the listeners of each name. Raises SettingError."""
        return protocols_of(self.get(broker.LISTENER_SECURITY_PROTOCOL_MAP))

    def topic_default(self, setting: Setting[Any]) -> tuple[Any, str | None]:
        """Return the default of a topic's or group's setting, and the broker setting that is its source, if set."""
        for name in setting.broker_names:
            if self._values.get(name) is not None:
                unit = topic.UNIT_MS.get(name.rpartition(".")[2])
                value = self._values[name]
                return (
                    value * unit if unit and value >= 0 else value
                ), name if name in self.sources else None
        return setting.default, None

    def topic_values(self, overrides: Mapping[str, str]) -> dict[str, Any]:
        """All settings of a topic with these overrides, typed. Raises SettingError.

        A value set under another release counts, even if the present release would refuse it.
        """
        values = {}
        for row in topic.ROWS:
            text = overrides.get(row.name)
            values[row.name] = (
                topic.stored(row.name).parse(text) if text is not None else self.topic_default(row)[0]
            )
        small = overrides.get(topic.INTERNAL_SEGMENT_BYTES)
        if small is not None:
            values["segment.bytes"] = topic.SETTINGS[topic.INTERNAL_SEGMENT_BYTES].parse(small)
        return values


def _defaults_of(release: str) -> dict[str, Any]:
    """The defaults of a release that are not today's."""
    texts = releases.defaults_of(release) if release else {}
    return {name: tables.setting(name).parse(text) for name, text in texts.items()}


def protocols_of(text: str) -> dict[str, str]:
    """The protocol of each listener name in a text like `listener.security.protocol.map`. Raises SettingError."""
    protocols = {}
    for item in text.split(",") if text.strip() else ():
        name, colon, protocol = item.partition(":")
        if not colon:
            raise SettingError(f"listener.security.protocol.map: {item!r} is not of the form NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def explain_unknown(name: str) -> str:
    """Return the warning about a setting that does not exist."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(tables.names()), n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown setting {name!r}{hint}"


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Parse `key=value` texts into a mapping; later ones take precedence. Raises SettingError."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SettingError(f"{pair!r} is not of the form key=value")
        settings[name.strip()] = value.strip()
    return settings
