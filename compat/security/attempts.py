"""Two users under load, at random, against a model of the ACLs: python -m compat.security.attempts [--count 10000].

Each user sends requests for every operation, over several connections at the same time; the ACLs change after some hundreds
of requests. Both must get exactly what an independent model allows (tests/models/acls.py). Meanwhile stock clients of both
users write and read separate topics, which must not be affected. The exit code is 1 if a decision differs.
"""

from __future__ import annotations

import argparse
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import Any

from confluent_kafka import Consumer, Producer

from compat.kafka import KafkaError
from compat.kit.records import record_batch
from compat.kit.sides import PASSWORD, Side, StartError
from compat.kit.wire import Values, WireError
from compat.security.acl_steps import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    acl_filter,
)  # fmt: skip
from compat.security.requests import REQUESTS, Names
from compat.security.sides import ADMIN, USERS, barnabas_alone, kafka_alone
from tests.models.acls import Acl, allows, allows_somewhere

TOPICS, GROUPS, IDS = ("a", "ab", "abc", "b"), ("g", "gh", "h"), ("x", "xy")
HERE, ELSEWHERE = "127.0.0.1", "10.9.9.9"
REFUSALS = frozenset((29, 30, 31, 53, 65))
"""Codes of a refused permission: of topics, groups, the cluster, transactional ids, delegation tokens."""
UNKNOWN_TOPIC = 3
BETWEEN_CHANGES = 250
CONNECTIONS = 4
"""Of each user at the same time."""
SETTLE_S = 20
OWN = "own-"
VALUE = re.compile(rb"by (alice|bob) (\d+);")
May = Callable[..., bool]


@dataclass(frozen=True)
class Attempt:
    """A request, and whether a user with the operations in `may` is not refused."""

    api: str
    version: int
    needs: Callable[[May, Names], bool]
    values: Callable[[Names], Values] | None = None
    refusals: frozenset[int] = REFUSALS

    def request(self, names: Names) -> Values:
        """Return the fields of the request."""
        return (self.values or REQUESTS[self.api])(names)


def _may_delete(may: May, names: Names) -> bool:
    return may(DELETE, CLUSTER, CLUSTER_NAME) or (
        may(DELETE, TOPIC, names.topic) and may(DESCRIBE, TOPIC, names.topic)
    )


def _on_cluster(operation: int) -> Callable[[May, Names], bool]:
    return lambda may, _: may(operation, CLUSTER, CLUSTER_NAME)


def _on_topic(operation: int) -> Callable[[May, Names], bool]:
    return lambda may, names: may(operation, TOPIC, names.topic)


def _on_group(operation: int) -> Callable[[May, Names], bool]:
    return lambda may, names: may(operation, GROUP, names.group)


def _topic_config(names: Names) -> Values:
    change = {"Name": "retention.ms", "ConfigOperation": 0, "Value": "100000000"}
    return {
        "Resources": [{"ResourceType": TOPIC, "ResourceName": names.topic, "Configs": [change]}],
        "ValidateOnly": True,
    }


def _wrong_acl(names: Names) -> Values:
    """Return an invalid ACL: a user with permission to create ACLs gets an error for it."""
    return {"Creations": [{**REQUESTS["CreateAcls"](names)["Creations"][0], "ResourceName": ""}]}


