"""What happens to the applications: instances that come, go and die, and applications with which something is wrong."""

from __future__ import annotations

from collections.abc import Callable

from compat.streams.stage import Stage

NO_ENDPOINT = ("application.server=",)
"""Apache Kafka 4.3.1 answers UNKNOWN_SERVER_ERROR to a member with an endpoint while its topics do not fit."""
KEYS = [f"word-{number}" for number in range(16)]
SCENES: dict[str, Callable[[Stage], None]] = {}


def scene(play: Callable[[Stage], None]) -> Callable[[Stage], None]:
    """A scene is known by the name of its function."""
    SCENES[play.__name__.replace("_", "-")] = play
    return play


@scene
def comes_and_goes(stage: Stage) -> None:
    """Words are counted by one, two and three instances, of which one dies and one leaves."""
    stage.topic("words", 4)
    stage.topic("counts", 2)
    for number in (1, 2, 3):
        stage.start(number)
        stage.words(160)
        stage.see(f"{number} instances", number)
    stage.see_topology()
    stage.see_queries(KEYS)
    stage.instances[2].kill()
    stage.words(160)
    stage.see("one has died", 2)
    stage.start(2)
    stage.words(160)
    stage.see("it is back", 3)
    stage.instances[1].close()
    stage.words(160)
    stage.see("another has left", 2)
    stage.see_counts()
    for number in (2, 3):
        stage.instances[number].close()
    stage.see("nobody is left", 0)


@scene
def standbys(stage: Stage) -> None:
    """With a copy of every store, in another instance than its task."""
    stage.topic("words", 4)
    stage.topic("counts", 2)
    stage.configure(streams_num_standby_replicas="1")
    stage.start(1)
    stage.words(160)
    stage.see("one instance", 1)
    stage.start(2)
    stage.see("two instances", 2)
    stage.start(3)
    stage.words(160)
    stage.see("three instances", 3)
    stage.see_queries(KEYS)
    stage.instances[3].kill()
    stage.words(160)
    stage.see("one has died", 2)
    stage.configure(streams_num_standby_replicas="0")
    stage.see("copies are no longer wanted", 2)
    stage.see_counts()


@scene
def threads(stage: Stage) -> None:
    """Two instances of two threads each, and a third of one, with a copy of every store; joins and two repartitionings."""
    for name, partitions in (("words", 4), ("names", 4), ("names-of-all", 1), ("counts", 2)):
        stage.topic(name, partitions)
    stage.send("names", [(f"key-{number}", f"name-{number}") for number in range(4)])
    stage.send("names-of-all", [(f"key-{number}", f"all-{number}") for number in range(5)])
    stage.configure(streams_num_standby_replicas="1")
    stage.start(1, "joins", threads=2)
    stage.see("one instance of two", 2)
    stage.words(160)
    stage.start(2, "joins", threads=2)
    stage.see("two instances of two", 4)
    stage.see_topology()
    stage.start(3, "joins")
    stage.words(160)
    stage.see("and one of one", 5)
    stage.instances[1].kill()
    stage.words(160)
    stage.see("the first has died", 3)
    stage.see_counts()


@scene
def stateless(stage: Stage) -> None:
    """Nothing is kept, nothing is made: as many tasks as partitions, and instances without any."""
    stage.topic("words", 2)
    stage.topic("counts", 2)
    for number in (1, 2, 3):
        stage.start(number, "shouts")
        stage.see(f"{number} instances", number)
    stage.see_topology()


@scene
def tool(stage: Stage) -> None:
    """What kafka-streams-groups shows of an application, and does to it when nobody is left."""
    stage.topic("words", 4)
    stage.topic("counts", 2)
    stage.configure(streams_num_standby_replicas="1")
    for number in (1, 2):
        stage.start(number)
        stage.see(f"{number} instances", number)
    stage.words(160)
    stage.counts(160)
    group = ("--group", stage.scene)
    for what in ("--state", "--offsets", "--members"):
        stage.see_tool("--describe", *group, what)
    stage.see_tool("--describe", *group, "--members", "--verbose")
    stage.see_tool("--list", "--state")
    stage.see_tool("--delete", *group)
    for number in (1, 2):
        stage.instances[number].close()
    stage.see("nobody is left", 0)
    stage.see_tool("--describe", *group, "--members")
    stage.see_tool("--reset-offsets", *group, "--to-earliest", "--all-input-topics", "--execute")
    stage.see_tool("--delete-offsets", *group, "--input-topic", "words")
    stage.see_tool("--delete", *group)
    stage.see_tool("--list", "--state")
    stage.see_tool("--describe", *group)


@scene
def poison(stage: Stage) -> None:
    """A record that no instance can take stops the whole application."""
    stage.topic("words", 4)
    stage.topic("counts", 2)
    for number in (1, 2):
        stage.start(number)
    stage.see("two instances", 2)
    stage.send("words", [("key", "poison")])
    for number in (1, 2):
        stage.note(f"instance {number}", stage.instances[number].wait_said("state ERROR"))
    stage.see("all have left", 0)


@scene
def no_source(stage: Stage) -> None:
    """The topic that is read is not there."""
    stage.topic("counts", 2)
    stage.start(1, settings=NO_ENDPOINT)
    stage.note("fails with", stage.instances[1].wait_said("failed "))
    stage.note("and is in", stage.instances[1].wait_said("state ERROR"))
    stage.note("group", stage.described()["GroupState"])


@scene
def not_copartitioned(stage: Stage) -> None:
    """What is joined has not as many partitions."""
    for name, partitions in (("words", 4), ("names", 3), ("names-of-all", 1), ("counts", 2)):
        stage.topic(name, partitions)
    stage.start(1, "joins", settings=NO_ENDPOINT)
    stage.note("fails with", stage.instances[1].wait_said("failed "))
    stage.note("and is in", stage.instances[1].wait_said("state ERROR"))


@scene
def another_topology(stage: Stage) -> None:
    """Two applications that are not the same cannot share a name."""
    for name, partitions in (("words", 4), ("names", 4), ("names-of-all", 1), ("counts", 2)):
        stage.topic(name, partitions)
    stage.start(1)
    stage.see("the first", 1)
    stage.start(2, "joins")
    stage.note("the second fails with", stage.instances[2].wait_said("failed "))
    stage.see("the first stays", 1)
