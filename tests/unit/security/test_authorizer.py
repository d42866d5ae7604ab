"""Operations on resources, as numbers and bits of the wire."""

from barnabas.security.authorizer import (
    OPERATIONS_ON,
    REFUSALS,
    AllowEverything,
    Operation,
    Requester,
    ResourceType,
    authorized_operations,
)

ANYBODY = Requester("User:ANONYMOUS", "/127.0.0.1")


class ReadersOnly:
    def allows(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        return operation in (Operation.READ, Operation.DESCRIBE) and name == "mine"

    def allows_on_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        return operation is Operation.READ

    def reason(self, _: Requester, _operation: Operation, _type: ResourceType, _name: str, /) -> str:
        return "a test"


def test_every_type_has_operations_and_a_refusal() -> None:
    assert set(OPERATIONS_ON) == set(REFUSALS) == set(ResourceType)


def test_authorized_operations_are_bits() -> None:
    # As Apache Kafka answers them where there is no authorizer.
    assert authorized_operations(AllowEverything(), ANYBODY, ResourceType.TOPIC, "t") == 0b110111111000
    assert authorized_operations(AllowEverything(), ANYBODY, ResourceType.GROUP, "g") == 0b110101001000
    assert authorized_operations(ReadersOnly(), ANYBODY, ResourceType.TOPIC, "mine") == 0b100001000
    assert authorized_operations(ReadersOnly(), ANYBODY, ResourceType.TOPIC, "other") == 0