ATTEMPTS = (
    Attempt("Produce", 9, _on_topic(WRITE)),
    Attempt("Fetch", 11, _on_topic(READ)),
    Attempt("ListOffsets", 5, _on_topic(DESCRIBE)),
    Attempt("OffsetForLeaderEpoch", 3,
            lambda may, n: may(DESCRIBE, TOPIC, n.topic) or may(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)),
    Attempt("Metadata", 12, _on_topic(DESCRIBE), lambda n: {"Topics": [{"Name": n.topic}],
                                                            "AllowAutoTopicCreation": False}),
    Attempt("DescribeTopicPartitions", 0, _on_topic(DESCRIBE)),
    Attempt("DescribeProducers", 0, _on_topic(READ)),
    Attempt("DeleteRecords", 2, _on_topic(DELETE)),
    Attempt("DeleteTopics", 5, _may_delete),
    Attempt("CreateTopics", 7, lambda may, n: may(CREATE, CLUSTER, CLUSTER_NAME) or may(CREATE, TOPIC, n.new_topic)),
    Attempt("CreatePartitions", 3, _on_topic(ALTER), lambda n: {"Topics": [{"Name": n.topic, "Count": 1}],
                                                                "TimeoutMs": 5000}),
    Attempt("DescribeConfigs", 4, _on_topic(DESCRIBE_CONFIGS),
            lambda n: {"Resources": [{"ResourceType": TOPIC, "ResourceName": n.topic}]}),
    Attempt("IncrementalAlterConfigs", 1, _on_topic(ALTER_CONFIGS), _topic_config),
    Attempt("OffsetCommit", 8, lambda may, n: may(READ, GROUP, n.group) and may(READ, TOPIC, n.topic)),
    Attempt("OffsetFetch", 7, lambda may, n: may(DESCRIBE, GROUP, n.group) and may(DESCRIBE, TOPIC, n.topic)),
    # Of topics it is spoken only if there is the group.
    Attempt("OffsetDelete", 0, _on_group(DELETE), refusals=frozenset((30,))),
    Attempt("FindCoordinator", 4, _on_group(DESCRIBE)),
    Attempt("JoinGroup", 5, _on_group(READ)),
    Attempt("SyncGroup", 5, _on_group(READ)),
    Attempt("Heartbeat", 4, _on_group(READ)),
    Attempt("LeaveGroup", 4, _on_group(READ)),
    Attempt("DescribeGroups", 5, _on_group(DESCRIBE)),
    Attempt("ConsumerGroupDescribe", 0, _on_group(DESCRIBE)),
    Attempt("DeleteGroups", 2, _on_group(DELETE)),
    Attempt("InitProducerId", 4, lambda may, _: may(IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME) or may(WRITE, TOPIC)),
    Attempt("InitProducerId", 4, lambda may, n: may(WRITE, TRANSACTIONAL_ID, n.transactional_id),
            lambda n: {"TransactionalId": n.transactional_id, "TransactionTimeoutMs": 60_000}),
    Attempt("EndTxn", 3, lambda may, n: may(WRITE, TRANSACTIONAL_ID, n.transactional_id)),
    Attempt("AddPartitionsToTxn", 3,
            lambda may, n: may(WRITE, TRANSACTIONAL_ID, n.transactional_id) and may(WRITE, TOPIC, n.topic)),
    Attempt("AddOffsetsToTxn", 3,
            lambda may, n: may(WRITE, TRANSACTIONAL_ID, n.transactional_id) and may(READ, GROUP, n.group)),
    Attempt("TxnOffsetCommit", 3, lambda may, n: may(WRITE, TRANSACTIONAL_ID, n.transactional_id)
            and may(READ, GROUP, n.group) and may(READ, TOPIC, n.topic)),
    Attempt("DescribeTransactions", 0, lambda may, n: may(DESCRIBE, TRANSACTIONAL_ID, n.transactional_id)),
    Attempt("DescribeAcls", 3, _on_cluster(DESCRIBE)),
    Attempt("CreateAcls", 3, _on_cluster(ALTER), _wrong_acl),
    Attempt("DeleteAcls", 3, _on_cluster(ALTER), lambda _: {"Filters": [acl_filter(name="nowhere")]}),
    Attempt("DescribeClientQuotas", 1, _on_cluster(DESCRIBE_CONFIGS)),
    Attempt("DescribeUserScramCredentials", 0, _on_cluster(DESCRIBE)),
    Attempt("ElectLeaders", 2, _on_cluster(ALTER)),
    Attempt("ListPartitionReassignments", 0, _on_cluster(DESCRIBE)),
)  # fmt: skip


def codes(value: Any) -> Iterator[int]:
    """All error codes in an answer."""
    if isinstance(value, dict):
        yield from (value[name] for name in ("ErrorCode", "PartitionErrorCode") if name in value)
        for item in value.values():
            yield from codes(item)
    elif isinstance(value, list):
        for item in value:
            yield from codes(item)


