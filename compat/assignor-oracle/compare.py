"""Our sticky assignor of tasks beside Kafka's own class: python compat/assignor-oracle/compare.py [--cases N] [--seed S].

Members join and leave, and our assignment is the input of both for the next round. The rule: ours spreads active tasks at
least as evenly over members, has at least as many standby tasks, and moves more tasks from remaining members only for a
more even spread. Ties are not compared: Kafka's choice among equals depends on the iteration order of a hash map.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "server")]

from barnabas.coordinators.groups.streams.assignor import Worker, assign_tasks  # noqa: E402
from barnabas.coordinators.groups.streams.tasks import ACTIVE, NO_TASKS, STANDBY, Task, Tasks  # noqa: E402
from barnabas.coordinators.groups.streams.topology import Shape  # noqa: E402
from compat.kit.java import built  # noqa: E402

GENERATIONS = 5
Given = dict[str, Tasks]


@dataclass(frozen=True)
class Case:
    """The input of an assignor."""

    replicas: int
    shapes: dict[str, Shape]
    workers: list[Worker]

    def line(self) -> str:
        """Return the case as a line of input for Kafka's side."""
        shapes = ",".join(f"{name}:{shape.tasks}:{shape.is_stateful}" for name, shape in self.shapes.items())
        members = ",".join(
            f"{worker.id}:{worker.process_id}:{_text(worker.assigned, ACTIVE)}:{_text(worker.assigned, STANDBY)}"
            for worker in self.workers
        )
        return f"{self.replicas} {shapes} {members}"


def _text(tasks: Tasks, role: str) -> str:
    return ";".join(f"{name}_{number}" for kind, name, number in sorted(tasks) if kind == role) or "-"


def read(line: str) -> Given:
    """Parse the assignment that Kafka's side prints."""
    assigned: Given = {}
    for member in line.split(","):
        member_id, *lists = member.split(":")
        assigned[member_id] = frozenset(
            (role, task.split("_")[0], int(task.split("_")[1]))
            for role, tasks in zip((ACTIVE, STANDBY), lists, strict=True)
            if tasks != "-"
            for task in tasks.split(";")
        )
    return assigned


def generations(choose: random.Random) -> Iterator[tuple[Case, Given]]:
    """Yield the successive cases of a random group, with our assignment for each."""
    shapes = {
        str(number): Shape(choose.randint(1, 8), choose.random() < 0.6, frozenset())
        for number in range(choose.randint(1, 4))
    }
    members = {f"m{number}": f"p{choose.randint(0, 4)}" for number in range(choose.randint(1, 6))}
    before: Given = {}
    for generation in range(GENERATIONS):
        case = Case(
            choose.randint(0, 2),
            shapes,
            [Worker(name, process, before.get(name, NO_TASKS)) for name, process in sorted(members.items())],
        )
        before = assign_tasks(case.workers, shapes, case.replicas)
        yield case, before
        for name in choose.sample(sorted(members), choose.randint(0, len(members) - 1)):
            del members[name]
        for number in range(choose.randint(0, 3)):
            members[f"g{generation}n{number}"] = f"p{choose.randint(0, 4)}"


def moved(case: Case, assigned: Given) -> int:
    """Return the number of active tasks that were moved away from a remaining member."""
    return sum(
        task[0] == ACTIVE and task not in assigned[worker.id]
        for worker in case.workers
        for task in worker.assigned
    )


def spread(assigned: Given) -> int:
    """Return the largest difference in active tasks between two members."""
    counts = [len(_of(tasks, ACTIVE)) for tasks in assigned.values()]
    return max(counts) - min(counts)


def copies(assigned: Given) -> int:
    """Return the total number of standby tasks."""
    return sum(len(_of(tasks, STANDBY)) for tasks in assigned.values())


def loads(case: Case, assigned: Given) -> float:
    """Return the largest difference in tasks per member between two processes, including standby tasks."""
    processes = {worker.process_id for worker in case.workers}
    per_member = [
        sum(len(assigned[worker.id]) for worker in case.workers if worker.process_id == process)
        / sum(worker.process_id == process for worker in case.workers)
        for process in processes
    ]
    return max(per_member) - min(per_member)


def _of(tasks: Iterable[Task], role: str) -> list[Task]:
    return [task for task in tasks if task[0] == role]


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    class_path = built(Path(__file__).resolve().parent, "assignor-oracle")
    asked = [
        pair
        for number in range(options.cases // GENERATIONS)
        for pair in generations(random.Random(f"{options.seed} {number}"))
    ]
    lines = "".join(f"{case.line()}\n" for case, _ in asked)
    done = subprocess.run(
        ["java", "-XX:+UseSerialGC", "-cp", class_path, "Assign"],
        input=lines, capture_output=True, text=True, check=True,
    )  # fmt: skip
    bad = same = even = 0
    extra = [0.0, 0.0]
    for (case, ours), line in zip(asked, done.stdout.splitlines(), strict=True):
        theirs = read(line)
        sides = [(moved(case, assigned), spread(assigned), -copies(assigned)) for assigned in (theirs, ours)]
        shape = [
            sorted((len(_of(t, ACTIVE)), len(_of(t, STANDBY))) for t in assigned.values())
            for assigned in (theirs, ours)
        ]
        same += shape[0] == shape[1]
        even += spread(ours) < spread(theirs)
        extra = [total + loads(case, assigned) for total, assigned in zip(extra, (theirs, ours), strict=True)]
        (their_moves, their_spread, their_lack), (moves, our_spread, lack) = sides
        if (
            our_spread > their_spread
            or lack > their_lack
            or (moves > their_moves and our_spread == their_spread)
        ):
            bad += 1
            print(
                f"worse than Kafka: (moved, spread, -copies) {sides[1]} for {sides[0]}: {case.line()}\n    {line}"
            )
    count = len(asked)
    print(
        f"{count} cases: as many tasks of each kind for each member in {same}, more even in {even}, worse in {bad}; "
        f"processes differ by {extra[0] / count:.2f} tasks per member with Kafka's, {extra[1] / count:.2f} with ours"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
