"""Small definitions for tests of the protocol compiler, and the code generated from them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from codegen.model import Message
from codegen.parse import parse_message
from codegen.render import group, render_module


def definition(name: str = "PingRequest", *, fields: list[dict[str, Any]], **keys: Any) -> Message:
    """A request with the given fields; other keys of the definition as arguments."""
    head = {"apiKey": 500, "type": "request", "name": name, "validVersions": "0-3", "flexibleVersions": "2+"}
    message = parse_message(
        json.dumps({**head, "fields": fields, **keys}), Path(f"schemas/api/500_{name}.json")
    )
    assert message is not None
    return message


def write_schemas(folder: Path, *definitions: dict[str, Any], errors: bool = True) -> Path:
    """Write definitions and an empty list of error codes, as `schemas/` has them."""
    (folder / "api").mkdir(parents=True, exist_ok=True)
    for api in definitions:
        (folder / "api" / f"{api['apiKey']:03d}_{api['name']}.json").write_text(json.dumps(api))
    if errors:
        (folder / "errors.json").write_text(
            json.dumps({"errors": [{"code": 0, "name": "NONE", "retriable": False}]})
        )
    return folder


def compile_module(folder: Path, *messages: Message) -> ModuleType:
    """The module generated from `messages`, which belong together, imported from `folder`."""
    (module,) = group(list(messages))
    name = f"generated_for_test_{module.name}"
    path = folder / f"{name}.py"
    path.write_text(render_module(module))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded
