"""Differences between the coordinators of Apache Kafka and of Barnabas that are known, each with its reason."""

from __future__ import annotations

from compat.groups.assignments import (
    TASKS,
    held,
    in_the_end,
    other_members,
    shared_at_once,
    shared_by_others,
    slots_of,
    told,
)
from compat.groups.classic import TOPIC
from compat.kit.known import Difference, KnownDifference
from compat.kit.predicates import SILENT, all_of, pair, pairs, words_of_an_error

INCONSISTENT, UNKNOWN_MEMBER, REBALANCE, INVALID_REQUEST, NOT_FOUND, UNRELEASED, INVALID_TOPOLOGY = (
    23, 25, 27, 42, 69, 111, 130,
)  # fmt: skip
SUPERSEDED = (
    "who asks again while a request of its own waits gets an answer to both; Kafka never answers the first"
)
AT_ONCE = "Kafka finds out beside the heartbeat which topics match a pattern, Barnabas within it"
BEGUN = "the state of a shared topic is begun before the answer; Kafka has the member come again"
BEFORE_4_4 = "only beside releases before Kafka 4.4"
NOBODY = "the assignment of nobody has the group's epoch, as in Kafka 4.4; in 4.3 it is that of the last one to somebody"
ODD_ONE = "which of members that are alike gets the partition that is left over, or shares which"
STUMBLES = "Kafka stumbles over this; Barnabas says what is wrong"
GIVES_WAY = (
    "an empty group of the new protocol gives way to one who joins; in Kafka also to one who is refused"
)
FENCED = "a static member that was fenced may come back at once with the id it had"
ASSIGNMENTS = (
    "/Assignment", ".*/Assignment/TopicPartitions(/.*)?", ".*/TargetAssignment/TopicPartitions(/.*)?",
)  # fmt: skip
"""Paths of assignments: of the requesting member, and of described members."""
CARLS_ENDPOINT = [
    {
        "UserEndpoint": {"Host": "h", "Port": 7},
        "ActivePartitions": [{"Topic": "groups-of-members", "Partitions": [0, 1, 2]}],
        "StandbyPartitions": [],
    }
]
EPOCHS_APART_MAX = 2
"""Largest number of additional assignments with us after a request that Kafka refuses."""


def answered_late(code: int) -> object:
    """Kafka never responds; we refuse with this code, and return no values."""

    def accepts(difference: Difference) -> bool:
        if difference.step.endswith(": must wait"):
            return difference.theirs is True and difference.ours is False
        theirs, ours = difference.whole
        nothing = {"ThrottleTimeMs": 0, "ProtocolType": None, "ProtocolName": None, "Leader": "", "Members": [],
                   "SkipAssignment": False, "GenerationId": -1, "Assignment": ""}  # fmt: skip
        values = {name: value for name, value in ours.items() if name not in ("ErrorCode", "MemberId")}
        return bool(
            theirs == SILENT
            and ours["ErrorCode"] == code
            and ours.get("MemberId", "bert").startswith("bert")
            and values == {name: nothing[name] for name in values}
        )

    return accepts


def another_leads(difference: Difference) -> bool:
    """Another member leads; on each side only the leader gets the list of members, and is one of them."""
    for answer in difference.whole:
        ids = [member["MemberId"] for member in answer["Members"]]
        leads = answer["Leader"] == answer["MemberId"]
        if leads != bool(ids) or (leads and answer["Leader"] not in ids) or answer["ErrorCode"]:
            return False
        if "<id " not in answer["Leader"]:
            return False
    theirs, ours = ({member["MemberId"] for member in answer["Members"]} for answer in difference.whole)
    return difference.whole[0]["Leader"] != difference.whole[1]["Leader"] and (
        not theirs or not ours or theirs == ours
    )


