"""Leader epochs."""

import pytest

from barnabas.log.epochs import LeaderEpochs

ENTRIES = [(1, 10), (3, 20), (4, 20 + 15)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 20)), (2, (1, 20)), (3, (3, 35)), (4, (4, 99)), (5, (-1, -1))],
)
def test_the_end_of_an_epoch_is_where_the_next_one_begins(epoch, expected):
    assert LeaderEpochs(ENTRIES).end_offset_for(epoch, 99) == expected


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, -1), (9, -1), (10, 1), (19, 1), (20, 3), (34, 3), (35, 4), (1000, 4)]
)
def test_the_epoch_of_an_offset(offset, epoch):
    assert LeaderEpochs(ENTRIES).epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("epoch", "start", "changed", "entries"),
    [
        (4, 50, False, ENTRIES),
        (5, 50, True, [*ENTRIES, (5, 50)]),
        (5, 35, True, [(1, 10), (3, 20), (5, 35)]),
        (5, 15, True, [(1, 10), (5, 15)]),
        (2, 50, True, [(1, 10), (2, 50)]),
        (4, 30, True, [(1, 10), (3, 20), (4, 30)]),
        (-1, 50, False, ENTRIES),
    ],
)
def test_a_new_epoch_drops_what_contradicts_it(epoch, start, changed, entries):
    epochs = LeaderEpochs(ENTRIES)
    assert epochs.assign(epoch, start) is changed
    assert epochs.entries == entries


@pytest.mark.parametrize(
    ("end", "entries"), [(36, ENTRIES), (35, ENTRIES[:2]), (21, ENTRIES[:2]), (20, ENTRIES[:1]), (0, [])]
)
def test_epochs_are_truncated_from_the_end(end, entries):
    epochs = LeaderEpochs(ENTRIES)
    assert epochs.truncate_from_end(end) is (entries != ENTRIES)
    assert epochs.entries == entries


@pytest.mark.parametrize(
    ("start", "entries"),
    [(5, ENTRIES), (10, ENTRIES), (15, [(1, 15), *ENTRIES[1:]]), (20, ENTRIES[1:]), (99, [(4, 99)])],
)
def test_epochs_are_truncated_from_the_start(start, entries):
    epochs = LeaderEpochs(ENTRIES)
    assert epochs.truncate_from_start(start) is (entries != ENTRIES)
    assert epochs.entries == entries


def test_no_epochs_at_all():
    epochs = LeaderEpochs()
    assert (epochs.latest, epochs.epoch_at(0), epochs.end_offset_for(0, 5)) == (-1, -1, (-1, -1))
    assert not epochs.clear()
