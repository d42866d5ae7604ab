"""Limit that applies to a user and a client id, and the clients that share it. Pure.

The rule: the order of Kafka's `ClientQuotaManager`: limits for both together, for the user, for the defaults of these, for
the client id. The parts of the entity with the limit determine the clients that share it: all clients of a user, or each
client has its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.serving.quotas.entities import QuotaEntity, Quotas

NONE: Quotas = {}


class Share(NamedTuple):
    """Clients that share a limit; a part that does not count is empty."""

    user: str
    client_id: str


class Limits:
    """The limits of one quota (for example `producer_byte_rate`), of all entities.

    `is_set`: whether any entity has a limit; while none has, nothing needs to be counted. `follow` updates it with each
    change of the quotas.
    """

    __slots__ = ("_counts", "_name", "_quotas", "is_set")

    def __init__(self, name: str) -> None:
        self._name = name
        self._quotas: Mapping[QuotaEntity, Quotas] = {}
        self._counts: Counter[tuple[bool, bool]] = Counter()
        """Number of entities with such a limit, by whether they have a user and a client id."""
        self.is_set = False

    def follow(self, quotas: Mapping[QuotaEntity, Quotas], changed: Iterable[QuotaEntity]) -> None:
        """Apply these quotas; `changed` names every entity with other quotas than before."""
        for entity in changed:
            kind = entity.user is not None, entity.client_id is not None
            if any(kind):
                self._counts[kind] += self._has_limit(quotas, entity) - self._has_limit(self._quotas, entity)
        self._quotas = quotas
        self.is_set = any(self._counts.values())

    def _has_limit(self, quotas: Mapping[QuotaEntity, Quotas], entity: QuotaEntity) -> bool:
        return self._name in quotas.get(entity, NONE)

    def _limit(self, user: str | None, client_id: str | None) -> float | None:
        return self._quotas.get(QuotaEntity(user, client_id), NONE).get(self._name)

    def applying_to(self, user: str, client_id: str) -> tuple[Share, float | None]:
        """Return the share of the limit that applies to a user with this client id, and the limit; None without a limit.

        As in Kafka, the default for client ids does not apply to a client without one.
        """
        share = self._share(user, client_id)
        return share, self._limit_of(share)

    def _share(self, user: str, client_id: str) -> Share:
        if self._counts[True, False] == self._counts[True, True] == 0:
            return Share("", client_id)
        both = Share(user, client_id)
        for entity, share in (
            ((user, client_id), both), ((user, ""), both), ((user, None), Share(user, "")),
            (("", client_id), both), (("", ""), both), (("", None), Share(user, "")),
        ):  # fmt: skip
            if self._limit(*entity) is not None:
                return share
        return Share("", client_id)

    def _limit_of(self, share: Share) -> float | None:
        user, client_id = share
        candidates: tuple[tuple[str | None, str | None], ...] = ()
        if user and client_id:
            candidates = (user, client_id), (user, ""), ("", client_id), ("", "")
        elif user:
            candidates = (user, None), ("", None)
        elif client_id:
            candidates = (None, client_id), (None, "")
        return next(
            (limit for candidate in candidates if (limit := self._limit(*candidate)) is not None), None
        )
