"""Changes the code in small ways, one at a time, and asks whether a test fails: settle, exact and the ledger's check.py.

    python tools/mutate.py                       60 mutants, always the same
    python tools/mutate.py --seed 7 --count 200  others, and more

A mutant is written into a copy of the package; the checkout is not touched. One that no test notices has survived, and the run
fails unless ALLOWED says why it changes nothing. A test that runs longer than SECONDS has noticed it.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
SECONDS = 900.0
PURE = ("tests/settle", "tests/ground")
CHECK = ("tests/ledger/test_ledger_check_*.py", "tests/ledger/test_ledger_note.py", "tests/ledger/test_ledger_attacks.py")
TESTS = {"assay/settle/**/*.py": PURE, "assay/exact.py": PURE, "assay/ledger/check.py": CHECK}
"""Files → the tests that have to notice; a third of the mutants is of each row."""
SHIFT = "shift = -min((exponent for p in powers.values() if isinstance(exponent := p.as_tuple().exponent, int)), default={})"
TOP = "top = max(scores, default={})"
CONTEXT = "return decimal.Context(digits, decimal.ROUND_HALF_EVEN, emin, emax, capitals=1, clamp={}, flags=[], traps=_TRAPS)"
ALLOWED: dict[tuple[str, str, str], str] = {
    ("assay/exact.py", SHIFT.format("0"), SHIFT.format("(1)")): "Without scores there are no powers, so nothing is shifted.",
    ("assay/exact.py", TOP.format("0"), TOP.format("(1)")): "Without scores nothing is subtracted from it.",
    ("assay/exact.py", CONTEXT.format("0"), CONTEXT.format("(1)")): "Exponents stay below 500; clamping begins near 10^18.",
}
"""(file, line of code before, after) → why the program does the same."""

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    """One change: the file below src, the character positions it replaces, and what with."""

    file: str
    begin: int
    end: int
    text: str

    @property
    def source(self) -> str:
        """The file as it is."""
        return (SOURCE / self.file).read_text(encoding="utf-8")

    @property
    def change(self) -> tuple[str, str, str]:
        """The file, and its line before and after, without blanks around it."""
        source = self.source
        begin = source.rfind("\n", 0, self.begin) + 1
        end = (source + "\n").index("\n", self.end)
        after = source[begin : self.begin] + self.text + source[self.end : end]
        return self.file, " ".join(source[begin:end].split()), " ".join(after.split())

    def __str__(self) -> str:
        line = self.source.count("\n", 0, self.begin) + 1
        _, before, after = self.change
        return f"src/{self.file}:{line}\n    - {before}\n    + {after}"


def changed(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that may stand in the place of one."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=comparators):
            yield from (ast.Compare(left, [other()], comparators) for other in COMPARED.get(type(op), ()))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in COMPUTED:
            yield ast.BinOp(left, COMPUTED[type(operator)](), right)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)


def _unseen(tree: ast.AST) -> set[ast.AST]:
    """Nodes that are left alone: types, and what is only shown to people, which tests need not pin down."""
    nodes: set[ast.AST] = set()
    for node in ast.walk(tree):
        inner: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign):
            inner = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = [node.returns, *(arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg))]
            inner += node.decorator_list
        elif isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
            inner = [node]
        nodes |= {child for part in inner if part is not None for child in ast.walk(part)}
    return nodes


def mutants(file: str) -> list[Mutant]:
    """All mutants of a file."""
    source = (SOURCE / file).read_text(encoding="utf-8")
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def position(line: int, column: int) -> int:
        row = source[starts[line - 1] : starts[line]].encode()
        return starts[line - 1] + len(row[:column].decode())

    left_alone, mutants = _unseen(tree), []
    for node in ast.walk(tree):
        if node in left_alone or not isinstance(node, ast.expr) or node.end_lineno is None or node.end_col_offset is None:
            continue
        begin, end = position(node.lineno, node.col_offset), position(node.end_lineno, node.end_col_offset)
        mutants += [Mutant(file, begin, end, f"({ast.unparse(replacement)})") for replacement in changed(node)]
    return mutants


def drawn(seed: int, count: int) -> list[tuple[Mutant, tuple[str, ...]]]:
    """The mutants of this run, each with its tests: as many of each row of TESTS, in an order that the seed gives."""
    draw, pairs = random.Random(seed), []
    for pattern, tests in TESTS.items():
        files = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.glob(pattern))
        every = [mutant for file in files for mutant in mutants(file)]
        pairs += [(mutant, tests) for mutant in draw.sample(every, min(len(every), count // len(TESTS)))]
    return pairs


def passes(tests: tuple[str, ...], mutant: Mutant | None = None) -> bool:
    """Whether all tests pass with the mutant, or with the code as it is."""
    with tempfile.TemporaryDirectory(prefix="assay-mutant-") as folder:
        place = Path(folder) / "src"
        shutil.copytree(SOURCE, place, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            source = mutant.source
            (place / mutant.file).write_text(source[: mutant.begin] + mutant.text + source[mutant.end :], encoding="utf-8")
        files = [str(path.relative_to(ROOT)) for pattern in tests for path in sorted(ROOT.glob(pattern))]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *files]
        env = os.environ | {"PYTHONPATH": str(place), "ASSAY_PROFILE": "check"}
        try:
            ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return False
    if ran.returncode not in (0, 1, 2):  # 1: a test failed; 2: a test could not be imported
        raise SystemExit(f"pytest ended with {ran.returncode} for {mutant}\n{ran.stdout.decode()}{ran.stderr.decode()}")
    if mutant is None and ran.returncode:
        raise SystemExit(f"the tests fail without a mutant\n{ran.stdout.decode()}")
    return ran.returncode == 0


def main() -> int:
    """1 where a mutant survived that is not allowed to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    every = drawn(options.seed, options.count)
    with ThreadPoolExecutor(options.jobs) as pool:
        for _ in pool.map(passes, dict.fromkeys(TESTS.values())):  # or every mutant would seem to be noticed
            pass
        passed = list(pool.map(lambda pair: passes(pair[1], pair[0]), every))
    survivors = [mutant for (mutant, _), alive in zip(every, passed, strict=True) if alive]
    wrong = [mutant for mutant in survivors if mutant.change not in ALLOWED]
    for mutant in survivors:
        print(f"survived: {mutant}\n    {ALLOWED.get(mutant.change, 'no test notices this')}")
    print(
        f"{len(every)} mutants (seed {options.seed}): {len(every) - len(survivors)} killed, {len(survivors)} survived, "
        f"{len(survivors) - len(wrong)} of them allowed"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
