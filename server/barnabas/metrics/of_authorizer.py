"""Metrics of the authorizer: the number of ACLs, and of allowed and denied operations.

The rule: names are those of Apache Kafka's metrics of plugins (`kafka.server:type=plugins,config=authorizer.class.name`),
with counters instead of its rates per minute, and an additional label: the type of the resource.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics.families import COUNTER
from barnabas.security.authorizer import ResourceType
from barnabas.security.standard_authorizer import StandardAuthorizer

if TYPE_CHECKING:
    from barnabas.metrics.families import Families
    from barnabas.security.authorizer import Authorizer

PREFIX = "kafka_server_plugins_"
PLUGIN = {"config": "authorizer.class.name", "class": "StandardAuthorizer"}


def authorizer_families(families: Families, authorizer: Authorizer) -> None:
    """Add an authorizer's counts of decisions; none for an authorizer that allows everything."""
    if not isinstance(authorizer, StandardAuthorizer):
        return
    families.gauge(f"{PREFIX}acls_total_count", "ACLs", authorizer.acl_count, **PLUGIN)
    for outcome, counts in (("allowed", authorizer.allowed_counts), ("denied", authorizer.denied_counts)):
        family = families.get(f"{PREFIX}authorization_{outcome}", COUNTER, f"Operations {outcome}")
        for kind in ResourceType:
            family.add(counts[kind], **PLUGIN, resource_type=kind.name)
