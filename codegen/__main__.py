"""`python -m codegen` checks the schemas and writes the generated code; `--check` only says what differs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from codegen.checks import check_messages
from codegen.layouts import check_layouts, extend_layouts
from codegen.model import SchemaError
from codegen.parse import load_messages
from codegen.render import load_errors, render_all

ROOT = Path(__file__).resolve().parent.parent


def main(argv: list[str] | None = None) -> int:
    """Return 0, or 1 if files differ or a schema breaks a rule."""
    options = _options(argv)
    schemas, generated = Path(options.schemas), Path(options.out)
    try:
        messages = load_messages(schemas)
        check_messages(messages)
        lock = schemas / "layouts.lock"
        if options.extend_layouts:
            extend_layouts(messages, lock)
        else:
            check_layouts(messages, lock)
        files = render_all(messages, load_errors(schemas / "errors.json"))
    except SchemaError as error:
        print(error, file=sys.stderr)
        return 1
    differing = different(files, generated)
    if options.check:
        for path in differing:
            print(f"{generated / path} differs from what `python -m codegen` writes", file=sys.stderr)
        return 1 if differing else 0
    write(files, differing, generated)
    print(f"{len(files)} files, {len(differing)} written or removed")
    return 0


def different(files: dict[str, str], generated: Path) -> list[str]:
    """The paths below `generated` that are missing, have another text, or should not be there."""
    present = {str(path.relative_to(generated)) for path in generated.rglob("*.py")}
    differing = [
        path for path, text in files.items() if path not in present or (generated / path).read_text() != text
    ]
    return sorted([*differing, *(present - set(files))])


def write(files: dict[str, str], differing: list[str], generated: Path) -> None:
    """Make the files below `generated` as they should be."""
    for path in differing:
        target = generated / path
        if path in files:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(files[path], encoding="utf-8")
        else:
            target.unlink()


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m codegen", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if any generated file differs"
    )
    parser.add_argument(
        "--extend-layouts",
        action="store_true",
        help="record the layouts of new versions in schemas/layouts.lock; recorded ones still cannot change",
    )
    parser.add_argument("--schemas", default=ROOT / "schemas", help="folder of the definitions")
    parser.add_argument(
        "--out", default=ROOT / "server/barnabas/wire/generated", help="folder of the generated code"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
