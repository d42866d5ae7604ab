"""Who has which partitions, read from answers: for differences that are only about who of those that are alike has which.

The rule: a partition that nobody has, one that two have, and a member that has more or fewer than any at Kafka are no such
difference.
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
"""What each member has."""
TASKS = ("ActiveTasks", "StandbyTasks", "WarmupTasks")
_NAMES = re.compile(r"\b(anna|bert|carl)\b")


def other_members(one: Difference) -> bool:
    """The same number of members have as many partitions each, and each partition has as many members, as at Kafka."""
    pairs = list(_pairs(one))
    return bool(pairs) and all(alike(*pair) for pair in pairs)


def alike(theirs: Given, ours: Given) -> bool:
    """Whether two ways to give out the same partitions differ at most in who has which."""
    return (
        theirs.keys() == ours.keys()
        and sorted(map(len, theirs.values())) == sorted(map(len, ours.values()))
        and _owners(theirs) == _owners(ours)
    )


def _owners(given: Given) -> Counter[Slot]:
    """How many have each partition."""
    return Counter(slot for slots in given.values() for slot in slots)


def _pairs(one: Difference) -> Iterator[tuple[Given, Given]]:
    """Yield what both sides have given, everywhere that the answers of a difference tell."""
    whole = [told(answer) for answer in one.whole]
    if any(whole):
        for kind in whole[0].keys() | whole[1].keys():
            yield whole[0].get(kind, {}), whole[1].get(kind, {})
    else:
        yield held(one.answers[0], one.step), held(one.answers[1], one.step)


def told(answer: Any) -> dict[str, Given]:
    """Return what a description of groups says that the members have, and what they shall have."""
    found: dict[str, Given] = {}
    for group in answer.get("Groups", ()) if isinstance(answer, dict) else ():
        for kind in ("Assignment", "TargetAssignment", "MemberAssignment"):
            if any(kind in member for member in group.get("Members", ())):
                found[f"{group['GroupId']} {kind}"] = {
                    member["MemberId"]: slots_of(member[kind]) for member in group["Members"]
                }
    return found


def held(answers: Answers, last: str) -> Given:
    """Return what members have been told to have, up to an answer of a scenario."""
    found: dict[str, frozenset[Slot]] = {}
    for label, answer in answers.items():
        if isinstance(answer, dict) and not answer.get("ErrorCode"):
            name = _NAMES.search(f"{answer.get('MemberId')} {label}")
            who = name[0] if name else label
            if answer.get("MemberEpoch", 0) < 0:
                found.pop(who, None)
            elif answer.get("ActiveTasks") is not None:
                found[who] = slots_of({kind: answer[kind] for kind in TASKS})
            elif answer.get("Assignment") is not None and "Members" not in answer:
                found[who] = slots_of(answer["Assignment"])
        if label == last:
            break
    return found


def slots_of(assignment: Any) -> frozenset[Slot]:
    """Return the partitions in an assignment: of a heartbeat, of a description, or the bytes of a classic member."""
    if isinstance(assignment, str):
        return frozenset(_of_bytes(assignment.encode("latin-1")))
    topics = [
        (str(one["TopicId"]), one["Partitions"]) for one in (assignment or {}).get("TopicPartitions") or ()
    ]
    tasks = [
        (f"{kind} {one['SubtopologyId']}", one["Partitions"])
        for kind in TASKS
        for one in (assignment or {}).get(kind) or ()
    ]
    return frozenset((name, number) for name, numbers in (*topics, *tasks) for number in numbers)


def _of_bytes(data: bytes) -> Iterator[Slot]:
    """Yield what a leader gives a member of the classic protocol."""
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