class Judge:
    """The current ACLs, and the wrong decisions."""

    def __init__(self, side: Side, seed: int) -> None:
        self.side = side
        self.random = Random(seed)
        self.acls: list[Acl] = []
        self.wrong: list[str] = []
        self.refused = 0
        self.allowed = 0
        self.written: set[tuple[str, int]] = set()
        """Records that were accepted: their writers and their numbers."""
        self._lock = threading.Lock()

    def may(self, user: str, operation: int, kind: int, name: str = "") -> bool:
        """Return whether a user may do this; without a name, to anything of this kind."""
        principal, acls = f"User:{user}", [*self.acls, *own_acls()]
        if not name:
            return allows_somewhere(acls, principal, HERE, operation, kind)
        return allows(acls, principal, HERE, operation, kind, name)

    def change_acls(self) -> None:
        """Change the ACLs, and wait until the broker has applied them. Raises WireError."""
        self.acls = [self._random_acl() for _ in range(self.random.randrange(4, 25))]
        creations = [
            {
                "ResourceType": acl.kind, "ResourceName": acl.name, "ResourcePatternType": acl.pattern,
                "Principal": acl.principal, "Host": acl.host, "Operation": acl.operation,
                "PermissionType": acl.permission,
            }
            for acl in (*self.acls, *own_acls())
        ]  # fmt: skip
        with self.side.connect(user=ADMIN) as admin:
            for name in (*TOPICS, *(f"{OWN}{user}" for user in USERS)):
                topic = {"Name": name, "NumPartitions": 1, "ReplicationFactor": 1}
                admin.ask("CreateTopics", 7, {"Topics": [topic], "timeoutMs": 10_000})
            gone = [acl_filter(kind=kind) for kind in (CLUSTER, TRANSACTIONAL_ID)]
            gone += [acl_filter(kind=TOPIC, name=name) for name in (*TOPICS, "*")]
            gone += [acl_filter(kind=GROUP, name=name) for name in (*GROUPS, "*")]
            admin.ask("DeleteAcls", 3, {"Filters": gone})
            results = admin.ask("CreateAcls", 3, {"Creations": creations})["Results"]
            assert not any(result["ErrorCode"] for result in results), results
            expected = {
                (acl.kind, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission)
                for acl in (*self.acls, *own_acls())
            }
            give_up = time.monotonic() + SETTLE_S
            while (current := _known(admin.ask("DescribeAcls", 3, acl_filter()))) != expected:
                if time.monotonic() > give_up:
                    raise WireError(f"the ACLs are {current ^ expected} others")
                time.sleep(0.05)
        time.sleep(0.05 if self.side.name == "Kafka" else 0)

    def _random_acl(self) -> Acl:
        random = self.random
        kind = random.choice((TOPIC, TOPIC, TOPIC, GROUP, GROUP, TRANSACTIONAL_ID, CLUSTER))
        names = {TOPIC: TOPICS, GROUP: GROUPS, TRANSACTIONAL_ID: IDS, CLUSTER: (CLUSTER_NAME,)}[kind]
        users = tuple(f"User:{user}" for user in USERS)
        pattern = LITERAL if kind == CLUSTER else random.choice((LITERAL, PREFIXED))
        permission = random.choice((ALLOW, ALLOW, ALLOW, DENY))
        # What is denied on all topics would be on those of the load.
        has_all = pattern == LITERAL and kind != CLUSTER and permission == ALLOW
        return Acl(
            kind,
            pattern,
            random.choice((*names, *names, "*") if has_all else names),
            random.choice((*users, *users, "User:*")),
            random.choice(("*", "*", HERE, ELSEWHERE)),
            random.choice(_operations(kind)),
            permission,
        )

    def attempts(self, user: str, seed: int, count: int) -> None:
        """Send `count` random requests on a separate connection, and check the decisions. Raises WireError."""
        random = Random(seed)
        with self.side.connect(user=user) as connection:
            for index in range(count):
                attempt = random.choice(ATTEMPTS)
                number = seed * 1000 + index
                topic, group = random.choice(TOPICS), random.choice(GROUPS)
                names = Names(
                    topic=topic, new_topic=topic, group=group, transactional_id=random.choice(IDS),
                    records=record_batch([b"by %s %d;" % (user.encode(), number)]),
                )  # fmt: skip
                answer = connection.ask(attempt.api, attempt.version, attempt.request(names))
                self._judge(user, attempt, names, answer, number)

    def _judge(self, user: str, attempt: Attempt, names: Names, answer: Values, number: int) -> None:
        answered = set(codes(answer))
        is_refused = bool(answered & attempt.refusals)
        is_allowed = attempt.needs(lambda *what: self.may(user, *what), names)
        if UNKNOWN_TOPIC in answered and not is_refused:  # who may describe it may know that it is not there
            is_allowed = is_allowed or self.may(user, DESCRIBE, TOPIC, names.topic)
        with self._lock:
            self.refused += is_refused
            self.allowed += not is_refused
            if attempt.api == "Produce" and answered <= {0}:
                self.written.add((user, number))
            leaks = is_refused and VALUE.search(_bytes_of(answer))
            if is_refused == is_allowed or leaks:
                self.wrong.append(
                    f"{user} {attempt.api} v{attempt.version} topic {names.topic}, group {names.group}, id "
                    f"{names.transactional_id}: {'may' if is_allowed else 'may not'}, and is answered {answer}; "
                    f"ACLs {self.acls}"
                )

    def look(self) -> None:
        """Check that lists show exactly the visible entities, and topics exactly the accepted records. Raises WireError."""
        for user in USERS:
            with self.side.connect(user=user) as connection:
                topics = {row["Name"] for row in connection.ask("Metadata", 12, {"Topics": None})["Topics"]}
                groups = {row["GroupId"] for row in connection.ask("ListGroups", 4, {})["Groups"]}
            hidden = {name for name in topics & set(TOPICS) if not self.may(user, DESCRIBE, TOPIC, name)}
            if not self.may(user, DESCRIBE, CLUSTER, CLUSTER_NAME):
                hidden |= {name for name in groups & set(GROUPS) if not self.may(user, DESCRIBE, GROUP, name)}
            if hidden:
                self.wrong.append(f"{user} is shown {hidden}; ACLs {self.acls}")
        with self.side.connect(user=ADMIN) as admin:
            for topic in TOPICS:
                answer = admin.ask("Fetch", 11, REQUESTS["Fetch"](Names(topic=topic)))
                values = VALUE.findall(_bytes_of(answer))
                strange = {(user.decode(), int(number)) for user, number in values} - self.written
                if strange:
                    self.wrong.append(f"in topic {topic} there are records of {strange}")


