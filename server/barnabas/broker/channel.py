"""How the clients of one listener are secured, as its settings say now.

The rule: settings that cannot work never replace those that do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.security.sasl.server import SaslServer

if TYPE_CHECKING:
    from barnabas.security.sasl.server import SaslOffer


@dataclass(slots=True)
class Channel:
    """What new connections of a listener get."""

    offer: SaslOffer | None = None
    """None on a listener without SASL."""

    @property
    def authenticates(self) -> bool:
        """Whether every client has to say who it is."""
        return self.offer is not None

    def new_login(self) -> SaslServer | None:
        """Return the login of a new connection, None where nobody logs in."""
        return None if self.offer is None else SaslServer(self.offer)


NO_SECURITY = Channel()
