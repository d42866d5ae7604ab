"""Sets up the security of listeners by their settings, at the start and when the settings change.

The rule: an unusable key store never replaces the present one, nor does a certificate for another subject. Key stores
are read again when a setting of TLS or SASL is altered, also to the same value: so a certificate is renewed by replacing
its file and altering its location (KIP-226).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.startup import StartupError
from barnabas.cluster.metadata.image import BROKER
from barnabas.config import broker as settings
from barnabas.config.listeners import ListenerSettings
from barnabas.config.setting import SettingError
from barnabas.serving.channel import Channel, LoginParts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cluster.metadata.image import Delta
    from barnabas.config.loading import BrokerConfig
    from barnabas.network.tls_context import ServerTls
    from barnabas.serving.listener import Listener

log = logging.getLogger(__name__)


def channel_of(listener: ListenerSettings, parts: LoginParts, replaced: ServerTls | None = None) -> Channel:
    """Return the channel of a listener. Reads files.

    Raises SettingError, also if its certificate must not replace that in `replaced`.
    """
    try:
        return _channel(listener, parts, replaced)
    except ModuleNotFoundError as error:
        from barnabas.environment import extras

        raise SettingError(f"listener {listener.name}: {extras.explain(error) or error}") from error


def _channel(listener: ListenerSettings, parts: LoginParts, replaced: ServerTls | None) -> Channel:
    offer = None
    if listener.has_sasl:
        from barnabas.broker.sasl_offers import sasl_offer

        offer = sasl_offer(listener, parts)
    if not listener.has_tls:
        return Channel(offer)
    from barnabas.broker.tls_settings import tls_settings
    from barnabas.network.tls_changes import check_replacement
    from barnabas.network.tls_context import server_tls
    from barnabas.network.tls_stores import TlsError
    from barnabas.security.principals import CertificateNames, NameRuleError

    try:
        names = CertificateNames(listener.get(settings.SSL_PRINCIPAL_MAPPING_RULES))
        tls = server_tls(tls_settings(listener))
        if replaced is not None:
            check_replacement(
                replaced, tls,
                subject_may_change=listener.get(settings.SSL_ALLOW_DN_CHANGES),
                alternative_names_may_change=listener.get(settings.SSL_ALLOW_SAN_CHANGES),
            )  # fmt: skip
        return Channel(offer, tls, names)
    except (TlsError, NameRuleError) as error:
        raise SettingError(f"listener {listener.name}: {error}") from error


class Securing:
    """Keeps the channels of listeners. Implements `cluster.metadata.store.Subscriber`."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        config: BrokerConfig,
        parts: LoginParts,
        channel_of: Callable[[ListenerSettings, LoginParts, ServerTls | None], Channel] = channel_of,
    ) -> None:
        self._channel_of = channel_of
        self._listeners = listeners
        self._config = config
        self._parts = parts

    def begin(self) -> None:
        """Give every listener its channel. Raises StartupError."""
        try:
            channels = [self._made(listener, self._config) for listener in self._listeners]
        except SettingError as error:
            raise StartupError(str(error)) from error
        for listener, channel in zip(self._listeners, channels, strict=True):
            listener.channel = channel

    def _made(self, listener: Listener, config: BrokerConfig) -> Channel:
        of_listener = ListenerSettings(config, listener.name, listener.security_protocol)
        return self._channel_of(of_listener, self._parts, listener.channel.tls)

    async def check(self, config: BrokerConfig) -> None:
        """Check that every listener could be secured with the settings in `config`. Raises SettingError."""

        def make() -> None:
            for listener in self._listeners:
                if not listener.channel.is_open:
                    self._made(listener, config)

        await self._parts.environment.threads.run(make)

    # --- following the image --------------------------------------------------------------------------------

    async def prepare(self, delta: Delta) -> None:
        """Do nothing."""

    def publish(self, delta: Delta) -> None:
        """Do nothing."""

    async def clean_up(self, delta: Delta) -> None:
        """Read the key stores and files of changed settings again."""
        if not any(kind == BROKER for kind, _ in delta.configs):
            return
        for listener in self._listeners:
            if listener.channel.is_open:
                continue
            try:
                listener.channel = await self._parts.environment.threads.run(
                    partial(self._made, listener, self._config)
                )
            except SettingError as error:
                log.error("listener %s keeps its previous settings: %s", listener.name, error)
