"""Routes of v3: ACLs, listed, created and deleted."""

from __future__ import annotations

from typing import Any

from barnabas.client.admin import Acl
from barnabas.client.administration.words import OPERATIONS, PATTERN_TYPES, PERMISSIONS, RESOURCE_TYPES
from barnabas.rest.base import V3, Answer, Call, Fields, Parameter, Route
from barnabas.rest.errors import INVALID_PAYLOAD, RestError
from barnabas.rest.resources import at, cluster_of, collection, resource

ACLS_MAX = 1_000
"""ACLs that one request creates."""
_WORDS = {
    "resource_type": RESOURCE_TYPES, "pattern_type": PATTERN_TYPES, "operation": OPERATIONS, "permission": PERMISSIONS,
}  # fmt: skip
"""Names of the values of a field, as the client has them."""
_NAMES = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")
_WORDS_OF_PATTERN = ("any", "match")


def constant(word: str) -> str:
    """Return a name as the API writes it: transactional-id, TRANSACTIONAL_ID."""
    return word.upper().replace("-", "_")


def _word(name: str, text: str) -> str:
    """Return the client's name of a value. Raises RestError."""
    for word in _WORDS[name]:
        if constant(word) == text.upper() and word != "unknown":
            return word
    words = ", ".join(constant(word) for word in _WORDS[name] if word != "unknown")
    raise RestError(400, 400, f"{name} is one of {words}, not {text[:40]!r}")


def _query(acl: Acl) -> dict[str, str]:
    return {
        "resource_type": constant(acl.resource_type),
        "resource_name": acl.resource_name or "",
        "pattern_type": constant(acl.pattern_type),
        "principal": acl.principal or "",
        "host": acl.host or "",
        "operation": constant(acl.operation),
        "permission": constant(acl.permission),
    }


def _acl_row(call: Call, cluster_id: str, acl: Acl) -> dict[str, Any]:
    query = _query(acl)
    row = resource(call, "KafkaAcl", at(cluster_id, "acls"), (), {"cluster_id": cluster_id, **query})
    row["metadata"] = {"self": call.url(*at(cluster_id, "acls"), **query)}
    return row


def _filter(call: Call, default: str) -> Acl:
    """Return the filter of the query; `default` replaces a missing type. Raises RestError."""
    words = {name: call.query.get(name, "") or default for name in _WORDS}
    missing = next((name for name, text in words.items() if not text), None)
    if missing is not None:
        raise RestError(400, 400, f"{missing} is missing: ANY stands for any")
    return Acl(
        _word("resource_type", words["resource_type"]),
        call.query.get("resource_name") or None,
        _word("pattern_type", words["pattern_type"]),
        call.query.get("principal") or None,
        call.query.get("host") or None,
        _word("operation", words["operation"]),
        _word("permission", words["permission"]),
    )


async def list_acls(call: Call) -> object:
    """Return the ACLs that a filter matches."""
    cluster_id = await cluster_of(call)
    filter_ = _filter(call, "ANY")
    data = [_acl_row(call, cluster_id, acl) for acl in await call.backend.admin.acls(filter_)]
    return collection(call, "KafkaAcl", at(cluster_id, "acls"), data, **_query(filter_))


async def delete_acls(call: Call) -> object:
    """Delete the ACLs that a filter matches."""
    cluster_id = await cluster_of(call)
    outcomes = await call.backend.admin.delete_acls(_filter(call, ""))
    failure = next((error for error in outcomes.values() if error is not None), None)
    if failure is not None:
        raise failure
    return {"data": [_acl_row(call, cluster_id, acl) for acl in sorted(outcomes)]}


def _new_acl(value: Any) -> Acl:
    fields = Fields(value, *_NAMES, what="an ACL")
    words = {name: _word(name, fields.get(name, str)) for name in _WORDS}
    wrong = next((name for name, word in words.items() if word in _WORDS_OF_PATTERN), None)
    if wrong is not None:
        raise RestError(400, 400, f"{wrong} of a new ACL is not {constant(words[wrong])}")
    return Acl(
        words["resource_type"],
        fields.get("resource_name", str),
        words["pattern_type"],
        fields.get("principal", str),
        fields.get("host", str),
        words["operation"],
        words["permission"],
    )


async def _create(call: Call, acls: list[Acl]) -> None:
    for error in (await call.backend.admin.create_acls(acls)).values():
        if error is not None:
            raise error


async def create_acl(call: Call) -> object:
    """Create an ACL."""
    cluster_id = await cluster_of(call)
    value = await call.json()
    if value is None:
        raise RestError(422, INVALID_PAYLOAD, "the request needs a body: an ACL")
    acl = _new_acl(value)
    await _create(call, [acl])
    return Answer(None, 201, [("Location", call.url(*at(cluster_id, "acls"), **_query(acl)))])


async def create_acls(call: Call) -> object:
    """Create several ACLs."""
    await cluster_of(call)
    values = (await call.fields("data")).get("data", list)
    if len(values) > ACLS_MAX:
        raise RestError(413, 413, f"a request creates at most {ACLS_MAX} ACLs")
    await _create(call, [_new_acl(value) for value in values])
    return None


_PATH = "/v3/clusters/{cluster_id}/acls"
_TEXTS = {
    name: f"one of {', '.join(constant(word) for word in words if word != 'unknown')}"
    for name, words in _WORDS.items()
}
_FIELDS = tuple(Parameter(name, "string", _TEXTS.get(name, "a text")) for name in _NAMES)
ROUTES = (
    Route("GET", _PATH, list_acls, "ACLs that a filter matches; all without one", V3, _FIELDS),
    Route("POST", _PATH, create_acl, "Create an ACL", V3, body=_FIELDS, status=201),
    Route("DELETE", _PATH, delete_acls, "Delete ACLs that a filter matches, which names all four types", V3, _FIELDS),
    Route(
        "POST", f"{_PATH}:batch", create_acls, "Create several ACLs", V3, status=204,
        body=(Parameter("data", "array", "ACLs"),),
    ),
)  # fmt: skip
