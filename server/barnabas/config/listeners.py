"""Settings of one listener, from `listener.name.NAME.X` and `listener.name.NAME.MECHANISM.X`. Pure.

The rule: the value for a mechanism of a listener takes precedence, then that of the listener, then that of all listeners.
In names of settings the listener and the mechanism are in lower case, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.config import broker as settings
from barnabas.config import tables

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig
    from barnabas.config.setting import Setting

T = TypeVar("T")

SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS = ("SSL", "SASL_SSL")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class ListenerSecurity(Protocol):
    """Checks whether settings of TLS and SASL can be used."""

    async def check(self, config: BrokerConfig) -> None:
        """Check that every listener could be secured with the settings in `config`. Raises SettingError."""


def concerns_security(name: str) -> bool:
    """Return whether a setting is about TLS or SASL, of all listeners or of one."""
    setting = tables.find(name)
    return setting is not None and (setting.base or name).startswith(("ssl.", "sasl."))


class ListenerSettings:
    """The present settings of a listener."""

    __slots__ = ("_config", "_prefix", "name", "protocol")

    def __init__(self, config: BrokerConfig, name: str, protocol: str) -> None:
        self._config = config
        self.name = name
        self.protocol = protocol
        self._prefix = f"{tables.LISTENER_PREFIX}{name.lower()}."

    @property
    def release(self) -> str:
        """The release of Kafka that is followed; empty for Kafka 4 in general."""
        return self._config.release

    @property
    def has_sasl(self) -> bool:
        """True if clients log in with SASL."""
        return self.protocol in SASL_PROTOCOLS

    @property
    def has_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.protocol in TLS_PROTOCOLS

    def get(self, setting: Setting[T], mechanism: str = "") -> T:
        """Return the value of a setting for this listener, or for one SASL mechanism of it."""
        own: T | None
        if mechanism:
            own = self._config.value_if_set(f"{self._prefix}{mechanism.lower()}.{setting.name}")
            if own is not None:
                return own
        own = self._config.value_if_set(f"{self._prefix}{setting.name}")
        return self._config.get(setting) if own is None else own

    def own(self, setting: Setting[T], mechanism: str) -> T | None:
        """Return the settings of a mechanism of this listener alone."""
        value: T | None = self._config.value_if_set(f"{self._prefix}{mechanism.lower()}.{setting.name}")
        return value

    def is_set(self, setting: Setting[T]) -> bool:
        """Return whether a setting is set, for this listener or for all."""
        return self._config.value_if_set(f"{self._prefix}{setting.name}") is not None or self._config.is_set(
            setting.name
        )

    def name_of(self, setting: Setting[T], mechanism: str = "") -> str:
        """Return the name of the setting that gives the value, for messages; the most specific where nothing is set."""
        for name in (
            f"{self._prefix}{mechanism.lower()}.{setting.name}" if mechanism else "",
            f"{self._prefix}{setting.name}",
        ):
            if name and self._config.value_if_set(name) is not None:
                return name
        return setting.name

    def name_for(self, setting: Setting[T], mechanism: str) -> str:
        """Return the name under which a setting is set for a mechanism of this listener."""
        return f"{self._prefix}{mechanism.lower()}.{setting.name}"


def listener_settings(config: BrokerConfig, name: str) -> ListenerSettings:
    """Return the settings of the listener called `name`. Raises SettingError."""
    return ListenerSettings(config, name, config.listener_security_protocols().get(name, name))


def inter_broker_listener(config: BrokerConfig) -> str:
    """The name of the listener that brokers use among themselves; without one it is called as their protocol."""
    named = config.get(settings.INTER_BROKER_LISTENER_NAME)
    return named.strip().upper() if named else config.get(settings.SECURITY_INTER_BROKER_PROTOCOL)


def mechanisms_of(listener: ListenerSettings) -> tuple[str, ...]:
    """Return the SASL mechanisms that a listener offers, in upper case; none without SASL."""
    if not listener.has_sasl:
        return ()
    names: tuple[str, ...] = listener.get(settings.SASL_ENABLED_MECHANISMS)
    return tuple(dict.fromkeys(names))
