"""Plans to decoders: straight-line functions `(buf, pos) -> (message, next position)`.

The rule: before a value is read, it is known to lie before the end; before items are made, so many are known
to fit, and `left` says how many more entries of arrays and tagged fields the message may have.
"""

from __future__ import annotations

from codegen.emit import ARRAY_TABLES, Formats, Lines, class_alias, value_source
from codegen.model import FIXED_SIZES, Field, Message
from codegen.plan import COMPACT, Blob, BlobArray, FixedArray, Single, Step, StructArray, StructPlan, Tags

RECORDS = "view[pos:stop]"
"""Records are not copied: they are a part of the frame."""
PREFIX_SIZES = {"": 0, "b": 1, "B": 1, "h": 2, "i": 4}


def emit_decoder(message: Message, plan: StructPlan, name: str, formats: Formats) -> list[str]:
    """The lines of one decoder."""
    emitter = _Decoder(message, formats)
    out = emitter.out
    out.add("end = len(buf)")
    out.add(f"m = new({message.name})")
    emitter.struct(plan, "m")
    out.add("return m, pos")
    if any(RECORDS in line for line in out.lines):
        out.lines.insert(0, "    view = memoryview(buf)")
    parameters = "buf: Buffer, pos: int, left: int = NO_LIMIT"
    return [f"def {name}({parameters}) -> tuple[{message.name}, int]:", *out.lines]


