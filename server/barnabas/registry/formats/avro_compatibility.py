"""Avro's rules of resolution: whether a reader's type reads all that a writer's type writes.

The rule: verdicts and their names are those of SchemaCompatibility of Avro's Java library, which registries give.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.registry.formats.avro_types import Field, Type

_PROMOTED = {
    "long": ("int",), "float": ("int", "long"), "double": ("int", "long", "float"),
    "bytes": ("string",), "string": ("bytes",),
}  # fmt: skip
"""Types that a reader takes for its own."""


def breaks(reader: Type, writer: Type) -> list[str]:
    """Say what cannot be read."""
    return list(_Comparing().found(reader, writer, "/"))


class _Comparing:
    """One comparison. A pair of types that is being compared is taken to fit: all else about it is said where it began."""

    def __init__(self) -> None:
        self._pairs: set[tuple[int, int]] = set()

    def found(self, reader: Type, writer: Type, path: str) -> Iterator[str]:
        if reader.name and writer.name:
            pair = id(reader), id(writer)
            if pair in self._pairs:
                return
            self._pairs.add(pair)
        if writer.kind == "union":
            yield from self._of_union(reader, writer, path)
        elif reader.kind == "union":
            if not any(self._fits(one, writer) for one in reader.branches):
                yield _said(
                    "MISSING_UNION_BRANCH", f"no type of the reader's union takes {_name(writer)}", path
                )
        elif reader.kind != writer.kind:
            if writer.kind not in _PROMOTED.get(reader.kind, ()):
                yield _said(
                    "TYPE_MISMATCH", f"the reader's type {_name(reader)} does not take {_name(writer)}", path
                )
        elif reader.kind in ("array", "map"):
            word = "items" if reader.kind == "array" else "values"
            yield from self.found(reader.inner, writer.inner, _below(path, word))
        elif reader.name:
            yield from self._of_named(reader, writer, path)

    def _fits(self, reader: Type, writer: Type) -> bool:
        """Say whether a branch fits, of which nothing is remembered if it does not."""
        before = set(self._pairs)
        fits = next(self.found(reader, writer, ""), None) is None
        if not fits:
            self._pairs = before
        return fits

    def _of_union(self, reader: Type, writer: Type, path: str) -> Iterator[str]:
        for number, one in enumerate(writer.branches):
            if reader.kind != "union":
                yield from self.found(reader, one, path)
            elif not any(self._fits(branch, one) for branch in reader.branches):
                yield _said(
                    "MISSING_UNION_BRANCH",
                    f"the reader's union lacks {_name(one)}",
                    _below(path, str(number)),
                )

    def _of_named(self, reader: Type, writer: Type, path: str) -> Iterator[str]:
        if reader.name != writer.name and writer.name not in reader.aliases:
            yield _said(
                "NAME_MISMATCH", f"the reader's {reader.name} is not {writer.name}", _below(path, "name")
            )
        if reader.kind == "fixed":
            if reader.size != writer.size:
                yield _said(
                    "FIXED_SIZE_MISMATCH",
                    f"the reader's size is {reader.size}, the writer's {writer.size}",
                    _below(path, "size"),
                )
        elif reader.kind == "enum":
            missing = [one for one in writer.symbols if one not in reader.symbols]
            if missing and reader.default is None:
                yield _said(
                    "MISSING_ENUM_SYMBOLS", f"the reader lacks {', '.join(missing)}", _below(path, "symbols")
                )
        else:
            for number, one in enumerate(reader.fields):
                yield from self._of_field(one, writer, _below(path, f"fields/{number}"))

    def _of_field(self, reader: Field, writer: Type, path: str) -> Iterator[str]:
        for name in (reader.name, *reader.aliases):
            for one in writer.fields:
                if one.name == name:
                    yield from self.found(reader.type, one.type, _below(path, "type"))
                    return
        if not reader.has_default:
            yield _said(
                "READER_FIELD_MISSING_DEFAULT_VALUE",
                f"the field {reader.name} has no default value and is not among the writer's",
                path,
            )


def _below(path: str, word: str) -> str:
    return f"{path.rstrip('/')}/{word}"


def _name(of: Type) -> str:
    return of.name or of.kind


def _said(kind: str, text: str, path: str) -> str:
    return f"{{errorType:'{kind}', description:'{text}', path:'{path}'}}"
