"""In which order the quotas of an entity are described: that of a hash map of Java, which Kafka keeps them in."""

from itertools import permutations

import pytest

from barnabas.serving.quotas.entities import QuotaEntity, altered

QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
ORDERS = [
    (1, 0), (2, 0), (3, 0), (1, 2), (1, 3), (3, 2), (1, 2, 0), (1, 3, 0), (3, 2, 0), (1, 3, 2), (0, 1, 3, 2),
]  # fmt: skip
"""For each set of quotas that are set at once the order in which Kafka 4.3.1 describes them."""


def ordered(before, *operations):
    return [QUOTAS.index(name) for name in altered(QuotaEntity("u"), before, operations)]


@pytest.mark.parametrize("order", ORDERS)
def test_quotas_that_are_set_at_once_come_in_the_order_of_kafka(order):
    for names in permutations(QUOTAS[number] for number in order):
        assert ordered({}, *((name, 1.0) for name in names)) == list(order)


@pytest.mark.parametrize(
    ("steps", "order"),
    [
        ([(0,), (2,)], (0, 2)),  # both are in one bucket: the first one stays the first
        ([(2,), (0,)], (2, 0)),
        ([(0,), (1,)], (1, 0)),
        ([(1,), (0,), (2,)], (1, 0, 2)),
        ([(3,), (2,), (0,)], (3, 2, 0)),
        ([(0, 1, 2, 3), (-1,)], (3, 0, 2)),  # with four there were more buckets, in which 0 came before 2
        ([(0, 1, 2, 3), (-3,)], (1, 0, 2)),
        ([(0, 2), (2,)], (2, 0)),  # another value moves nothing
    ],
)
def test_quotas_set_in_succession_keep_their_order(steps, order):
    """A negative number removes a quota, all as Kafka 4.3.1 answers."""
    quotas = {}
    for numbers in steps:
        operations = [(QUOTAS[abs(number)], None if number < 0 else 7.0) for number in numbers]
        quotas = altered(QuotaEntity("u"), quotas, operations)
    assert list(quotas) == [QUOTAS[number] for number in order]
