"""Routes of access: ACLs, users, quotas, delegation tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.client import ClientError
from barnabas.client.admin import Acl
from barnabas.client.administration.words import (
    MECHANISMS,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
)
from barnabas.console import paging
from barnabas.console.base import Call, ConsoleError, Parameter, Route
from barnabas.console.outcomes import error_text, settled

_WORDS = {
    "resource_type": RESOURCE_TYPES[2:],
    "pattern_type": PATTERN_TYPES[3:],
    "operation": OPERATIONS[2:],
    "permission": PERMISSIONS[2:],
}


async def list_acls(call: Call) -> object:
    """Return a page of ACLs, and the words for their fields."""
    return acl_page(call, await call.backend.admin.acls())


def acl_page(call: Call, acls: Sequence[Acl]) -> dict[str, Any]:
    """Return the requested page of ACLs, and the words for their fields."""
    page = paging.page_of(
        call,
        acls,
        {
            "principal": lambda acl: (acl.principal or "", acl),
            "resource": lambda acl: (acl.resource_name or "", acl),
        },
        lambda acl: " ".join(filter(None, acl)),
    )
    return {**page.as_json(acl._asdict() for acl in page.rows), "words": _WORDS}


def _acl(call: Call) -> Acl:
    """Return the ACL of a body, which must have all fields. Raises ConsoleError."""
    values = {name: call.field(name, str) for name in Acl._fields}
    for name, words in _WORDS.items():
        if values[name] not in words:
            raise ConsoleError(400, f"{name}: one of {', '.join(words)} expected")
    return Acl(**values)


async def create_acl(call: Call) -> object:
    """Make an ACL."""
    settled(await call.backend.admin.create_acls([_acl(call)]))
    return None


async def delete_acl(call: Call) -> object:
    """Delete an ACL."""
    acl = _acl(call)
    call.confirmed(acl.principal or "")
    gone = await call.backend.admin.delete_acls(acl)
    settled(gone)
    if not gone:
        raise ConsoleError(404, "there is no such ACL")
    return None


async def list_users(call: Call) -> object:
    """Return the users that have passwords."""
    users = await call.backend.admin.users()
    return {
        "users": [
            {"name": name, "mechanisms": {} if isinstance(mechanisms, ClientError) else mechanisms,
             "error": error_text(mechanisms) if isinstance(mechanisms, ClientError) else None}
            for name, mechanisms in users.items()
        ],
        "mechanisms": list(MECHANISMS),
    }  # fmt: skip


def _mechanism(call: Call) -> str:
    mechanism: str = call.field("mechanism", str, "SCRAM-SHA-512")
    if mechanism not in MECHANISMS:
        raise ConsoleError(400, f"mechanism: one of {', '.join(MECHANISMS)} expected")
    return mechanism


async def set_password(call: Call) -> object:
    """Give a user a password."""
    password = call.field("password", str)
    if not password:
        raise ConsoleError(400, "password: it is empty")
    await call.backend.admin.set_password(call.path["user"], password, mechanism=_mechanism(call))
    return None


async def delete_password(call: Call) -> object:
    """Delete a user's password."""
    call.confirmed(call.path["user"])
    await call.backend.admin.delete_password(call.path["user"], _mechanism(call))
    return None


async def list_quotas(call: Call) -> object:
    """Return all quotas."""
    quotas = await call.backend.admin.quotas()
    return {
        "quotas": [{"entity": dict(quota.entity), "values": quota.values} for quota in quotas],
        "keys": QUOTAS,
    }


async def change_quotas(call: Call) -> object:
    """Change quotas of an entity."""
    entity, values = call.field("entity", dict), call.field("values", dict)
    if not entity or not all(value is None or isinstance(value, str) for value in entity.values()):
        raise ConsoleError(400, "entity: user, client-id or ip with names (null for the default) expected")
    changes: dict[str, float | None] = {}
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ConsoleError(400, f"values: {name} is a number, or null to remove it")
        changes[name] = None if value is None else float(value)
    await call.backend.admin.alter_quotas(entity, changes)
    return None


async def list_tokens(call: Call) -> object:
    """Return delegation tokens, without the HMACs that would allow a login."""
    rows: list[dict[str, Any]] = []
    for token in await call.backend.admin.tokens():
        row = token._asdict()
        del row["hmac"]
        row["owner"], row["requester"] = str(token.owner), str(token.requester)
        row["renewers"] = [str(renewer) for renewer in token.renewers]
        rows.append(row)
    return {"tokens": rows}


QUOTAS = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
)  # fmt: skip
_ACL = tuple(Parameter(name, "of the ACL, as the list has it") for name in Acl._fields)
ROUTES = (
    Route("GET", "/api/acls", list_acls, "A page of ACLs", query=paging.QUERY),
    Route("POST", "/api/acls", create_acl, "Make an ACL", body=_ACL),
    Route("DELETE", "/api/acls", delete_acl, "Delete an ACL",
          body=(*_ACL, Parameter("confirm", "the ACL's principal, from who is sure"))),
    Route("GET", "/api/users", list_users, "Users with passwords of SCRAM"),
    Route("PUT", "/api/users/{user}", set_password, "Give a user a password",
          body=(Parameter("password", "it leaves the console hashed"), Parameter("mechanism", "(SCRAM-SHA-512)"))),
    Route("DELETE", "/api/users/{user}", delete_password, "Delete a user's password",
          body=(Parameter("mechanism", "(SCRAM-SHA-512)"), Parameter("confirm", "the user's name, from who is sure"))),
    Route("GET", "/api/quotas", list_quotas, "Quotas of users, clients and addresses"),
    Route("POST", "/api/quotas", change_quotas, "Change quotas",
          body=(Parameter("entity", "an object: user, client-id, ip with their names; null for the default"),
                Parameter("values", "an object: numbers by quota, null to remove one"))),
    Route("GET", "/api/tokens", list_tokens, "Delegation tokens, without their secrets"),
)  # fmt: skip
