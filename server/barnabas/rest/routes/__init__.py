"""Routes of the REST API.

The rule: a route is a row of a module's `ROUTES`; the server, the OpenAPI document and the reference go by these rows.
"""

from __future__ import annotations

from functools import cache

from barnabas.network.routes import Router, router_of
from barnabas.rest.base import Route

MODULES = (
    "v2_topics", "v2_consumers", "v3_cluster", "v3_configs", "v3_topics", "v3_records", "v3_groups", "v3_acls", "own",
)  # fmt: skip


@cache
def router() -> Router[Route]:
    """Return the router of all routes, in the order of their modules."""
    return router_of(__name__, MODULES)
