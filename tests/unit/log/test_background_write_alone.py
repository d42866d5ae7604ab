"""A write in a thread by itself: when what it has written counts as written, and when the log must write again."""

from __future__ import annotations

import pytest

from barnabas.log.background_write import BackgroundWrite
from tests.support.logs import batch, rebase


class Written:
    """A file that remembers what was written; `failure` is raised instead."""

    def __init__(self, failure: OSError | None = None) -> None:
        self.writes: list[tuple[bytes, int]] = []
        self.failure = failure

    def write(self, data, position):
        if self.failure is not None:
            raise self.failure
        self.writes.append((bytes(data), position))


@pytest.fixture
def file():
    return Written()


@pytest.fixture
def records():
    return batch(b"value")


def test_what_was_written_at_its_place_counts(file, records):
    write = BackgroundWrite(file, records, 100)
    write.run()
    assert write.take(records, 100)
    assert file.writes == [(bytes(records), 100)]


def test_a_write_that_has_not_begun_counts_for_nothing_and_never_begins(file, records):
    write = BackgroundWrite(file, records, 100)
    assert not write.take(records, 100), "the log would have a hole"
    write.run()
    assert file.writes == []


def test_what_was_written_at_another_place_counts_for_nothing(file, records):
    write = BackgroundWrite(file, records, 100)
    write.run()
    assert not write.take(records, 101)


def test_other_records_do_not_count_as_written_even_if_they_are_equal(file, records):
    write = BackgroundWrite(file, records, 100)
    write.run()
    assert not write.take(bytearray(records), 100)


def test_records_that_were_given_another_offset_since_do_not_count_as_written(file, records):
    write = BackgroundWrite(file, records, 100)
    write.run()
    rebase(records, 0, 7, 0)
    assert not write.take(records, 100)


def test_a_write_that_failed_is_told_to_who_takes_it(records):
    write = BackgroundWrite(Written(OSError(28, "full")), records, 100)
    write.run()
    with pytest.raises(OSError, match="full"):
        write.take(records, 100)


@pytest.mark.parametrize("is_run", [True, False])
def test_who_gives_a_write_up_learns_whether_something_is_to_be_cut_off(file, records, is_run):
    write = BackgroundWrite(file, records, 100)
    if is_run:
        write.run()
    assert write.give_up() is is_run
