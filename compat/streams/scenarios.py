"""Events of the applications: instances that come, go and die, and applications with which something is wrong."""

from __future__ import annotations

from collections.abc import Callable

from compat.streams.fixture import ApplicationFixture

NO_ENDPOINT = ("application.server=",)
"""Apache Kafka 4.3.1 answers UNKNOWN_SERVER_ERROR to a member with an endpoint while its topics do not fit."""
KEYS = [f"word-{number}" for number in range(16)]
SCENARIOS: dict[str, Callable[[ApplicationFixture], None]] = {}


def scenario(body: Callable[[ApplicationFixture], None]) -> Callable[[ApplicationFixture], None]:
    """A scenario is known by the name of its function."""
    SCENARIOS[body.__name__.replace("_", "-")] = body
    return body


@scenario
def comes_and_goes(fixture: ApplicationFixture) -> None:
    """Words are counted by one, two and three instances, of which one dies and one leaves."""
    fixture.topic("words", 4)
    fixture.topic("counts", 2)
    for number in (1, 2, 3):
        fixture.start(number)
        fixture.words(160)
        fixture.see(f"{number} instances", number)
    fixture.see_topology()
    fixture.see_queries(KEYS)
    fixture.instances[2].kill()
    fixture.words(160)
    fixture.see("one has died", 2)
    fixture.start(2)
    fixture.words(160)
    fixture.see("it is back", 3)
    fixture.instances[1].close()
    fixture.words(160)
    fixture.see("another has left", 2)
    fixture.see_counts()
    for number in (2, 3):
        fixture.instances[number].close()
    fixture.see("nobody is left", 0)


@scenario
def standbys(fixture: ApplicationFixture) -> None:
    """With a copy of every store, in another instance than its task."""
    fixture.topic("words", 4)
    fixture.topic("counts", 2)
    fixture.configure(streams_num_standby_replicas="1")
    fixture.start(1)
    fixture.words(160)
    fixture.see("one instance", 1)
    fixture.start(2)
    fixture.see("two instances", 2)
    fixture.start(3)
    fixture.words(160)
    fixture.see("three instances", 3)
    fixture.see_queries(KEYS)
    fixture.instances[3].kill()
    fixture.words(160)
    fixture.see("one has died", 2)
    fixture.configure(streams_num_standby_replicas="0")
    fixture.see("copies are no longer wanted", 2)
    fixture.see_counts()


@scenario
def threads(fixture: ApplicationFixture) -> None:
    """Two instances of two threads each, and a third of one, with a copy of every store; joins and two repartitionings."""
    for name, partitions in (("words", 4), ("names", 4), ("names-of-all", 1), ("counts", 2)):
        fixture.topic(name, partitions)
    fixture.send("names", [(f"key-{number}", f"name-{number}") for number in range(4)])
    fixture.send("names-of-all", [(f"key-{number}", f"all-{number}") for number in range(5)])
    fixture.configure(streams_num_standby_replicas="1")
    fixture.start(1, "joins", threads=2)
    fixture.see("one instance of two", 2)
    fixture.words(160)
    fixture.start(2, "joins", threads=2)
    fixture.see("two instances of two", 4)
    fixture.see_topology()
    fixture.start(3, "joins")
    fixture.words(160)
    fixture.see("and one of one", 5)
    fixture.instances[1].kill()
    fixture.words(160)
    fixture.see("the first has died", 3)
    fixture.see_counts()


@scenario
def stateless(fixture: ApplicationFixture) -> None:
    """Nothing is kept, nothing is made: as many tasks as partitions, and instances without any."""
    fixture.topic("words", 2)
    fixture.topic("counts", 2)
    for number in (1, 2, 3):
        fixture.start(number, "shouts")
        fixture.see(f"{number} instances", number)
    fixture.see_topology()


@scenario
def tool(fixture: ApplicationFixture) -> None:
    """Run kafka-streams-groups: see what it shows of an application, and does to it without members."""
    fixture.topic("words", 4)
    fixture.topic("counts", 2)
    fixture.configure(streams_num_standby_replicas="1")
    for number in (1, 2):
        fixture.start(number)
        fixture.see(f"{number} instances", number)
    fixture.words(160)
    fixture.counts(160)
    group = ("--group", fixture.scenario)
    for what in ("--state", "--offsets", "--members"):
        fixture.see_tool("--describe", *group, what)
    fixture.see_tool("--describe", *group, "--members", "--verbose")
    fixture.see_tool("--list", "--state")
    fixture.see_tool("--delete", *group)
    for number in (1, 2):
        fixture.instances[number].close()
    fixture.see("nobody is left", 0)
    fixture.see_tool("--describe", *group, "--members")
    fixture.see_tool("--reset-offsets", *group, "--to-earliest", "--all-input-topics", "--execute")
    fixture.see_tool("--delete-offsets", *group, "--input-topic", "words")
    fixture.see_tool("--delete", *group)
    fixture.see_tool("--list", "--state")
    fixture.see_tool("--describe", *group)


@scenario
def poison(fixture: ApplicationFixture) -> None:
    """A record that no instance can take stops the whole application."""
    fixture.topic("words", 4)
    fixture.topic("counts", 2)
    for number in (1, 2):
        fixture.start(number)
    fixture.see("two instances", 2)
    fixture.send("words", [("key", "poison")])
    for number in (1, 2):
        fixture.note(f"instance {number}", fixture.instances[number].wait_said("state ERROR"))
    fixture.see("all have left", 0)


@scenario
def no_source(fixture: ApplicationFixture) -> None:
    """The topic that is read is not there."""
    fixture.topic("counts", 2)
    fixture.start(1, settings=NO_ENDPOINT)
    fixture.note("fails with", fixture.instances[1].wait_said("failed "))
    fixture.note("and is in", fixture.instances[1].wait_said("state ERROR"))
    fixture.note("group", fixture.described()["GroupState"])


@scenario
def not_copartitioned(fixture: ApplicationFixture) -> None:
    """The joined topics do not have the same number of partitions."""
    for name, partitions in (("words", 4), ("names", 3), ("names-of-all", 1), ("counts", 2)):
        fixture.topic(name, partitions)
    fixture.start(1, "joins", settings=NO_ENDPOINT)
    fixture.note("fails with", fixture.instances[1].wait_said("failed "))
    fixture.note("and is in", fixture.instances[1].wait_said("state ERROR"))


@scenario
def another_topology(fixture: ApplicationFixture) -> None:
    """Two applications that are not the same cannot share a name."""
    for name, partitions in (("words", 4), ("names", 4), ("names-of-all", 1), ("counts", 2)):
        fixture.topic(name, partitions)
    fixture.start(1)
    fixture.see("the first", 1)
    fixture.start(2, "joins")
    fixture.note("the second fails with", fixture.instances[2].wait_said("failed "))
    fixture.see("the first stays", 1)
