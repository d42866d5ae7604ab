"""Plans to encoders: straight-line functions `(message, out)` that append chunks to `out`.

The rule: what a version cannot carry is refused, unless the definition says it may be lost (`ignorable`).

In a loop over an array, a struct that was found to be its default is not looked into again as long as the next items have
the same object: most answers about many partitions share one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from codegen.emit import ARRAY_TABLES, Formats, Lines, differs
from codegen.model import Field, Message
from codegen.plan import (
    COMPACT,
    Blob,
    BlobArray,
    FixedArray,
    Single,
    Step,
    StructArray,
    StructPlan,
    Tagged,
    Tags,
)


def emit_encoder(
    message: Message, plan: StructPlan, name: str, versions: list[int], formats: Formats
) -> list[str]:
    """The lines of one encoder, which serves `versions`."""
    emitter = _Encoder(message, versions, formats)
    emitter.struct(plan, "m")
    return [
        f"def {name}(m: {message.name}, out: list[Chunk]) -> None:",
        "    add = out.append",
        *(f"    {default}: object = m" for default in emitter.defaults),  # which is no value of any field
        *emitter.out.lines,
    ]


class _Encoder:
    def __init__(self, message: Message, versions: list[int], formats: Formats) -> None:
        self.message = message
        self.versions = spell_versions(versions)
        self.formats = formats
        self.out = Lines()
        self.add = "add"
        self.chunks = "out"
        self.loops = 0  # how many of them there are around what is emitted
        self.defaults: list[str] = []  # local names of the objects that were found to be a struct's default

    def struct(self, plan: StructPlan, source: str) -> None:
        for field in plan.absent:
            if not field.ignorable:
                error = f'UnsupportedFieldError("{plan.struct}", "{field.attribute}", "{self.versions}")'
                self.if_differs(field, f"{source}.{field.attribute}", partial(self.out.add, f"raise {error}"))
        self.steps(plan.steps, source, plan.struct)

    def if_differs(self, field: Field, value: str, emit: Callable[[], None]) -> None:
        """Have what `emit` emits done where `value` is not the default of its field."""
        out = self.out
        is_struct = field.type.is_struct and not field.type.array and not field.has_default
        if not (self.loops and is_struct):
            with out.indented(f"if {differs(self.message, field, value)}:"):
                emit()
            return
        default = out.fresh("default")
        self.defaults.append(default)
        with out.indented(f"if {value} is not {default}:"):
            with out.indented(f"if {differs(self.message, field, value)}:"):
                emit()
            with out.indented("else:"):
                out.add(f"{default} = {value}")

    def steps(self, steps: tuple[Step, ...], source: str, struct: str) -> None:
        for step in steps:
            values = [f"{source}.{field.attribute}" for field in step.fixed]
            fixed = "".join(field.format for field in step.fixed)
            tail = step.tail
            if isinstance(tail, Blob):
                self.blob(tail, f"{source}.{tail.attribute}", struct, fixed, values)
            elif isinstance(tail, FixedArray | BlobArray | StructArray):
                self.array(tail, f"{source}.{tail.attribute}", struct, fixed, values)
            elif isinstance(tail, Single):
                self.single(tail, f"{source}.{tail.attribute}", struct, fixed, values)
            elif isinstance(tail, Tags):
                self.tags(tail, source, struct, fixed, values)
            else:
                self.pack(fixed, values)

    # The run of fixed-width fields, with or without the length after it.

    def packed(self, format_: str, values: list[str]) -> str:
        return f"{self.formats.name(format_, 'pack')}({', '.join(values)})"

    def pack(self, fixed: str, values: list[str]) -> None:
        if fixed:
            self.out.add(f"{self.add}({self.packed(fixed, values)})")

    def pack_length(self, prefix: str, fixed: str, values: list[str], longer: str) -> None:
        """Write the run with `n`: a length, or for compact encodings a length + 1."""
        out = self.out
        if prefix != COMPACT:
            self.pack(fixed + prefix, [*values, "n"])
            return
        if not fixed:
            out.add(f"{self.add}(UVARINT[n] if n < 128 else {longer}(n))")
            return
        with out.indented("if n < 128:"):
            self.pack(fixed + COMPACT, [*values, "n"])
        with out.indented("else:"):
            out.add(f"{self.add}({self.packed(fixed, values)} + {longer}(n))")

    def length(self, prefix: str, value: str) -> str:
        return f"len({value}) + 1" if prefix == COMPACT else f"len({value})"

    def blob(self, blob: Blob, value: str, struct: str, fixed: str, values: list[str]) -> None:
        out = self.out
        name = out.fresh("v")
        out.add(f"{name} = {value}")
        data = name
        null = "0" if blob.prefix == COMPACT else "-1"
        if blob.type == "string":
            data = out.fresh("d")
        if blob.nullable:
            with out.indented(f"if {name} is None:"):
                out.add(f"n = {null}")
                if blob.type == "string":
                    out.add(f'{data} = b""')
            out.add("else:")
            out.depth += 1
        else:
            with out.indented(f"if {name} is None:"):
                out.add(f'raise NullFieldError("{struct}", "{value.rpartition(".")[2]}")')
        if blob.type == "string":
            out.add(f"{data} = {name}.encode()")
        out.add(f"n = {self.length(blob.prefix, data)}")
        out.depth -= blob.nullable
        self.pack_length(
            blob.prefix, fixed, values, "encode_string_length" if blob.type == "string" else "encode_uvarint"
        )
        if blob.type == "string":
            out.add(f"{self.add}({data})")
        else:
            with out.indented(f"if {name}:"):
                out.add(f"{self.add}({name})")

    def array(
        self,
        array: FixedArray | BlobArray | StructArray,
        value: str,
        struct: str,
        fixed: str,
        values: list[str],
    ) -> None:
        out = self.out
        name = out.fresh("v")
        out.add(f"{name} = {value}")
        if array.nullable:
            null = "0" if array.prefix == COMPACT else "-1"
            out.add(f"n = {null} if {name} is None else {self.length(array.prefix, name)}")
        else:
            with out.indented(f"if {name} is None:"):
                out.add(f'raise NullFieldError("{struct}", "{array.attribute}")')
            out.add(f"n = {self.length(array.prefix, name)}")
        self.pack_length(array.prefix, fixed, values, "encode_uvarint")
        if isinstance(array, FixedArray):
            with out.indented(f"if {name}:"):
                out.add(f"{self.add}({ARRAY_TABLES[array.type]}[len({name})].pack(*{name}))")
            return
        item = out.fresh("x")
        if array.nullable:
            out.add(f"if {name} is not None:")
            out.depth += 1
        self.loops += 1
        with out.indented(f"for {item} in {name}:"):
            if isinstance(array, BlobArray):
                self.blob(array.element, item, struct, "", [])
            else:
                self.struct(array.element, item)
        self.loops -= 1
        out.depth -= array.nullable

    def single(self, single: Single, value: str, struct: str, fixed: str, values: list[str]) -> None:
        out = self.out
        item = out.fresh("x")
        out.add(f"{item} = {value}")
        if single.nullable:
            null = "0" if single.prefix == COMPACT else "-1"
            self.pack(fixed + single.prefix, [*values, f"{null} if {item} is None else 1"])
            out.add(f"if {item} is not None:")
            out.depth += 1
        else:
            with out.indented(f"if {item} is None:"):
                out.add(f'raise NullFieldError("{struct}", "{single.attribute}")')
            self.pack(fixed, values)
        self.struct(single.element, item)
        out.depth -= single.nullable

    def tags(self, tags: Tags, source: str, struct: str, fixed: str, values: list[str]) -> None:
        out = self.out
        unknown = out.fresh("u")
        out.add(f"{unknown} = {source}.unknown_tagged_fields")
        if not tags.tagged:
            with out.indented(f"if {unknown}:"):
                self.pack(fixed, values)
                out.add(f"write_tags({self.chunks}, [], {unknown})")
            with out.indented("else:"):
                if fixed:
                    self.pack(fixed + "B", [*values, "0"])
                else:
                    out.add(f"{self.add}(UVARINT[0])")
            return
        self.pack(fixed, values)
        variable = out.fresh("tags")
        out.add(f"{variable}: list[tuple[int, bytes]] = []")
        for tagged in tags.tagged:
            self.if_differs(
                tagged.field,
                f"{source}.{tagged.field.attribute}",
                partial(self.tagged, tagged, source, struct, variable),
            )
        with out.indented(f"if {variable} or {unknown}:"):
            out.add(f"write_tags({self.chunks}, {variable}, {unknown})")
        with out.indented("else:"):
            out.add(f"{self.add}(UVARINT[0])")

    def tagged(self, tagged: Tagged, source: str, struct: str, variable: str) -> None:
        """Encode one tagged field on its own, since its size comes before it."""
        content = tagged.content
        if tagged.field.has_default and tagged.field.default is None:
            content = tuple(_not_null(step) for step in content)
        outer = self.add, self.chunks
        self.chunks, self.add = self.out.fresh("part"), self.out.fresh("add")
        self.out.add(f"{self.chunks}: list[Chunk] = []")
        self.out.add(f"{self.add} = {self.chunks}.append")
        self.steps(content, source, struct)
        self.out.add(f"{variable}.append(({tagged.tag}, join({self.chunks})))")
        self.add, self.chunks = outer


def _not_null(step: Step) -> Step:
    """The same bytes, for a value that is known not to be null."""
    if isinstance(step.tail, Blob | FixedArray | BlobArray | StructArray):
        return replace(step, tail=replace(step.tail, nullable=False))
    return step


def spell_versions(versions: list[int]) -> str:
    """`[3, 4, 5, 7]` -> `3-5, 7`."""
    parts: list[list[int]] = []
    for version in versions:
        if parts and version == parts[-1][-1] + 1:
            parts[-1].append(version)
        else:
            parts.append([version])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