def gives_way(difference: Difference) -> bool:
    """Kafka has converted the group to a classic one, and we have not."""
    listed = {"GroupId": "", "ProtocolType": "consumer", "GroupState": "Empty", "GroupType": "consumer"}
    if difference.path == "":
        (ours,) = difference.ours
        return bool(difference.theirs == [] and ours == listed | {"GroupId": ours["GroupId"]})
    if difference.label.endswith((": anna after that", ": anna leaves")):
        return (difference.path, difference.theirs, difference.ours) == (
            "/ErrorCode",
            NOT_FOUND,
            UNKNOWN_MEMBER,
        )
    accepted = {
        "ErrorCode": ((0, NOT_FOUND) if difference.label.endswith(" as classic") else (NOT_FOUND, 0),),
        "ErrorMessage": (("words", None), (None, "words")),
        "GroupState": (("", "Empty"), ("Empty", "Dead")),
        "GroupEpoch": ((0, 3),),
        "AssignmentEpoch": ((0, 3),),
        "AssignorName": (("", "uniform"),),
        "ProtocolType": (("", "consumer"),),
        "GroupType": (("classic", "consumer"),),
    }
    return (difference.theirs, difference.ours) in accepted.get(difference.path.rpartition("/")[2], ())


def not_yet(difference: Difference) -> bool:
    """Kafka returns a member's target, and we no assignment yet; with us no partition has two owners."""
    assigned = [slots for members in told(difference.whole[1]).values() for slots in members.values()]
    is_text = isinstance(difference.theirs, str) and isinstance(difference.ours, str)
    return (
        is_text
        and bool(slots_of(difference.theirs))
        and not slots_of(difference.ours)
        and _are_apart(assigned)
    )


def _are_apart(assigned: list[frozenset[tuple[str, int]]]) -> bool:
    return sum(map(len, assigned)) == len(frozenset().union(*assigned))


def next_to(difference: Difference) -> bool:
    """Two epochs that differ by one assignment."""
    epochs = (difference.theirs, difference.ours)
    return (
        all(type(epoch) is int and epoch >= 0 for epoch in epochs)
        and abs(difference.theirs - difference.ours) == 1
    )


def of_nobody(difference: Difference) -> bool:
    """The group has no member; its epoch is ours, and Kafka's is that of the last assignment to a member."""
    groups = [answer["Groups"][int(difference.path.split("/")[2])] for answer in difference.whole]
    return (
        all(group["Members"] == [] and group["GroupEpoch"] == difference.ours for group in groups)
        and difference.theirs == difference.ours - 1
    )


def begins_an_epoch(difference: Difference) -> bool:
    """The group is an epoch further than Kafka's, or members move to its other assignment."""
    name, theirs, ours = difference.path.rpartition("/")[2], difference.theirs, difference.ours
    if name.endswith("Epoch"):
        return bool(abs(ours - theirs) == 1)
    if name == "GroupState":
        return {theirs, ours} <= {"Stable", "Reconciling", "Assigning"}
    if name == "Assignment":
        return (theirs, ours) in ((None, {"TopicPartitions": []}), ({"TopicPartitions": []}, None))
    if "/Partitions/" in difference.path:
        return {theirs, ours} <= {0, 1, 2}
    return name in ("Partitions", "TopicPartitions") and isinstance(theirs, list) and isinstance(ours, list)


def is_told_the_endpoint(difference: Difference) -> bool:
    """The member gets its own endpoint."""
    if difference.path == "/EndpointInformationEpoch":
        return (difference.theirs, difference.ours) == (0, 1)
    told = [entry["UserEndpoint"] for entry in difference.ours or ()]
    return difference.theirs is None and told == [{"Host": "h", "Port": 7}]