class _Decoder:
    def __init__(self, message: Message, formats: Formats) -> None:
        self.message = message
        self.formats = formats
        self.out = Lines()
        self.end = "end"

    def struct(self, plan: StructPlan, target: str) -> None:
        self.steps(plan.steps, target, plan.struct)
        self.absent(plan, target)

    def absent(self, plan: StructPlan, target: str) -> None:
        for field in plan.absent:
            self.default(field, target)
        if not any(isinstance(step.tail, Tags) for step in plan.steps):
            self.out.add(f"{target}.unknown_tagged_fields = None")

    def default(self, field: Field, target: str) -> None:
        self.out.add(f"{target}.{field.attribute} = {value_source(self.message, field)}")

    def steps(self, steps: tuple[Step, ...], target: str, struct: str) -> None:
        for step in steps:
            self.run(step, target, struct)
            self.tail(step, target, struct)

    def run(self, step: Step, target: str, struct: str) -> None:
        """Read the fixed-width fields, and what the tail needs first into `n`."""
        if not step.format:
            return
        out = self.out
        size = step.fixed_size + PREFIX_SIZES[step.prefix]
        label = f'"{struct}.{_first_name(step)}"'
        if step.format == COMPACT:
            with out.indented(f"if pos >= {self.end}:"):
                out.add(f"raise cut_short({label}, pos, {self.end})")
            out.add("n = buf[pos]")
        else:
            with out.indented(f"if {self.end} - pos < {size}:"):
                out.add(f"raise cut_short({label}, pos, {self.end})")
            targets = [f"{target}.{field.attribute}" for field in step.fixed] + (["n"] if step.prefix else [])
            unpack = self.formats.name(step.format, "unpack_from")
            out.add(f"{_assigned(targets)} = {unpack}(buf, pos)")
        out.add(f"pos += {size}")

    def tail(self, step: Step, target: str, struct: str) -> None:
        tail = step.tail
        if isinstance(tail, Blob):
            self.blob(tail, f"{target}.{tail.attribute}", f'"{struct}.{tail.name}"')
        elif isinstance(tail, FixedArray | BlobArray | StructArray):
            self.array(tail, f"{target}.{tail.attribute}", f'"{struct}.{tail.name}"')
        elif isinstance(tail, Single):
            self.single(tail, f"{target}.{tail.attribute}", f'"{struct}.{tail.name}"')
        elif isinstance(tail, Tags):
            self.tags(tail, target, struct)

    # Lengths: `n` holds what was read; after these, `stop` is the end of the value.

    def null_or(self, prefix: str, nullable: bool, place: str, label: str) -> None:
        """Emit the handling of null; what is added after it is about a value that is there."""
        out = self.out
        null = "n == 0" if prefix == COMPACT else "n < 0"
        if nullable:
            with out.indented(f"if {null}:"):
                out.add(f"{place} = None")
            out.add("else:")
            out.depth += 1
        else:
            with out.indented(f"if {null}:"):
                out.add(f"raise null_value({label}, pos)")

    def long_length(self, prefix: str, reader: str, label: str) -> None:
        if prefix == COMPACT:
            with self.out.indented("if n > 127:"):
                self.out.add(f"n, pos = {reader}(buf, pos - 1, {self.end}, {label})")

    def blob(self, blob: Blob, place: str, label: str) -> None:
        out = self.out
        self.long_length(blob.prefix, "string_length" if blob.type == "string" else "read_uvarint", label)
        self.null_or(blob.prefix, blob.nullable, place, label)
        out.add("stop = pos + n - 1" if blob.prefix == COMPACT else "stop = pos + n")
        with out.indented(f"if stop > {self.end}:"):
            out.add(f"raise cut_short({label}, pos, {self.end})")
        value = {
            "string": 'str(buf[pos:stop], "utf-8", "replace")',
            "bytes": "bytes(buf[pos:stop])",
            "records": RECORDS,
        }[blob.type]
        out.add(f"{place} = {value}")
        out.add("pos = stop")
        out.depth -= blob.nullable

    def array(self, array: FixedArray | BlobArray | StructArray, place: str, label: str) -> None:
        out = self.out
        self.long_length(array.prefix, "read_uvarint", label)
        self.null_or(array.prefix, array.nullable, place, label)
        if array.prefix == COMPACT:
            out.add("n -= 1")
        size = _element_size(array)
        bytes_ = "n" if size == 1 else f"n * {size}"
        with out.indented(f"if {bytes_} > {self.end} - pos:"):
            out.add(f"raise cut_short({label}, pos, {self.end})")
        out.add("left -= n")
        with out.indented("if left < 0:"):
            out.add(f"raise too_many_entries({label}, pos)")
        if isinstance(array, FixedArray):
            out.add(f"{place} = list({ARRAY_TABLES[array.type]}[n].unpack_from(buf, pos))")
            out.add(f"pos += {bytes_}")
        elif isinstance(array, BlobArray):
            self.blobs(array, place, label)
        else:
            self.structs(array, place)
        out.depth -= array.nullable

    def blobs(self, array: BlobArray, place: str, label: str) -> None:
        out = self.out
        add, item = out.fresh("add"), out.fresh("s")
        out.add(f"{place} = []")
        out.add(f"{add} = {place}.append")
        with out.indented("for _ in range(n):"):
            self.run(Step((), array.element), "", f"{label[1:-1].rpartition('.')[0]}")
            self.blob(array.element, item, label)
            out.add(f"{add}({item})")

    def structs(self, array: StructArray, place: str) -> None:
        out = self.out
        add, item = out.fresh("add"), out.fresh("x")
        plan = array.element
        alias = class_alias(self.message, plan.struct)
        out.add(f"{place} = []")
        out.add(f"{add} = {place}.append")
        if len(plan.steps) == 1 and plan.steps[0].tail is None:
            step = plan.steps[0]
            out.add(f"stop = pos + n * {step.fixed_size}")
            unpack = self.formats.name(step.format, "iter_unpack")
            row = out.fresh("row")
            with out.indented(f"for {row} in {unpack}(buf[pos:stop]):"):
                out.add(f"{item} = new({alias})")
                out.add(f"{_assigned([f'{item}.{field.attribute}' for field in step.fixed])} = {row}")
                self.absent(plan, item)
                out.add(f"{add}({item})")
            out.add("pos = stop")
            return
        with out.indented("for _ in range(n):"):
            out.add(f"{item} = new({alias})")
            self.struct(plan, item)
            out.add(f"{add}({item})")

    def single(self, single: Single, place: str, label: str) -> None:
        out = self.out
        if single.nullable:
            self.long_length(single.prefix, "read_uvarint", label)
            with out.indented("if n == 0:" if single.prefix == COMPACT else "if n < 0:"):
                out.add(f"{place} = None")
            out.add("else:")
            out.depth += 1
        item = out.fresh("x")
        out.add(f"{item} = {place} = new({class_alias(self.message, single.element.struct)})")
        self.struct(single.element, item)
        out.depth -= single.nullable

    def tags(self, tags: Tags, target: str, struct: str) -> None:
        out = self.out
        if not tags.tagged:
            with out.indented("if n:"):
                out.add(
                    f"{target}.unknown_tagged_fields, pos = "
                    f'read_unknown_tags(buf, pos - 1, {self.end}, "{struct}", left)'
                )
                out.add(f"left -= len({target}.unknown_tagged_fields or ())")
            with out.indented("else:"):
                out.add(f"{target}.unknown_tagged_fields = None")
            return
        for tagged in tags.tagged:
            self.default(tagged.field, target)
        out.add(f"{target}.unknown_tagged_fields = None")
        with out.indented("if n:"):
            self.known_tags(tags, target, struct)

    def known_tags(self, tags: Tags, target: str, struct: str) -> None:
        out = self.out
        entries, after, tag, end, unknown = (
            out.fresh(stem) for stem in ("tags", "after", "tag", "end", "unknown")
        )
        out.add(f'{entries}, {after} = read_tags(buf, pos - 1, {self.end}, "{struct}", left)')
        out.add(f"left -= len({entries})")
        out.add(f"{unknown}: dict[int, bytes] = {{}}")
        outer, self.end = self.end, end
        with out.indented(f"for {tag}, pos, {end} in {entries}:"):
            word = "if"
            for tagged in tags.tagged:
                with out.indented(f"{word} {tag} == {tagged.tag}:"):
                    self.steps(tagged.content, target, struct)
                    with out.indented(f"if pos != {end}:"):
                        out.add(f'raise bad_tag_size("{struct}.{tagged.field.name}", pos, {end})')
                word = "elif"
            with out.indented("else:"):
                out.add(f"{unknown}[{tag}] = bytes(buf[pos:{end}])")
        self.end = outer
        out.add(f"pos = {after}")
        with out.indented(f"if {unknown}:"):
            out.add(f"{target}.unknown_tagged_fields = {unknown}")


def _assigned(targets: list[str]) -> str:
    return f"({targets[0]},)" if len(targets) == 1 else ", ".join(targets)


def _first_name(step: Step) -> str:
    if step.fixed:
        return step.fixed[0].name
    tail = step.tail
    return "tagged fields" if isinstance(tail, Tags) or tail is None else tail.name


def _element_size(array: FixedArray | BlobArray | StructArray) -> int:
    if isinstance(array, FixedArray):
        return FIXED_SIZES[array.type]
    if isinstance(array, BlobArray):
        return PREFIX_SIZES[array.element.prefix]
    return max(1, array.element.size_min)
