"""Every module of the measurements and comparisons can be imported, also those that no test runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CODE = """
import importlib, pkgutil
for top in ("bench", "compat", "tools"):
    for module in pkgutil.walk_packages(importlib.import_module(top).__path__, f"{top}."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except SystemExit:
                pass
            except ModuleNotFoundError as error:  # what Spark or plots need is not here in every set-up
                if (error.name or "").split(".")[0] in ("barnabas", "bench", "codegen", "compat", "tests", "tools"):
                    print(f"{module.name}: {error!r}")
            except Exception as error:
                print(f"{module.name}: {error!r}")
"""


def test_every_module_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
