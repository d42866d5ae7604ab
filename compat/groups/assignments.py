"""Owners of partitions, read from responses: for differences only in the partitions of equivalent members.

The rule: a partition without an owner or with two owners, and a member with more or fewer partitions than any at Kafka,
are not such differences.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from compat.kit.known import Answers, Difference

Slot = tuple[str, int]
"""A topic, or a part of a topology with the kind of the task, and a number of a partition."""
Given = Mapping[str, frozenset[Slot]]
"""Slots by member."""
UNKNOWN_MEMBER = 25
TASKS = ("ActiveTasks", "StandbyTasks", "WarmupTasks")
_NAMES = re.compile(r"\b(anna|bert|carl)\b")


def has_its_form(path: str, value: Any) -> bool:
    """Return whether a value can stand at a path in an assignment."""
    name = path.rpartition("/")[2]
    if name in ("TopicId", "TopicName"):
        return isinstance(value, str)
    if name.endswith("Assignment"):
        return value is None or (isinstance(value, dict) and isinstance(value.get("TopicPartitions"), list))
    if name == "TopicPartitions":
        return isinstance(value, list)
    if name == "Partitions":
        return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)
    return (type(value) is int and value >= 0) or (isinstance(value, str) and bool(slots_of(value)))


def _have_their_form(difference: Difference) -> bool:
    return has_its_form(difference.path, difference.theirs) and has_its_form(difference.path, difference.ours)


def other_members(difference: Difference) -> bool:
    """Return whether assignments are equivalent: in a description, in heartbeats of settled members, or at the end."""
    if not _have_their_form(difference):
        return False
    theirs, ours = (told(answer) for answer in difference.whole)
    if theirs or ours:
        return theirs.keys() == ours.keys() and all(_is_on_its_way(kind, theirs, ours) for kind in ours)
    now = (
        held(difference.answers[0], difference.step).keys()
        | held(difference.answers[1], difference.step).keys()
    )
    pairs = (
        (held(difference.answers[0], step), held(difference.answers[1], step)) for step in _from(difference)
    )
    return bool(now) and (
        any(alike(*pair) and pair[0].keys() >= now for pair in pairs)
        or _is_as_described(difference)
        or _takes_up(
            held(difference.answers[0], difference.step), held(difference.answers[1], difference.step)
        )
    )


def shared_at_once(difference: Difference) -> bool:
    """At Kafka a share group's member has no partitions yet, with us its later assignment; finally both are equal."""
    wide = frozenset().union(*(_all_of(held(difference.answers[0], step)) for step in difference.answers[0]))
    return (
        difference.theirs == []
        and _have_their_form(difference)
        and bool(slots_of({"TopicPartitions": difference.ours}))
        and _all_of(held(difference.answers[1], difference.step)) <= wide
        and _are_shared_alike(difference)
    )


def shared_by_others(difference: Difference) -> bool:
    """Members share the same partitions in equal numbers; both descriptions may repeat the heartbeats' assignments."""
    described = [next(iter(told(answer).values()), None) for answer in difference.whole]
    is_old = all(
        assigned is not None and _is_no_news(assigned, answers, difference.step)
        for assigned, answers in zip(described, difference.answers, strict=True)
    )
    return other_members(difference) or (
        is_old and _have_their_form(difference) and _are_shared_alike(difference)
    )


def _are_shared_alike(difference: Difference) -> bool:
    """Return whether the assignments of a share group are equivalent at the end, or at some step from this one on."""
    theirs, ours = (told(answers.get("at last: ShareGroupDescribe")) for answers in difference.answers)
    if theirs or ours:
        return theirs.keys() == ours.keys() and all(alike(theirs[kind], ours[kind]) for kind in ours)
    pairs = (
        (held(difference.answers[0], step), held(difference.answers[1], step)) for step in _from(difference)
    )
    return any(
        alike(*pair) and pair[1].keys() >= held(difference.answers[1], difference.step).keys()
        for pair in pairs
    )


def _is_no_news(assigned: Given, answers: Answers, step: str) -> bool:
    """Return whether each described member has got exactly the described assignment."""
    before = held(answers, step)
    named = {name[0]: slots for member, slots in assigned.items() if (name := _NAMES.search(member))}
    return bool(named) and all(before.get(who) == slots for who, slots in named.items())


def _all_of(assigned: Given) -> frozenset[Slot]:
    return frozenset().union(*assigned.values())


