"""Kinds of memberships, by the protocol of a group: for consumers that subscribe, which alone load them."""

from __future__ import annotations

from barnabas.client.consuming.classic import ClassicMembership
from barnabas.client.consuming.heartbeating import ConsumerMembership
from barnabas.client.consuming.settings import ConsumerSettings


def membership_kind(settings: ConsumerSettings) -> type[ConsumerMembership | ClassicMembership]:
    """Return the membership of a group's protocol."""
    return ConsumerMembership if settings.group_protocol == "consumer" else ClassicMembership
