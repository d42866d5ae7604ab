"""An ACL, and its fields in requests and responses.

The rule: fields are numbers and texts of the protocol, so that invalid ones can be sent, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

ANY = 1
TOPIC, GROUP = 2, 3
MATCH, LITERAL, PREFIXED = 2, 3, 4
DENY, ALLOW = 2, 3
READ = 3

_OF_CREATION = (
    "resource_type", "resource_name", "resource_pattern_type", "principal", "host", "operation", "permission_type",
)  # fmt: skip
_OF_FILTER = (
    "resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter",
    "operation", "permission_type",
)  # fmt: skip
_OF_RESOURCE = ("resource_type", "resource_name", "pattern_type")
_OF_ENTRY = ("principal", "host", "operation", "permission_type")

ANY_FILTER: dict[str, Any] = dict(zip(_OF_FILTER, (ANY, None, ANY, None, None, ANY, ANY), strict=True))
"""Finds every ACL."""


class Acl(NamedTuple):
    """One ACL; by default it allows a user that does not exist to read, from any host."""

    resource_type: int
    name: str
    pattern: int = LITERAL
    principal: str = "User:conform-nobody"
    host: str = "*"
    operation: int = READ
    permission: int = ALLOW

    @classmethod
    def of_answer(cls, resource: Any, entry: Any) -> Acl:
        """Return an ACL from the parts of an answer that name its resource and its entry; one part may be both."""
        return cls(
            *(getattr(resource, name) for name in _OF_RESOURCE), *(getattr(entry, name) for name in _OF_ENTRY)
        )

    def creation(self) -> dict[str, Any]:
        """Return it in the form of CreateAcls."""
        return dict(zip(_OF_CREATION, self, strict=True))

    def filter(self) -> dict[str, Any]:
        """Return the filter of DescribeAcls and DeleteAcls that finds this ACL only."""
        return dict(zip(_OF_FILTER, self, strict=True))