def comes_back(difference: Difference) -> bool:
    """Kafka fences a static member that returns; we assign its old partitions again, which no other member has."""
    if difference.path == "" and difference.theirs == "nothing":
        expected = {"ErrorCode": 0, "ErrorMessage": None, "ThrottleTimeMs": 0, "MemberId": "id-of-anna", "MemberEpoch": 3,
                "HeartbeatIntervalMs": 5000, "Assignment": None}  # fmt: skip
        return bool(difference.ours == expected)
    if difference.path == "/Assignment":
        had = held(difference.answers[0], difference.step)
        others = [slots for who, slots in had.items() if who != "anna"]
        return (
            difference.theirs is None
            and slots_of(difference.ours) == had["anna"]
            and _are_apart([had["anna"], *others])
        )
    accepted = {
        "/ErrorCode": (UNRELEASED, 0), "/ErrorMessage": ("words", None), "/MemberId": (None, "id-of-anna"),
        "/MemberEpoch": (0, 3), "/HeartbeatIntervalMs": (0, 5000),
    }  # fmt: skip
    return (difference.theirs, difference.ours) == accepted.get(difference.path, ("anna", "carl"))


def keeps_what_it_had(difference: Difference) -> bool:
    """Kafka takes everything from a member that becomes static; we leave it its target, which no other member has."""
    theirs, ours = (told(answers["then: ConsumerGroupDescribe"]) for answers in difference.answers)
    group = next(iter(ours)).partition(" ")[0]
    shall, has = ours[f"{group} TargetAssignment"], ours[f"{group} Assignment"]
    return (
        difference.theirs == []
        and slots_of({"TopicPartitions": difference.ours}) == shall["id-of-anna"] != frozenset()
        and theirs[f"{group} TargetAssignment"] == shall
        and _are_apart(list(has.values()))
    )


def carl_is_there(difference: Difference) -> bool:
    """Carl, static or with offsets, is a member beside those of Kafka, which are as there; each task is for one of them."""
    theirs, ours = (
        {member["MemberId"]: member for member in members} for members in (difference.theirs, difference.ours)
    )
    changing = ("MemberEpoch", "Assignment", "TargetAssignment")
    targets = [slots_of(member["TargetAssignment"]) for member in ours.values()]
    return (
        ours.keys() - theirs.keys() == {"id-of-carl"}
        and (ours["id-of-carl"]["InstanceId"] == "i-carl" or ours["id-of-carl"]["TaskOffsets"] != [])
        and all(
            value == ours[member_id][name]
            for member_id, member in theirs.items()
            for name, value in member.items()
            if name not in changing
        )
        and all(_are_apart(list(members.values())) for members in told(difference.whole[1]).values())
        and frozenset().union(*targets) == {("ActiveTasks 0", number) for number in range(3)}
    )


def served(difference: Difference) -> bool:
    """Kafka refuses; we serve it, or have no such member, and the group is a step or two ahead. No task has two owners."""
    asked = [answers["asked"]["ErrorCode"] for answers in difference.answers]
    if asked[0] != INVALID_REQUEST or asked[1] not in (0, UNKNOWN_MEMBER):
        return False
    name = difference.path.rpartition("/")[2]
    if difference.step.endswith(" listed") and name == "":
        (ours,) = difference.ours
        listed = {"ProtocolType": "streams", "GroupState": "Stable", "GroupType": "streams"}
        return bool(difference.theirs == [] and ours == listed | {"GroupId": ours["GroupId"]})
    if name == "Topology":
        read = [part["SourceTopics"] for part in difference.ours["Subtopologies"]]
        return difference.theirs is None and difference.ours["Epoch"] == 1 and read == [[TOPIC]]
    if name == "Members":
        return carl_is_there(difference)
    if name in ("TaskOffsets", "TaskEndOffsets"):
        return difference.theirs == [] and {part["Offset"] for part in difference.ours} <= {5, 6}
    if name in TASKS:
        return isinstance(difference.ours, list) and _are_apart(
            list(held(difference.answers[1], difference.step).values())
        )
    if name == "":
        expected = {"ThrottleTimeMs": 0, "ErrorCode": 0, "ErrorMessage": None, "HeartbeatIntervalMs": 5000}
        return (
            difference.theirs == "nothing"
            and expected.items() <= difference.ours.items()
            and difference.ours["MemberEpoch"] in (2, 3, 4)
        )
    if name.endswith("Epoch"):
        ahead = 0 < difference.theirs < difference.ours <= difference.theirs + EPOCHS_APART_MAX
        return ahead or (difference.theirs, difference.ours) in ((0, 2), (0, 3), (0, 4), (0, -1))
    return (difference.theirs, difference.ours) in {
        "ErrorCode": (
            (INVALID_REQUEST, 0),
            (INVALID_REQUEST, UNKNOWN_MEMBER),
            (UNKNOWN_MEMBER, 0),
            (NOT_FOUND, 0),
        ),
        "ErrorMessage": (("words", None),),
        "MemberId": (("", "id-of-carl"), ("", "id-of-anna")),
        "HeartbeatIntervalMs": ((0, 5000),),
        "GroupState": (("Stable", "Reconciling"), ("Empty", "Stable"), ("", "Stable")),
        "ClientId": (("anna", "carl"),),
    }.get(name, ())


