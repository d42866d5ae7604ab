"""The lock of published layouts: what a version once looked like on the wire, it looks like for ever.

The rule: a recorded version changes in one way only, by new tagged fields, since old readers skip those
(KIP-482). Recording new versions takes a flag, so that it is a decision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from codegen.model import Message, SchemaError
from codegen.plan import (
    Blob,
    BlobArray,
    FixedArray,
    Single,
    Step,
    StructArray,
    StructPlan,
    Tags,
    plan_message,
)

HEADER = """\
# What each published version of each message looks like on the wire: a hash over the types of its fields
# in order, and its tagged fields. `python -m codegen --extend-layouts` adds new versions; a line that is here
# can only get more tags.
"""


@dataclass(frozen=True)
class Layout:
    """The hash of the plain fields, and the tagged ones as `path/tag=type`."""

    plain: str
    tags: frozenset[str]

    def __str__(self) -> str:
        return " ".join([self.plain, *sorted(self.tags)])


def layout_of(message: Message, version: int) -> Layout:
    """The layout of one version."""
    plan = plan_message(message, version)
    text = _struct(plan)
    return Layout(hashlib.sha256(text.encode()).hexdigest()[:16], frozenset(_tags(plan, "")))


def check_layouts(messages: list[Message], lock: Path) -> None:
    """Compare every version with the lock. Raises SchemaError if one changed, is gone, or is not recorded."""
    recorded, current = read_lock(lock), _current(messages)
    _check_recorded(recorded, current)
    new = sorted(set(current) - set(recorded))
    if new:
        name, version = new[0]
        raise SchemaError(
            lock.name,
            f"{name} v{version} is not recorded; if published, run `python -m codegen --extend-layouts`",
        )
    for key, layout in current.items():
        if layout.tags != recorded[key].tags:
            raise SchemaError(
                lock.name,
                f"{key[0]} v{key[1]} has new tagged fields; run `python -m codegen --extend-layouts`",
            )


def extend_layouts(messages: list[Message], lock: Path) -> None:
    """Record new versions and new tagged fields. Raises SchemaError if a recorded version changed."""
    recorded, current = read_lock(lock), _current(messages)
    _check_recorded(recorded, current)
    lines = [f"{name} {version} {current[name, version]}\n" for name, version in sorted(current)]
    lock.write_text(HEADER + "".join(lines), encoding="utf-8")


def read_lock(lock: Path) -> dict[tuple[str, int], Layout]:
    """The recorded layouts by message and version; empty if there is no lock yet."""
    if not lock.exists():
        return {}
    layouts = {}
    for line in lock.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        name, version, plain, *tags = line.split()
        layouts[name, int(version)] = Layout(plain, frozenset(tags))
    return layouts


def _current(messages: list[Message]) -> dict[tuple[str, int], Layout]:
    return {
        (message.name, version): layout_of(message, version)
        for message in messages
        for version in message.versions
        if not (message.latest_unstable and version == message.versions.last)
    }


def _check_recorded(recorded: dict[tuple[str, int], Layout], current: dict[tuple[str, int], Layout]) -> None:
    for (name, version), layout in recorded.items():
        now = current.get((name, version))
        if now is None:
            raise SchemaError(name, f"version {version} was published and is gone")
        if now.plain != layout.plain:
            raise SchemaError(
                name, f"version {version} was published and its layout changed; add a version instead"
            )
        lost = sorted(layout.tags - now.tags)
        if lost:
            raise SchemaError(
                name, f"version {version} was published and its tagged field {lost[0]} changed or is gone"
            )


def _struct(plan: StructPlan) -> str:
    return "(" + ",".join(_step(step) for step in plan.steps) + ")"


def _step(step: Step) -> str:
    fixed = [field.type for field in step.fixed]
    tail = step.tail
    if isinstance(tail, Blob):
        fixed.append(_blob(tail))
    elif isinstance(tail, FixedArray):
        fixed.append(f"[{tail.prefix}{_null(tail.nullable)}]{tail.type}")
    elif isinstance(tail, BlobArray):
        fixed.append(f"[{tail.prefix}{_null(tail.nullable)}]{_blob(tail.element)}")
    elif isinstance(tail, StructArray):
        fixed.append(f"[{tail.prefix}{_null(tail.nullable)}]{_struct(tail.element)}")
    elif isinstance(tail, Single):
        fixed.append((tail.prefix + _null(True) if tail.nullable else "") + _struct(tail.element))
    elif isinstance(tail, Tags):
        fixed.append("tags")
    return ",".join(fixed)


def _blob(blob: Blob) -> str:
    return f"{blob.type}:{blob.prefix}{_null(blob.nullable)}"


def _null(nullable: bool) -> str:
    return "?" if nullable else ""


def _tags(plan: StructPlan, path: str) -> Iterator[str]:
    for step in plan.steps:
        tail = step.tail
        if isinstance(tail, StructArray | Single):
            yield from _tags(tail.element, f"{path}{tail.name}.")
        elif isinstance(tail, Tags):
            for tagged in tail.tagged:
                yield f"{path}{tagged.tag}={''.join(_step(step) for step in tagged.content)}"
                for inner in tagged.content:
                    if isinstance(inner.tail, StructArray | Single):
                        yield from _tags(inner.tail.element, f"{path}{tagged.tag}.")
