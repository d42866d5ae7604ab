"""Wire layout of one version of a message: a pure list of operations.

The rule: everything that depends on versions is decided here. The emitters turn operations into Python and
never see a version; two versions with equal plans share one function.

A struct is a list of `Step`s. A step is a run of fixed-width fields, which one `struct` call reads or writes,
and then at most one operation of variable width. The length prefix of that operation belongs to the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from codegen.model import FIXED_FORMATS, FIXED_SIZES, Field, Message, SchemaError

SIZE_PREFIX = {"string": "h", "bytes": "i", "records": "i", "array": "i"}
"""Format of the length before a value where the encoding is not compact; null is -1."""

NULL_MARKER = "b"

COMPACT = "B"
"""First byte of an unsigned varint that holds length + 1 (KIP-482); null is 0."""


@dataclass(frozen=True)
class Fixed:
    """A field of fixed width: its attribute and format character."""

    attribute: str
    name: str
    type: str

    @property
    def format(self) -> str:
        """The `struct` format of the field."""
        return FIXED_FORMATS[self.type]


@dataclass(frozen=True)
class Blob:
    """A string, bytes or records."""

    attribute: str
    name: str
    type: str
    prefix: str
    nullable: bool


@dataclass(frozen=True)
class FixedArray:
    """An array of fixed-width primitives: one `struct` call for all of them."""

    attribute: str
    name: str
    type: str
    prefix: str
    nullable: bool


@dataclass(frozen=True)
class BlobArray:
    """An array of strings or bytes."""

    attribute: str
    name: str
    prefix: str
    nullable: bool
    element: Blob


@dataclass(frozen=True)
class StructArray:
    """An array of structs."""

    attribute: str
    name: str
    prefix: str
    nullable: bool
    element: StructPlan


@dataclass(frozen=True)
class Single:
    """A struct inside a struct; if nullable, a marker before it says whether it is there (1) or null.

    Null is the byte -1, but in a tagged field the varint 0.
    """

    attribute: str
    name: str
    prefix: str
    nullable: bool
    element: StructPlan


@dataclass(frozen=True)
class Tagged:
    """One known tagged field: `content` is its value, `field` knows the default at which it is left out."""

    tag: int
    field: Field
    content: tuple[Step, ...]


@dataclass(frozen=True)
class Tags:
    """The tagged fields at the end of a struct of a flexible version, in ascending order of their tags."""

    tagged: tuple[Tagged, ...]


Tail = Blob | FixedArray | BlobArray | StructArray | Single | Tags


@dataclass(frozen=True)
class Step:
    """Fixed-width fields, then at most one operation of variable width."""

    fixed: tuple[Fixed, ...]
    tail: Tail | None

    @property
    def prefix(self) -> str:
        """Format of what the tail puts at the end of the run: a length, a count, a marker, or nothing."""
        tail = self.tail
        if tail is None:
            return ""
        if isinstance(tail, Tags):
            return COMPACT
        if isinstance(tail, Single):
            return tail.prefix if tail.nullable else ""
        return tail.prefix

    @property
    def format(self) -> str:
        """The `struct` format of the whole run."""
        return "".join(field.format for field in self.fixed) + self.prefix

    @property
    def fixed_size(self) -> int:
        """Number of bytes of the run, without its prefix."""
        return sum(FIXED_SIZES[field.type] for field in self.fixed)


@dataclass(frozen=True)
class StructPlan:
    """One struct in one version: its class, its steps, and the fields that this version does not have."""

    struct: str
    steps: tuple[Step, ...]
    absent: tuple[Field, ...]
    size_min: int
    """The least number of bytes a value can take; bounds how many a peer can claim to have sent."""


def plan_message(message: Message, version: int) -> StructPlan:
    """The plan of `message` in `version`. Raises SchemaError if a field cannot be laid out."""
    return _Planner(message, version).struct(message.name, message.fields, message.where)


def plans_by_layout(message: Message) -> list[tuple[StructPlan, list[int]]]:
    """The distinct plans of all versions in order, each with the versions that share it."""
    versions: dict[StructPlan, list[int]] = {}
    for version in message.versions:
        versions.setdefault(plan_message(message, version), []).append(version)
    return list(versions.items())


def structs_of(plan: StructPlan) -> Iterator[StructPlan]:
    """`plan` and every struct inside it, outermost first."""
    yield plan
    yield from _structs_in(plan.steps)


def _structs_in(steps: tuple[Step, ...]) -> Iterator[StructPlan]:
    for step in steps:
        if isinstance(step.tail, StructArray | Single):
            yield from structs_of(step.tail.element)
        elif isinstance(step.tail, Tags):
            for tagged in step.tail.tagged:
                yield from _structs_in(tagged.content)


class _Planner:
    def __init__(self, message: Message, version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.flexible
        self.inside: list[str] = []

    def struct(self, name: str, fields: tuple[Field, ...], where: str) -> StructPlan:
        if name in self.inside:
            raise SchemaError(where, f"the struct {name} contains itself")
        self.inside.append(name)
        present = [field for field in fields if self.version in field.versions]
        plain = [field for field in present if self.version not in field.tagged]
        tagged_fields = sorted(
            (field for field in present if self.version in field.tagged), key=lambda field: field.tag or 0
        )
        operations: list[Fixed | Tail] = [self.operation(field) for field in plain]
        if self.flexible:
            operations.append(Tags(tuple(self.tagged(field) for field in tagged_fields)))
        elif tagged_fields:
            raise SchemaError(
                tagged_fields[0].where, f"is tagged in version {self.version}, which is not flexible"
            )
        self.inside.pop()
        steps = _steps(operations)
        absent = tuple(field for field in fields if self.version not in field.versions)
        return StructPlan(name, steps, absent, _size_min(steps))

    def tagged(self, field: Field) -> Tagged:
        assert field.tag is not None
        operation = self.operation(field)
        if isinstance(operation, Single):
            operation = replace(operation, prefix=COMPACT)
        return Tagged(field.tag, field, _steps([operation]))

    def operation(self, field: Field) -> Fixed | Tail:
        flexible = self.flexible if field.flexible is None else self.version in field.flexible
        nullable = self.version in field.nullable
        kind, attribute, name = field.type, field.attribute, field.name
        if kind.array:
            prefix = COMPACT if flexible else SIZE_PREFIX["array"]
            if kind.is_struct:
                return StructArray(attribute, name, prefix, nullable, self.nested(field))
            if kind.is_fixed:
                return FixedArray(attribute, name, kind.name, prefix, nullable)
            element = Blob(
                "", name, kind.name, COMPACT if flexible else SIZE_PREFIX[kind.name], nullable=False
            )
            return BlobArray(attribute, name, prefix, nullable, element)
        if kind.is_struct:
            return Single(attribute, name, NULL_MARKER, nullable, self.nested(field))
        if kind.is_fixed:
            return Fixed(attribute, name, kind.name)
        return Blob(attribute, name, kind.name, COMPACT if flexible else SIZE_PREFIX[kind.name], nullable)

    def nested(self, field: Field) -> StructPlan:
        struct = self.message.structs.get(field.type.name)
        if struct is None:
            raise SchemaError(field.where, f"there is no struct {field.type.name}")
        if self.version not in struct.versions:
            raise SchemaError(field.where, f"{struct.name} does not exist in version {self.version}")
        return self.struct(struct.name, struct.fields, struct.where)


def _steps(operations: list[Fixed | Tail]) -> tuple[Step, ...]:
    """Join neighbouring fixed-width fields with the operation after them."""
    steps: list[Step] = []
    run: list[Fixed] = []
    for operation in operations:
        if isinstance(operation, Fixed):
            run.append(operation)
        else:
            steps.append(Step(tuple(run), operation))
            run = []
    if run:
        steps.append(Step(tuple(run), None))
    return tuple(steps)


def _size_min(steps: tuple[Step, ...]) -> int:
    prefixes = {"": 0, "b": 1, "B": 1, "h": 2, "i": 4}
    size = 0
    for step in steps:
        size += step.fixed_size + prefixes[step.prefix]
        if isinstance(step.tail, Single) and not step.tail.nullable:
            size += step.tail.element.size_min
    return size
