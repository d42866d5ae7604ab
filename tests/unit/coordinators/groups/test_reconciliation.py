"""One step of one member towards its target: what it keeps, gives up, gets, and in which epoch it then is."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.epoch_member import EpochMember, MemberState, changed
from barnabas.coordinators.groups.reconciliation import reconcile
from barnabas.wire.generated.errors import ErrorCode
from tests.support.refusals import code_of

STABLE, UNREVOKED, UNRELEASED, UNKNOWN = (
    MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED, MemberState.UNKNOWN,
)  # fmt: skip
NOTHING: frozenset[int] = frozenset()
TARGET_EPOCH = 9


def member(state=STABLE, epoch=5, assigned=(), revoking=()) -> EpochMember[int]:
    """A member whose partitions it was given in epochs 1 and 2; it has been in epoch 3 before."""
    return EpochMember("m", state=state, epoch=epoch, previous_epoch=3,
                       assigned=dict.fromkeys(assigned, 1), revoking=dict.fromkeys(revoking, 2))  # fmt: skip


def step(before, target=(), taken=(), reported=NOTHING, target_epoch=TARGET_EPOCH):
    return reconcile(before, target_epoch, frozenset(target), frozenset(taken), reported)


def seen(after):
    return after.state, after.epoch, after.previous_epoch, dict(after.assigned), dict(after.revoking)


def test_a_member_that_has_its_target_stays_as_it_is():
    before = member(epoch=TARGET_EPOCH, assigned=[1])
    assert step(before, target=[1, 2]) is before


def test_what_is_free_is_given_in_the_epoch_of_the_target():
    after = step(member(assigned=[1]), target=[1, 2, 3])
    assert seen(after) == (STABLE, 9, 5, {1: 1, 2: 9, 3: 9}, {})


def test_what_others_have_is_waited_for_and_the_rest_is_given():
    after = step(member(assigned=[1]), target=[1, 2, 3], taken=[2])
    assert seen(after) == (UNRELEASED, 9, 5, {1: 1, 3: 9}, {})
    again = step(after, target=[1, 2, 3], taken=[2])
    assert again is after, "the epoch before must not be forgotten"
    assert seen(step(after, target=[1, 2, 3])) == (STABLE, 9, 9, {1: 1, 2: 9, 3: 9}, {})


@pytest.mark.parametrize("reported", [None, frozenset({1, 2}), frozenset({2})])
def test_what_is_not_in_the_target_is_given_up_before_anything_new_comes(reported):
    after = step(member(assigned=[1, 2]), target=[1, 3], reported=reported)
    assert seen(after) == (UNREVOKED, 5, 5, {1: 1}, {2: 1})


@pytest.mark.parametrize("reported", [NOTHING, frozenset({1})])
def test_who_has_given_up_already_is_not_asked_to(reported):
    after = step(member(assigned=[1, 2]), target=[1, 3], reported=reported)
    assert seen(after) == (STABLE, 9, 5, {1: 1, 3: 9}, {})


@pytest.mark.parametrize("reported", [None, frozenset({2}), frozenset({1, 2})])
def test_a_member_that_still_has_what_it_must_give_up_or_does_not_say_is_waited_for(reported):
    before = member(UNREVOKED, assigned=[1], revoking=[2])
    assert step(before, target=[1, 3], reported=reported) is before


def test_a_member_that_has_given_up_goes_on_to_its_target():
    after = step(member(UNREVOKED, assigned=[1], revoking=[2]), target=[1, 3], reported=frozenset({1}))
    assert seen(after) == (STABLE, 9, 5, {1: 1, 3: 9}, {})


def test_a_member_that_has_given_up_and_must_give_up_more_enters_the_next_epoch_only():
    before = member(UNREVOKED, assigned=[1, 4], revoking=[2])
    after = step(before, target=[1, 3], reported=frozenset({1, 4}))
    assert seen(after) == (UNREVOKED, 6, 5, {1: 1}, {4: 1})


def test_a_member_in_an_older_epoch_with_nothing_to_change_enters_the_new_one():
    assert seen(step(member(assigned=[1]), target=[1])) == (STABLE, 9, 5, {1: 1}, {})


@pytest.mark.parametrize("reported", [None, frozenset({1})])
def test_a_member_in_a_state_that_is_not_known_must_give_up_all(reported):
    assert code_of(step, member(UNKNOWN, assigned=[1]), [1], (), reported) == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_in_a_state_that_is_not_known_goes_on_once_it_has_nothing():
    after = step(member(UNKNOWN, assigned=[1]), target=[2], reported=NOTHING)
    assert seen(after) == (STABLE, 9, 5, {2: 9}, {})


def test_a_member_with_other_fields_keeps_the_rest_and_takes_no_field_that_there_is_not():
    before = member(assigned=[1])
    assert changed(before, epoch=6) == EpochMember("m", epoch=6, previous_epoch=3, assigned={1: 1})
    assert before.epoch == 5
    with pytest.raises(TypeError, match="has no field epochs"):
        changed(before, epochs=6)
    emptied = before.without_assignment()
    assert seen(emptied) == (STABLE, -1, -1, {}, {})
