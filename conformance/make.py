"""Writes the case files of this folder again, from `making/`; with --check, fails if one is out of date instead.

    .venv/bin/python conformance/make.py

Every output is the package's, held to what is written by hand and to the oracle of the tests, which shares no code with it.
Where they differ nothing is written.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]


def main(arguments: list[str]) -> int:
    """0 if all is written (or as it should be), 1 if not."""
    from making.build import FILES, Disagreement, case_text

    try:
        texts = {f"{file.name}.json": case_text(file) for file in FILES}
    except Disagreement as error:
        sys.stderr.write(f"{error}\nnothing is written\n")
        return 1
    old = {path.name: path.read_text(encoding="utf-8") for path in HERE.glob("*.json") if not path.name.endswith(".schema.json")}
    stale = sorted(name for name in {*old, *texts} if old.get(name) != texts.get(name))
    if arguments == ["--check"]:
        sys.stderr.writelines(f"{name} is not what conformance/make.py writes: run it\n" for name in stale)
        return 1 if stale else 0
    for name in stale:
        if name in texts:
            (HERE / name).write_text(texts[name], encoding="utf-8")
        else:
            (HERE / name).unlink()
    cases = sum(len(file.drafts) for file in FILES)
    sys.stdout.write(f"{cases} cases in {len(texts)} files, {sum(map(len, texts.values())) // 1000} kB; written: {len(stale)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
