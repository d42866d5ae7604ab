"""Leader epochs against a list of them, by every rule at every offset and epoch near the entries."""

from itertools import product
from random import Random

import pytest

from barnabas.log.epochs import LeaderEpochs

NUMBERS = range(-1, 5)
ASSIGNMENTS = list(product(NUMBERS, NUMBERS))
LOG_END = 9


def assigned(entries, epoch, start):
    """The entries after an assignment, by KIP-101: what is not before the new one in both numbers contradicts it."""
    if epoch < 0 or start < 0:
        return entries
    if entries and entries[-1][0] == epoch and entries[-1][1] <= start:
        return entries
    return [entry for entry in entries if entry[0] < epoch and entry[1] < start] + [(epoch, start)]


def end_offset_for(entries, epoch):
    """As OffsetsForLeaderEpoch answers it."""
    if epoch == -1 or not entries or epoch > entries[-1][0]:
        return -1, -1
    upto = [entry for entry in entries if entry[0] <= epoch]
    after = entries[len(upto) :]
    return (upto[-1][0] if upto else epoch), (after[0][1] if after else LOG_END)


def histories():
    """All of up to two assignments, and some longer ones."""
    yield from ([],)
    yield from product(ASSIGNMENTS, repeat=1)
    yield from product(ASSIGNMENTS, repeat=2)
    random = Random(5)
    for _ in range(1_500):
        yield [random.choice(ASSIGNMENTS) for _ in range(random.randint(3, 6))]


def test_every_short_history_of_assignments():
    for history in histories():
        epochs, entries = LeaderEpochs(), []
        for epoch, start in history:
            after = assigned(entries, epoch, start)
            assert epochs.assign(epoch, start) is (after != entries), (history, entries)
            entries = after
            assert epochs.entries == entries, history
        assert LeaderEpochs(entries).entries == entries
        assert epochs.latest == (entries[-1][0] if entries else -1)
        for number in NUMBERS:
            owners = [epoch for epoch, start in entries if start <= number]
            assert epochs.epoch_at(number) == (owners[-1] if owners else -1), (entries, number)
            assert epochs.end_offset_for(number, LOG_END) == end_offset_for(entries, number), (
                entries,
                number,
            )


ENTRIES = [[], [(0, 0)], [(2, 3)], [(0, 0), (1, 2)], [(1, 1), (3, 2), (4, 4)]]


@pytest.mark.parametrize("offset", [-1, *range(6)])
@pytest.mark.parametrize("entries", ENTRIES, ids=str)
def test_truncation_at_every_offset(entries, offset):
    epochs = LeaderEpochs(entries)
    kept = [entry for entry in entries if entry[1] < offset]
    assert epochs.truncate_from_end(offset) is (kept != entries)
    assert epochs.entries == kept

    epochs = LeaderEpochs(entries)
    before = [epoch for epoch, start in entries if start <= offset]
    kept = [(epoch, offset) for epoch in before[-1:]] + [entry for entry in entries if entry[1] > offset]
    assert epochs.truncate_from_start(offset) is (kept != entries)
    assert epochs.entries == kept
    # The entries are as good as new ones.
    assert epochs.assign(9, 9)
    assert epochs.entries == [*kept, (9, 9)]


@pytest.mark.parametrize("entries", ENTRIES, ids=str)
def test_none_are_left_after_clear(entries):
    epochs = LeaderEpochs(entries)
    assert epochs.clear() is bool(entries)
    assert (epochs.entries, epochs.latest) == ([], -1)
    assert epochs.epoch_at(5) == -1