def _operations(kind: int) -> tuple[int, ...]:
    """The operations that ACLs on this kind of resource may name."""
    return {
        TOPIC: (ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
        GROUP: (ALL, READ, DELETE, DESCRIBE),
        TRANSACTIONAL_ID: (ALL, WRITE, DESCRIBE),
        CLUSTER: (ALL, CREATE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
    }[kind]


def own_acls() -> list[Acl]:
    """ACLs that let each user write and read a topic of its own, all the time."""
    return [
        Acl(kind, LITERAL, f"{OWN}{user}", f"User:{user}", "*", ALL, ALLOW)
        for user in USERS
        for kind in (TOPIC, GROUP)
    ]


def _known(answer: Values) -> set[tuple[object, ...]]:
    return {
        (entry["ResourceType"], entry["ResourceName"], entry["PatternType"], acl["Principal"], acl["Host"],
         acl["Operation"], acl["PermissionType"])
        for entry in answer["Resources"]
        for acl in entry["Acls"]
    }  # fmt: skip


def _bytes_of(value: Any) -> bytes:
    """All bytes in an answer."""
    if isinstance(value, bytes):
        return value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return b"".join(map(_bytes_of, items))


class Load:
    """A stock producer and a stock consumer of a user, on a topic of its own. Lifecycle: a context manager."""

    def __init__(self, side: Side, user: str) -> None:
        login = {
            "bootstrap.servers": f"127.0.0.1:{side.sasl_port}", "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": PASSWORD, "log_level": 0,
        }  # fmt: skip
        self.topic = f"{OWN}{user}"
        self.errors: list[str] = []
        self.sent = self.read = 0
        self._producer = Producer({**login, "linger.ms": 5})
        self._consumer = Consumer({**login, "group.id": self.topic, "auto.offset.reset": "earliest"})
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=body, daemon=True) for body in (self._write, self._consume)]

    def _write(self) -> None:
        def report(error: object, _: object) -> None:
            if error is not None:
                self.errors.append(str(error))

        while not self._is_over.wait(0.01):
            for _ in range(20):
                self._producer.produce(self.topic, b"x" * 200, on_delivery=report)
                self.sent += 1
            self._producer.poll(0)
        if self._producer.flush(60):
            self.errors.append("not everything was sent")

    def _consume(self) -> None:
        self._consumer.subscribe([self.topic])
        while not self._is_over.is_set():
            for message in self._consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    self.read += 1
                else:
                    self.errors.append(str(error))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()


def run(side: Side, count: int, seed: int) -> Judge:
    """Let both users try. Raises WireError."""
    judge = Judge(side, seed)
    judge.change_acls()
    tries = len(USERS) * CONNECTIONS
    each = BETWEEN_CHANGES // tries
    with Load(side, USERS[0]) as first, Load(side, USERS[1]) as second, ThreadPoolExecutor(tries) as pool:
        done = 0
        while done < count and not judge.wrong:
            seeds = [(user, judge.random.randrange(2**31)) for user in USERS for _ in range(CONNECTIONS)]
            list(pool.map(lambda seed: judge.attempts(seed[0], seed[1], each), seeds))
            done += each * tries
            judge.look()
            judge.change_acls()
    for load in (first, second):
        if load.errors or not load.read:
            judge.wrong.append(f"{load.topic}: {load.sent} sent, {load.read} read, errors {load.errors[:3]}")
    print(f"meanwhile {first.sent + second.sent} records were sent and {first.read + second.read} read")
    return judge


def main() -> int:
    """Try it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.security.attempts", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="how many attempts")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**31))
    parser.add_argument(
        "--against", default="barnabas", choices=("barnabas", "kafka"), help="kafka tries the model"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    begun = time.monotonic()
    try:
        with barnabas_alone() if options.against == "barnabas" else kafka_alone("4.x") as side:
            judge = run(side, options.count, options.seed)
    except (KafkaError, StartError, WireError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for line in judge.wrong[:5]:
        print(f"wrong: {line}")
    print(
        f"{judge.allowed + judge.refused} attempts, {judge.refused} refused, {len(judge.wrong)} wrong; "
        f"{time.monotonic() - begun:.0f} s"
    )
    return 1 if judge.wrong or not judge.refused or not judge.allowed else 0


if __name__ == "__main__":
    sys.exit(main())
