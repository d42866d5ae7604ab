"""All rules of a broker, and their verdict on an event.

The rule: the server asks once for each event, and applies the verdict; nothing here waits, sends or fails. The modules
of rules are imported by the first rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.tools.faults.errors import FaultError

if TYPE_CHECKING:
    from barnabas.tools.faults.matching import Subject
    from barnabas.tools.faults.rule import Rule

RULES_MAX = 10_000
FETCHES = frozenset((1, 78))
"""Fetch and ShareFetch: their requests name no topics once they are part of a session."""


class Verdict:
    """The rules that strike, in the order in which they were added."""

    __slots__ = ("pending", "rules")

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.pending: list[Rule] = []
        """Rules for which only the response will show whether they apply."""

    def __bool__(self) -> bool:
        return bool(self.rules or self.pending)

    @property
    def names(self) -> list[str]:
        """The names of the faults that are committed."""
        return [rule.name for rule in self.rules]

    def first(self, action: str) -> Any:
        """Return the value of an action in the first rule that has it, None if no rule does."""
        for rule in self.rules:
            if action in rule.do:
                return rule.do[action]
        return None

    def total(self, action: str) -> float:
        """Return the sum of the rules' values for an action: delays add up."""
        return sum(rule.chance.between(*rule.do[action]) for rule in self.rules if action in rule.do)

    def having(self, action: str) -> Iterable[Rule]:
        """Yield the rules that have an action."""
        return (rule for rule in self.rules if action in rule.do)


class Faults:
    """The rules of one broker, by name."""

    def __init__(self, seed: int = 0, *, clock_ms: Callable[[], float] = lambda: 0.0) -> None:
        """`clock_ms` is for conditions on time."""
        self.seed = seed
        self.rules: dict[str, Rule] = {}
        self.version = 0
        """Grows with every change of the rules."""
        self._clock_ms = clock_ms
        self._count = 0
        self._by_event: dict[str, tuple[Rule, ...]] = {}

    def add(self, spec: Mapping[str, Any] | str) -> Rule:
        """Add a rule, or the short form of one. Raises FaultError, also if its name is taken."""
        from barnabas.tools.faults import short
        from barnabas.tools.faults.rule import NAME_CHARACTERS_MAX, Rule

        if isinstance(spec, str):
            spec = short.parse(spec)
        if not isinstance(spec, Mapping):
            raise FaultError(
                "a rule is expected, as {on: {api: Produce}, do: {error: NOT_LEADER_OR_FOLLOWER}}"
            )
        name = spec.get("name")
        if name is None:
            name = self._free_name()
        if not isinstance(name, str) or not name or len(name) > NAME_CHARACTERS_MAX or "/" in name:
            raise FaultError(f"a name of 1 to {NAME_CHARACTERS_MAX} characters without / is expected", "name")
        if name in self.rules:
            raise FaultError(f"there is a rule {name} already", "name")
        if len(self.rules) >= RULES_MAX:
            raise FaultError(f"there are {RULES_MAX} rules already")
        rule = Rule(name, dict(spec), self.seed, self._clock_ms())
        self.rules[name] = rule
        self._changed()
        return rule

    def use(self, name: str, parameters: Mapping[str, Any] | None = None) -> list[Rule]:
        """Add the rules of a named set. Raises FaultError; nothing is added then."""
        from barnabas.tools.faults import sets

        added: list[Rule] = []
        try:
            for spec in sets.rules_of(name, parameters or {}):
                added += [self.add(spec)]
        except FaultError:
            for rule in added:
                self.remove(rule.name)
            raise
        return added

    def enable(self, name: str, *, is_enabled: bool = True) -> None:
        """Enable or disable a rule, and keep its counts. Raises KeyError."""
        self.rules[name].is_enabled = is_enabled
        self._changed()

    def remove(self, name: str) -> None:
        """Remove a rule. Raises KeyError."""
        del self.rules[name]
        self._changed()

    def clear(self) -> None:
        """Remove all rules."""
        self.rules.clear()
        self._count = 0
        self._changed()

    def reset(self, seed: int | None = None) -> None:
        """Restart all counts and random numbers, with another seed if it is set."""
        if seed is not None:
            self.seed = seed
        now_ms = self._clock_ms()
        for rule in self.rules.values():
            rule.begin(self.seed, now_ms)

    def concerns(self, event: str) -> bool:
        """Return whether there is any rule for an event."""
        return event in self._by_event

    def judge(self, subject: Subject) -> Verdict:
        """Return the rules that take effect; rules of Fetch that wait for topics are left for `judge_answer`."""
        verdict = Verdict()
        is_fetch = subject.api_key in FETCHES
        for rule in self._by_event.get(subject.event, ()):
            if is_fetch and rule.waits_for_answer:
                if rule.match.fits(subject, with_topics=False):
                    verdict.pending.append(rule)
            elif rule.match.fits(subject) and rule.strikes(subject.now_ms):
                verdict.rules.append(rule)
        return verdict

    def judge_answer(
        self,
        verdict: Verdict,
        topics: Sequence[tuple[str, int | None]],
        filled: Sequence[tuple[str, int | None]] = (),
    ) -> None:
        """Add the pending rules that apply to the topics and partitions of an answer and strike.

        `filled` are those with records.
        """
        now_ms = self._clock_ms()
        for rule in verdict.pending:
            concerned = filled if rule.needs_records else topics
            if any(rule.match.covers(*subject) for subject in concerned) and rule.strikes(now_ms):
                verdict.rules.append(rule)
        verdict.pending.clear()

    def described(self) -> dict[str, Any]:
        """Return seed, rules and their counts, as JSON."""
        return {"seed": self.seed, "faults": [rule.described() for rule in self.rules.values()]}

    def _free_name(self) -> str:
        while True:
            self._count += 1
            name = f"fault-{self._count}"
            if name not in self.rules:
                return name

    def _changed(self) -> None:
        self.version += 1
        by_event: dict[str, list[Rule]] = defaultdict(list)
        for rule in self.rules.values():
            if rule.is_enabled:
                by_event[rule.match.event].append(rule)
        self._by_event = {event: tuple(rules) for event, rules in by_event.items()}
