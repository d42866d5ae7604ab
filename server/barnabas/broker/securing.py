"""Gives listeners the security that their settings ask for.

The rule: all of them are worked out before one is changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.channel import Channel
from barnabas.broker.sasl_offers import LoginParts, sasl_offer
from barnabas.broker.startup import StartupError
from barnabas.config.listeners import ListenerSettings
from barnabas.config.setting import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.listener import Listener
    from barnabas.config.loading import BrokerConfig


def secure(listeners: Sequence[Listener], config: BrokerConfig, parts: LoginParts) -> None:
    """Give each listener its channel. Raises StartupError."""
    try:
        made = [
            Channel(sasl_offer(ListenerSettings(config, listener.name, listener.security_protocol), parts))
            for listener in listeners
        ]
    except SettingError as error:
        raise StartupError(str(error)) from error
    for listener, channel in zip(listeners, made, strict=True):
        listener.channel = channel
