"""The ACLs of the comparison: everything is allowed on topics, groups and transactional ids, except as names say.

The rule: Describe is denied on a topic `no-describe`, Read on `no-read`, and so on for the other types; all operations are
denied on `nothing`, and on the cluster. Both sides get the same ACLs.
"""

from __future__ import annotations

from compat.kit.sides import Side
from compat.kit.wire import Values
from compat.security.sides import ADMIN

RESOURCES = {"TOPIC": 2, "GROUP": 3, "TRANSACTIONAL_ID": 5}
OPERATIONS = {
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
}
LITERAL, ALLOW, DENY = 3, 3, 2
ANONYMOUS = "User:ANONYMOUS"


def name_without(operation: str) -> str:
    """Return the name of resources on which this is denied."""
    return "nothing" if operation == "ALL" else f"no-{operation.lower().replace('_', '-')}"


def set_acls(side: Side) -> None:
    """Create the ACLs of these rules, as the administrator. Raises WireError."""

    def acl(resource_type: int, name: str, operation: int, permission: int) -> Values:
        return {
            "ResourceType": resource_type,
            "ResourceName": name,
            "ResourcePatternType": LITERAL,
            "Principal": ANONYMOUS,
            "Host": "*",
            "Operation": operation,
            "PermissionType": permission,
        }

    acls = [acl(kind, "*", OPERATIONS["ALL"], ALLOW) for kind in RESOURCES.values()]
    acls += [
        acl(kind, name_without(name), operation, DENY)
        for kind in RESOURCES.values()
        for name, operation in OPERATIONS.items()
    ]
    with side.connect(user=ADMIN) as connection:
        answers = connection.ask("CreateAcls", 3, {"Creations": acls})["Results"]
    for answer in answers:
        assert not answer["ErrorCode"], answer
