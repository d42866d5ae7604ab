"""Avro's rules of resolution: whether a reader's type reads all values of a writer's type.

The rule: verdicts and their names are those of SchemaCompatibility in Avro's Java library, as in other registries. Only the
last part of a name is compared, so that a type may move to another namespace; an alias is compared as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.registry.formats.avro_types import Field, Type
from barnabas.registry.formats.comparing import Comparison, Outcome, Rules, messages

_PROMOTED = {
    "long": ("int",), "float": ("int", "long"), "double": ("int", "long", "float"),
    "bytes": ("string",), "string": ("bytes",),
}  # fmt: skip
"""Types that are promoted to a reader's type."""


def breaks(reader: Type, writer: Type) -> list[str]:
    """Return the differences that prevent reading. Raises SchemaError if the comparison takes too many steps."""
    rules = _Rules()
    comparison = Comparison(rules.compare, lambda *pair: (id(pair[0]), id(pair[1])))
    rules.spend = comparison.spend
    try:
        return messages(comparison.run(reader, writer), _told, once=True)
    except _AmbiguousError as error:
        return [f"Unexpected exception during compatibility check: {error}"]


def _told(kind: str, path: str, text: str) -> str:
    return f"{{errorType:'{kind}', description:'{text}', path:'/{path}'}}"


class _AmbiguousError(Exception):
    """A field is several of the writer's, upon which Java's library gives no verdict, and registries refuse."""


class _Rules:
    """Rules of one comparison of pairs of a reader's and a writer's type."""

    def __init__(self) -> None:
        self.spend: Callable[[int], None] = lambda _: None
        self._fields: dict[int, dict[str, Field]] = {}
        self._branches: dict[int, dict[str, list[Type]]] = {}

    def compare(self, reader: Type, writer: Type, outcome: Outcome) -> Rules:
        """Compare two types."""
        if writer.kind == "union":
            for number, branch in enumerate(writer.branches):
                inner = yield reader, branch
                if reader.kind != "union":
                    outcome.include("", inner)
                elif not inner.fits:
                    text = f"the reader's union lacks {_name(branch)}"
                    outcome.add("MISSING_UNION_BRANCH", str(number), text)
        elif reader.kind == "union":
            for branch in self._candidates(reader, writer):
                inner = yield branch, writer
                if inner.fits:
                    return
            outcome.add("MISSING_UNION_BRANCH", "", f"no type of the reader's union takes {_name(writer)}")
        elif reader.kind != writer.kind:
            if writer.kind not in _PROMOTED.get(reader.kind, ()):
                text = f"the reader's type {_name(reader)} does not take {_name(writer)}"
                outcome.add("TYPE_MISMATCH", "", text)
        elif reader.kind in ("array", "map"):
            inner = yield reader.inner, writer.inner
            outcome.include("items" if reader.kind == "array" else "values", inner)
        elif reader.name:
            yield from self._named(reader, writer, outcome)

    def _candidates(self, union: Type, writer: Type) -> Iterator[Type]:
        """Yield the branches of a union that may read a type, by kind, promotion and name."""
        by_kind = self._branches.get(id(union))
        if by_kind is None:
            by_kind = self._branches[id(union)] = {}
            for branch in union.branches:
                names = [_last(branch.name), *branch.aliases] if branch.name else [""]
                for name in names:
                    by_kind.setdefault(f"{branch.kind} {name}", []).append(branch)
            self.spend(len(union.branches))
        if writer.name:
            for name in dict.fromkeys((_last(writer.name), writer.name)):
                yield from by_kind.get(f"{writer.kind} {name}", ())
        else:
            for kind in (writer.kind, *_PROMOTIONS.get(writer.kind, ())):
                yield from by_kind.get(f"{kind} ", ())

    def _named(self, reader: Type, writer: Type, outcome: Outcome) -> Rules:
        if _last(reader.name) != _last(writer.name) and writer.name not in reader.aliases:
            outcome.add("NAME_MISMATCH", "name", f"the reader's {reader.name} is not {writer.name}")
        if reader.kind == "fixed":
            if reader.size != writer.size:
                text = f"the reader's size is {reader.size}, the writer's {writer.size}"
                outcome.add("FIXED_SIZE_MISMATCH", "size", text)
        elif reader.kind == "enum":
            self.spend(len(reader.symbols) + len(writer.symbols))
            there = set(reader.symbols)
            missing = [symbol for symbol in writer.symbols if symbol not in there]
            if missing and reader.default is None:
                outcome.add("MISSING_ENUM_SYMBOLS", "symbols", f"the reader lacks {', '.join(missing)}")
        else:
            for number, field in enumerate(reader.fields):
                yield from self._field(field, writer, outcome, f"fields/{number}")

    def _field(self, reader: Field, writer: Type, outcome: Outcome, path: str) -> Rules:
        fields = self._fields.get(id(writer))
        if fields is None:
            fields = self._fields[id(writer)] = {field.name: field for field in writer.fields}
            self.spend(len(fields))
        self.spend(1 + len(reader.aliases))
        same = [fields[name] for name in dict.fromkeys((reader.name, *reader.aliases)) if name in fields]
        if len(same) > 1:
            raise _AmbiguousError(
                f"the reader's field {reader.name} and its aliases name several of the writer's fields"
            )
        if same:
            inner = yield reader.type, same[0].type
            outcome.include(f"{path}/type", inner)
        elif not reader.has_default:
            text = f"the field {reader.name} has no default value and is not among the writer's"
            outcome.add("READER_FIELD_MISSING_DEFAULT_VALUE", path, text)


_PROMOTIONS = {
    writer: [reader for reader, takes in _PROMOTED.items() if writer in takes]
    for writer in ("int", "long", "float", "bytes", "string")
}
"""Types that take a writer's for their own."""


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _name(of: Type) -> str:
    return of.name or of.kind
