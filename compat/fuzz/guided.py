"""python -m compat.fuzz.guided TARGET [libFuzzer's options]: a function of bytes, guided by coverage.

    pip install atheris
    python -m compat.fuzz.guided decode -max_total_time=60
    python -m compat.fuzz.guided login -max_total_time=60    # all that a client sends before a login, to a whole broker

The functions are those of `compat.fuzz.pure`, and `compat.fuzz.guided_login`.

Inputs that reach new code are kept below `.data/fuzz/TARGET`; one that shows a bug is written to the current directory, and
belongs into `compat/fuzz/corpus/TARGET`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compat.fuzz.guided_login import GuidedLogin
    from compat.fuzz.pure import Pure

ROOT = Path(__file__).resolve().parents[2]


def main(argv: list[str]) -> int:
    """Run until libFuzzer ends; returns the exit code."""
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: pip install atheris")
        return 2
    with atheris.instrument_imports(include=["barnabas"]):
        from compat.fuzz import pure
        from compat.fuzz.guided_login import GuidedLogin
    login = GuidedLogin()
    targets: dict[str, Pure | GuidedLogin] = {
        login.name: login,
        **{decoder.name: decoder for decoder in pure.PURE},
    }
    if not argv or argv[0] not in targets:
        print(f"python -m compat.fuzz.guided {'|'.join(targets)} [options of libFuzzer]")
        return 2
    chosen = targets[argv[0]]
    corpus = ROOT / ".data" / "fuzz" / f"corpus-{chosen.name}"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate([*chosen.seeds(), *pure.corpus_of(chosen.name)]):
        (corpus / f"seed-{number}").write_bytes(data)
    atheris.Setup([sys.argv[0], str(corpus), *argv[1:]], chosen.check)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