def nothing_to_add(difference: Difference) -> bool:
    """Kafka is silent; we answer without an error, and with no transaction."""
    theirs, ours = difference.whole
    values = {name: value for name, value in ours.items() if name not in ("ThrottleTimeMs", "ErrorCode")}
    is_accepted = (ours["ThrottleTimeMs"], ours["ErrorCode"]) == (0, 0)
    is_empty = "connection" not in ours and all(value == [] for value in values.values())
    return bool(theirs == SILENT and is_accepted and is_empty)


KNOWN: tuple[KnownDifference, ...] = (
    KnownDifference(
        ("absent: JoinGroup .*: (then|at last) described", "deleted: JoinGroup .*: (then|at last) described"),
        ".*/GroupState",
        "a group that nobody could join is not there; Kafka keeps it in memory, empty",
        accepts=pair("Empty", "Dead"),
    ),
    KnownDifference(
        ("pending: JoinGroup anna by.*: asked", "pending: JoinGroup bert's instance, other id.*: asked"),
        ("/ErrorCode", "/MemberId"),
        "Kafka stumbles over an instance id beside an id that was given to a dynamic member",
        accepts=pairs((-1, UNKNOWN_MEMBER), ("", "anna-<id 1>")),
    ),
    KnownDifference(
        "preparing: JoinGroup bert.*: bert joins.*", ".*", SUPERSEDED, accepts=answered_late(UNKNOWN_MEMBER)
    ),
    KnownDifference(
        "completing: SyncGroup bert.*: bert syncs.*", ".*", SUPERSEDED, accepts=answered_late(REBALANCE)
    ),
    KnownDifference(
        "completing: LeaveGroup .*: bert syncs.*",
        ".*",
        "who leaves while it waits gets an answer; Kafka gives none",
        accepts=answered_late(UNKNOWN_MEMBER),
    ),
    KnownDifference(
        "preparing: JoinGroup .*: (bert joins.*|asked.*)",
        ("/Leader", "/Members.*"),
        "whoever leads when the leader has left: in Kafka it is by chance",
        accepts=another_leads,
    ),
    KnownDifference(
        (
            "consumer empty: JoinGroup .*: (then.*|anna after that|anna leaves|at last listed)",
            "streams empty: JoinGroup .*: (anna after that|anna leaves)",
        ),
        ".*",
        GIVES_WAY,
        accepts=gives_way,
    ),
    # --- offsets
    KnownDifference(
        ".*: OffsetFetch no member with epoch.*: asked",
        ".*/ErrorCode",
        f"an epoch without a member: {STUMBLES}",
        accepts=pair(-1, UNKNOWN_MEMBER),
    ),
    # --- members with epochs
    KnownDifference(
        "consumer.*: JoinGroup new, bad subscription.*: asked",
        "/ErrorCode",
        f"a subscription that cannot be read: {STUMBLES}",
        accepts=pair(-1, INCONSISTENT),
        by_chance=BEFORE_4_4,
    ),
    KnownDifference(
        "consumer.*: .*: at last listed",
        ".*/MemberAssignment",
        "when a group becomes classic again its members are described with what they have, not with what they shall have",
        accepts=not_yet,
    ),
    KnownDifference(
        ".*: ConsumerGroupHeartbeat .* (a )?pattern.*",
        ".*/(Member|Group|Assignment)Epoch",
        f"epochs: {AT_ONCE}",
        accepts=next_to,
    ),
    KnownDifference(
        ".*: ConsumerGroupHeartbeat .* (a )?pattern.*: then.*",
        ".*/GroupState",
        f"states: {AT_ONCE}",
        accepts=pairs(("Assigning", "Reconciling"), ("Assigning", "Stable")),
    ),
    KnownDifference(
        ".*: ConsumerGroupHeartbeat .* (a )?pattern.*",
        ASSIGNMENTS,
        f"assignments: {AT_ONCE}",
        accepts=in_the_end,
    ),
    KnownDifference(
        "consumer static: ConsumerGroupHeartbeat anna joins again by her instance.*",
        ("", "/.*", "/Assignment", ".*/ClientId"),
        FENCED,
        accepts=comes_back,
    ),
    KnownDifference(
        (
            "consumer moving: ConsumerGroupHeartbeat anna joins again by her instance.*",
            "consumer moving: ConsumerGroupHeartbeat anna joins again by bert's instance.*",
        ),
        ".*/Assignment/TopicPartitions",
        "a member that becomes static keeps what it had",
        accepts=keeps_what_it_had,
    ),
    KnownDifference(
        (
            "share (alone|empty): .*: ShareGroupDescribe",
            "consumer (alone|empty): .*: ConsumerGroupDescribe",
            "streams (alone|empty): .*: StreamsGroupDescribe",
            ".*: LeaveGroup both.*: ConsumerGroupDescribe",
        ),
        ".*/AssignmentEpoch",
        NOBODY,
        accepts=of_nobody,
        by_chance=BEFORE_4_4,
    ),
    KnownDifference(
        ("share.*: anna joins", ".*: ShareGroupHeartbeat .*: asked"),
        "/Assignment/TopicPartitions",
        BEGUN,
        accepts=shared_at_once,
    ),
    KnownDifference(
        ("share alone: ShareGroupHeartbeat .*", "share stable: .*"),
        ("/Assignment", ".*/Assignment/TopicPartitions/0/Partitions(/.*)?"),
        f"members of share groups: {ODD_ONE}",
        accepts=shared_by_others,
    ),
    KnownDifference(
        ".*: (Share|Streams)GroupHeartbeat .*: asked",
        "/ErrorMessage",
        "words for people where Kafka has none",
        accepts=all_of(pair(None, "words"), words_of_an_error),
    ),
    KnownDifference(
        ".*: StreamsGroupHeartbeat .* a part twice.*: asked",
        "/ErrorCode",
        f"a part of a topology twice: {STUMBLES}",
        accepts=pair(-1, INVALID_TOPOLOGY),
    ),
    KnownDifference(
        ".*: StreamsGroupHeartbeat carl joins, bad copartition.*: asked",
        "/ErrorCode",
        f"a copartition group of a source topic that is not there: {STUMBLES}",
        accepts=pair(-1, INVALID_REQUEST),
    ),
    KnownDifference(
        ".*: StreamsGroupHeartbeat .* a tag twice.*: asked",
        "/ErrorCode",
        f"a tag twice: {STUMBLES}",
        accepts=pair(-1, INVALID_REQUEST),
    ),
    KnownDifference(
        (
            ".*: StreamsGroupHeartbeat carl joins by an instance.*",
            ".*: StreamsGroupHeartbeat anna, an instance.*",
            ".*: StreamsGroupHeartbeat anna, (task offsets|warm-up tasks).*",
            ".*: StreamsGroupHeartbeat carl joins with task offsets.*",
        ),
        ".*",
        "static members and offsets of tasks are served as by Kafka 4.4; 4.3 refuses what belongs to them",
        accepts=served,
        by_chance=BEFORE_4_4,
    ),
    KnownDifference(
        "absent: StreamsGroupHeartbeat carl joins with an endpoint.*",
        ("/EndpointInformationEpoch", "/PartitionsByUserEndpoint"),
        "the first member of a new group has an endpoint: Kafka loses count of that with the group, not kept yet",
        accepts=pairs((0, 1), (None, CARLS_ENDPOINT)),
    ),
    KnownDifference(
        "absent: StreamsGroupHeartbeat carl joins with task offsets.*: StreamsGroupDescribe",
        "/Groups/0/Members/0/TaskOffsets",
        "the first member of a new group reports offsets: Kafka loses them with the group, not kept yet",
        accepts=pair([], [{"SubtopologyId": "0", "Partition": 0, "Offset": 5}]),
    ),
    KnownDifference(
        ".*: ConsumerGroupHeartbeat (anna, an assignor|carl joins, assignor range) .*",
        ".*",
        "another assignor begins an epoch, as in Kafka 4.4; range goes by the ids of members, which are random",
        accepts=begins_an_epoch,
        by_chance="from Kafka 4.4 on the ids may have the same order on both sides",
    ),
    KnownDifference(
        "streams (alone|stable): StreamsGroupHeartbeat anna, an endpoint .*",
        ("/EndpointInformationEpoch", "/PartitionsByUserEndpoint"),
        "another endpoint is told to all members, as by Kafka 4.4",
        accepts=is_told_the_endpoint,
        by_chance=BEFORE_4_4,
    ),
    KnownDifference(
        (
            "absent: StreamsGroupHeartbeat carl joins, changelog -.: at last: StreamsGroupDescribe",
            "absent: StreamsGroupHeartbeat carl joins, repartition -.: at last: StreamsGroupDescribe",
        ),
        (".*/StateChangelogTopics/0/Partitions", ".*/RepartitionSourceTopics/0/Partitions"),
        "Kafka tells how many partitions internal topics have that were there already once the group has another record",
        accepts=pair(0, 3),
        by_chance="both versions are tried at the same time, and each of them may be the one that makes the topics",
    ),
    # --- transactions
    KnownDifference(
        (
            ".*: Produce .*: asked.*",
            "transaction of version [12]: sequences .*: sequence .*",
            "filters: producers of unknown partition",
        ),
        (".*/PartitionResponses/0/ErrorMessage", "/Topics/0/Partitions/[01]/ErrorMessage"),
        "words for people, of a partition, where Kafka has none",
        accepts=all_of(pair(None, "words"), words_of_an_error),
    ),
    KnownDifference(
        "filters: add to no transaction",
        ".*",
        "Kafka never answers a request about no transaction",
        accepts=nothing_to_add,
    ),
    KnownDifference(
        (
            *(f"consumer full: {api} .*" for api in ("ConsumerGroupHeartbeat", "JoinGroup", "LeaveGroup")),
            "preparing: ConsumerGroupHeartbeat .*",
        ),
        ASSIGNMENTS,
        ODD_ONE,
        accepts=other_members,
    ),
    KnownDifference(
        "stable: ConsumerGroupHeartbeat carl joins, other topic.*",
        ".*/TargetAssignment/TopicPartitions/0/Partitions",
        f"members of the classic protocol: {ODD_ONE}",
        accepts=other_members,
        by_chance="the ids of classic members are random, and members are taken in their order",
    ),
)