def _takes_up(theirs: Given, ours: Given) -> bool:
    """Besides their partitions at Kafka, members have those of departed members, evenly, and none twice."""
    freed = _all_of(ours) - _all_of(theirs)
    return bool(freed) and (
        theirs.keys() == ours.keys()
        and not _doubles(ours)
        and all(theirs[who] <= slots for who, slots in ours.items())
        and max(map(len, ours.values())) <= -(-len(_all_of(ours)) // len(ours))
    )


def _is_on_its_way(kind: str, theirs: Mapping[str, Given], ours: Mapping[str, Given]) -> bool:
    """Return whether members have equivalent assignments.

    If there are targets, each member has its partitions at Kafka, or the part of its own target that it has got so far,
    in total as many as at Kafka, or one more, the remainder.
    """
    shall = kind.replace(" Assignment", " TargetAssignment")
    if shall == kind or shall not in ours:
        return alike(theirs[kind], ours[kind])
    return (
        not _doubles(ours[kind])
        and len(_all_of(ours[kind])) - len(_all_of(theirs[kind])) in (0, 1)
        and all(
            slots <= ours[shall].get(member, frozenset()) or slots == theirs[kind].get(member)
            for member, slots in ours[kind].items()
        )
    )


def in_the_end(difference: Difference) -> bool:
    """No member has a partition of another, and at last both sides mean to give out the same, each to as many."""
    theirs, ours = (_targets(_last_description(answers)) for answers in difference.answers)
    return (
        _have_their_form(difference)
        and bool(theirs or ours)
        and alike(theirs, ours)
        and not _doubles(held(difference.answers[1], difference.step))
    )


def _is_as_described(difference: Difference) -> bool:
    """Return whether both sides have equivalent targets, and the member has got its described assignment or target."""
    theirs, ours = (_last_description(answers) for answers in difference.answers)
    if not _targets(ours) or not alike(_targets(theirs), _targets(ours)):
        return False
    who = _who(difference.whole[1], difference.step)
    described = [
        slots
        for members in told(ours).values()
        for member, slots in members.items()
        if _who({"MemberId": member}, "") == who
    ]
    return held(difference.answers[1], difference.step).get(who) in described


def _last_description(answers: Answers) -> Any:
    """The description of the group at last, or of a scenario that does not ask for that, after its request."""
    api = "ConsumerGroupDescribe"
    return answers.get(f"at last: {api}") or answers.get(f"then: {api}")


def _targets(description: Any) -> Given:
    """The targets of the members of the described groups."""
    return {
        member: slots
        for kind, assigned in told(description).items()
        if kind.endswith(" TargetAssignment")
        for member, slots in assigned.items()
    }


def _doubles(assigned: Given) -> set[Slot]:
    """Return the partitions with more than one owner."""
    return {slot for slot, count in _owners(assigned).items() if count > 1}


def _from(difference: Difference) -> list[str]:
    """The steps of a scenario from that of a difference on."""
    steps = list(difference.answers[0])
    return steps[steps.index(difference.step) :]


def alike(theirs: Given, ours: Given) -> bool:
    """Return whether two assignments of the same partitions differ at most in the owners."""
    return (
        theirs.keys() == ours.keys()
        and sorted(map(len, theirs.values())) == sorted(map(len, ours.values()))
        and _owners(theirs) == _owners(ours)
    )


def _owners(assigned: Given) -> Counter[Slot]:
    """Number of owners of each partition."""
    return Counter(slot for slots in assigned.values() for slot in slots)


def told(answer: Any) -> dict[str, Given]:
    """Return the members' assignments and target assignments in a description of groups."""
    assigned: dict[str, Given] = {}
    for group in answer.get("Groups", ()) if isinstance(answer, dict) else ():
        for kind in ("Assignment", "TargetAssignment", "MemberAssignment"):
            if any(kind in member for member in group.get("Members", ())):
                assigned[f"{group['GroupId']} {kind}"] = {
                    member["MemberId"]: slots_of(member[kind]) for member in group["Members"]
                }
    return assigned


def held(answers: Answers, last: str) -> Given:
    """Return the members' assignments from heartbeats, up to a response of a scenario."""
    slots: dict[str, frozenset[Slot]] = {}
    for label, answer in answers.items():
        if isinstance(answer, dict) and answer.get("ErrorCode") == UNKNOWN_MEMBER:
            slots.pop(_who(answer, label), None)
        elif isinstance(answer, dict) and not answer.get("ErrorCode"):
            who = _who(answer, label)
            if answer.get("MemberEpoch", 0) < 0:
                slots.pop(who, None)
            elif answer.get("ActiveTasks") is not None:
                slots[who] = slots_of({kind: answer[kind] for kind in TASKS})
            elif answer.get("Assignment") is not None and "Members" not in answer:
                slots[who] = slots_of(answer["Assignment"])
        if label == last:
            break
    return slots


def _who(answer: Any, label: str) -> str:
    """The member that is answered: by the name in its id or in the label, or by an id that the broker has given it."""
    name = _NAMES.search(f"{answer.get('MemberId')} {label}")
    return name[0] if name else answer.get("MemberId") or label


def slots_of(assignment: Any) -> frozenset[Slot]:
    """Return the partitions in an assignment: of a heartbeat, of a description, or the bytes of a classic member."""
    if isinstance(assignment, str):
        try:
            return frozenset(_of_bytes(assignment.encode("latin-1")))
        except struct.error as error:
            raise ValueError(f"no assignment: {assignment!r}") from error
    topics = [
        (str(topic["TopicId"]), topic["Partitions"])
        for topic in (assignment or {}).get("TopicPartitions") or ()
    ]
    tasks = [
        (f"{kind} {topic['SubtopologyId']}", topic["Partitions"])
        for kind in TASKS
        for topic in (assignment or {}).get(kind) or ()
    ]
    return frozenset((name, number) for name, numbers in (*topics, *tasks) for number in numbers)


def _of_bytes(data: bytes) -> Iterator[Slot]:
    """Yield the partitions that a leader assigns to a member of the classic protocol."""
    if not data:
        return
    _, topics = struct.unpack_from(">hi", data)
    position = 6
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, position)
        name = data[position + 2 : position + 2 + size].decode()
        position += 2 + size
        (count,) = struct.unpack_from(">i", data, position)
        numbers = struct.unpack_from(f">{count}i", data, position + 4)
        position += 4 + 4 * count
        yield from ((f"id of {name}", number) for number in numbers)
