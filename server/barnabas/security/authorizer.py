"""Port of authorizers and their requests, and the authorizer that allows everything. Pure.

The rule: operations, resource types and their numbers are Kafka's, since ACLs and authorized operations are numbers in
requests; an authorizer decides on one operation on one resource by name, and nothing else decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from barnabas.wire.generated.errors import ErrorCode

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class ResourceType(IntEnum):
    """Types of resources that ACLs are about, with the numbers of the wire."""

    __hash__ = int.__hash__  # that of Enum is slow, and decisions are looked up by these

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(IntEnum):
    """Operations that a principal may be allowed to do, with the numbers of the wire. ALL stands in ACLs only."""

    __hash__ = int.__hash__  # that of Enum is slow, and decisions are looked up by these

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


OPERATIONS_ON: Mapping[ResourceType, tuple[Operation, ...]] = MappingProxyType({
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
})  # fmt: skip
"""Operations that there are on resources of each type."""

ALL_OPERATIONS: Mapping[ResourceType, int] = MappingProxyType(
    {kind: sum(1 << operation for operation in operations) for kind, operations in OPERATIONS_ON.items()}
)
"""The bits of all operations on a resource of each type."""

NO_OPERATIONS: Final = 0
"""The bits of authorized operations where the requester may not even describe the resource."""

REFUSALS: Mapping[ResourceType, ErrorCode] = MappingProxyType(
    {
        ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
"""The error code of a refusal, by the type of the resource."""


class Requester(NamedTuple):
    """The client that asks: its principal as `Type:name`, and the address it connects from, as ACLs name it."""

    principal: str
    host: str


class Authorizer(Protocol):
    """Decides whether a requester may do an operation. Called from the event loop, for every resource of every request."""

    def allows(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str, /
    ) -> bool:
        """Return whether `requester` may do `operation` on this resource."""

    def allows_on_any(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, /
    ) -> bool:
        """Return whether there is some resource of this type on which `requester` may do `operation`."""

    def reason(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str, /
    ) -> str:
        """Name the rule that `allows` follows, for a log."""


class AllowEverything:
    """The authorizer of a broker without a configured one: it allows every operation."""

    __slots__ = ()

    def allows(self, _: Requester, _operation: Operation, _type: ResourceType, _name: str, /) -> bool:
        """Allow it."""
        return True

    def allows_on_any(self, _: Requester, _operation: Operation, _type: ResourceType, /) -> bool:
        """Allow it."""
        return True

    def reason(self, _: Requester, _operation: Operation, _type: ResourceType, _name: str, /) -> str:
        """Name the rule."""
        return "NoAuthorizer"


def authorized_operations(
    authorizer: Authorizer, requester: Requester, resource_type: ResourceType, name: str
) -> int:
    """Return the bits of all operations that are allowed on a resource, as in Metadata and DescribeGroups responses."""
    if isinstance(authorizer, AllowEverything):
        return ALL_OPERATIONS[resource_type]
    return sum(
        1 << operation
        for operation in OPERATIONS_ON[resource_type]
        if authorizer.allows(requester, operation, resource_type, name)
    )
