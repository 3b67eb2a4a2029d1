"""Changes the code in small ways, one at a time, and asks whether a test fails: settle, exact and the ledger's check.py.

    python tools/mutate.py                       60 mutants, always the same
    python tools/mutate.py --seed 7 --count 200  others, and more

A mutant is written into a copy of the package; the checkout is not touched. A mutant that no test notices has survived, and the
run fails unless ALLOWED says why it changes nothing. First all tests run without a mutant. With a mutant, the tests that are
named after its module come first, and the first failure ends the run. A run that takes too long has noticed it, too: see TIMES.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TIMES = 10
LEAST_SECONDS = 60.0
"""The time limit of a mutant: TIMES the time of the same tests without it, and no less than LEAST_SECONDS."""
PURE = ("tests/settle", "tests/ground")
CHECK = ("tests/ledger/test_ledger_check_*.py", "tests/ledger/test_ledger_note.py", "tests/ledger/test_ledger_attacks.py")
TESTS = {"assay/settle/**/*.py": PURE, "assay/exact.py": PURE, "assay/ledger/check.py": CHECK}
"""Files → the tests that have to notice; a third of the mutants is of each row."""
SHIFT = "shift = -min((exponent for p in powers.values() if isinstance(exponent := p.as_tuple().exponent, int)), default={})"
TOP = "top = max(scores, default={})"
CONTEXT = "return decimal.Context(digits, decimal.ROUND_HALF_EVEN, emin, emax, capitals=1, clamp={}, flags=[], traps=_TRAPS)"
CACHE = "_loaded = lru_cache(maxsize={})(Ed25519PublicKey.from_public_bytes)"
SIDE = "return int(answer) if isinstance(answer, bool) else -{}"
ALLOWED: dict[tuple[str, str, str], str] = {
    ("assay/exact.py", SHIFT.format("0"), SHIFT.format("(1)")): "Without scores there are no powers, so nothing is shifted.",
    ("assay/exact.py", TOP.format("0"), TOP.format("(1)")): "Without scores nothing is subtracted from it.",
    ("assay/exact.py", CONTEXT.format("0"), CONTEXT.format("(1)")): "Exponents stay below 500; clamping begins near 10^18.",
    ("assay/ledger/check.py", CACHE.format("1024"), CACHE.format("(1025)")): "How many keys are kept loaded changes no check.",
    (
        "assay/settle/score/panel.py",
        SIDE.format("1"),
        SIDE.format("(2)"),
    ): "Every number below 0 is no side, and is never counted.",
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

    @property
    def place(self) -> str:
        """The file and the number of its line."""
        line = self.source.count("\n", 0, self.begin) + 1
        return f"src/{self.file}:{line}"

    def __str__(self) -> str:
        _, before, after = self.change
        return f"{self.place}\n    - {before}\n    + {after}"


def changed(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that may stand in the place of a node."""
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


def _left_alone(tree: ast.AST) -> set[ast.AST]:
    """Nodes that are not changed: types, decorators, assertions, and what only people read, which tests need not pin down."""
    nodes: set[ast.AST] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.AnnAssign(annotation=annotation):
                parts = [annotation]
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                arguments = [argument.annotation for argument in ast.walk(node.args) if isinstance(argument, ast.arg)]
                parts = [node.returns, *arguments, *node.decorator_list]
            case ast.ClassDef(decorator_list=decorators):  # without frozen or slots a class does the same
                parts = [*decorators]
            case ast.JoinedStr() | ast.Raise() | ast.Assert():
                parts = [node]
            case ast.keyword(arg="strict"):  # of zip: an assertion, too
                parts = [node]
        nodes |= {inner for part in parts if part is not None for inner in ast.walk(part)}
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

    left_alone, changes = _left_alone(tree), []
    for node in ast.walk(tree):
        if node in left_alone or not isinstance(node, ast.expr) or node.end_lineno is None or node.end_col_offset is None:
            continue
        begin, end = position(node.lineno, node.col_offset), position(node.end_lineno, node.end_col_offset)
        changes += [Mutant(file, begin, end, f"({ast.unparse(expression)})") for expression in changed(node)]
    return changes


def drawn(seed: int, count: int) -> list[tuple[Mutant, tuple[str, ...]]]:
    """The mutants of this run, each with its tests: as many of each row of TESTS.

    The seed and the mutant's own lines decide whether it is drawn, so a change of other code leaves it in the draw.
    """

    def lot(mutant: Mutant) -> bytes:
        return hashlib.sha256("\n".join([str(seed), *mutant.change]).encode()).digest()

    pairs: list[tuple[Mutant, tuple[str, ...]]] = []
    for pattern, tests in TESTS.items():
        files = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.glob(pattern))
        every = [mutant for file in files for mutant in mutants(file)]
        pairs += [(mutant, tests) for mutant in sorted(every, key=lot)[: count // len(TESTS)]]
    return pairs


def ordered(tests: tuple[str, ...], mutant: Mutant | None) -> list[str]:
    """The files of tests, below the checkout: those named after the mutant's module first, and then those after its folders."""
    paths = [path for pattern in tests for path in sorted(ROOT.glob(pattern))]
    paths = [test for path in paths for test in (sorted(path.glob("test_*.py")) if path.is_dir() else [path])]
    files = [str(path.relative_to(ROOT)) for path in paths]
    if mutant is None:
        return files
    *folders, module = Path(mutant.file.removesuffix("/__init__.py")).with_suffix("").parts

    def rank(file: str) -> tuple[bool, int]:
        words = re.split("[/_.]", file)
        return module not in words, -len({*folders} & {*words})

    return sorted(files, key=rank)


class Copies:
    """Copies of the package, one for each run at a time, which keep the bytecode of what is not mutated."""

    def __init__(self, folder: Path, number: int) -> None:
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._running: set[int] = set()
        for index in range(number):
            place = folder / str(index)
            shutil.copytree(SOURCE, place, ignore=shutil.ignore_patterns("__pycache__"))
            self._free.put(place)

    def run(self, tests: tuple[str, ...], mutant: Mutant | None = None, seconds: float | None = None) -> Verdict:
        """Whether all tests pass with the mutant, or with the code as it is. A run that takes longer than `seconds` is ended."""
        place = self._free.get()
        if mutant is not None:
            source = mutant.source
            text = source[: mutant.begin] + mutant.text + source[mutant.end :]
            (place / mutant.file).write_text(text, encoding="utf-8")
            _forget(place / mutant.file)
        try:
            files = ordered(tests, mutant)
            verdict = self._pytest(place, files, seconds, mutant)
            if verdict.code < 0:  # ended by a signal, perhaps for lack of memory that others used
                verdict = self._pytest(place, files, seconds, mutant)
            return verdict
        finally:
            if mutant is not None:
                shutil.copy2(SOURCE / mutant.file, place / mutant.file)  # with its old time, which no bytecode of a mutant has
                _forget(place / mutant.file)
            self._free.put(place)

    def _pytest(self, place: Path, files: list[str], seconds: float | None, mutant: Mutant | None) -> Verdict:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *files]
        env = os.environ | {"PYTHONPATH": str(place), "ASSAY_PROFILE": "check"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        begin = time.monotonic()
        with (
            tempfile.TemporaryFile() as output,
            subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=output, start_new_session=True) as process,
        ):
            self._running.add(process.pid)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                return Verdict(1, time.monotonic() - begin, "took too long")
            finally:
                self._running.discard(process.pid)
                _kill(process.pid)  # programs that a test started, too
            output.seek(0)
            printed = output.read().decode(errors="replace")
        if process.returncode not in (0, 1, 2) and process.returncode > 0:  # 1: a test failed; 2: a test could not be imported
            raise SystemExit(f"pytest ended with {process.returncode} for {mutant}\n{printed}")
        if mutant is None and process.returncode:
            raise SystemExit(f"the tests fail without a mutant\n{printed}")
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.MULTILINE)
        noticed = "" if process.returncode == 0 else failed[1] if failed else f"pytest's exit code was {process.returncode}"
        return Verdict(process.returncode, time.monotonic() - begin, noticed)

    def end(self) -> None:
        """End the runs that are under way."""
        for pid in tuple(self._running):
            _kill(pid)


@dataclass(frozen=True)
class Verdict:
    """What a run of tests came to: pytest's exit code, 0 if all passed; how long it took; what noticed the mutant."""

    code: int
    seconds: float
    noticed: str


def _forget(file: Path) -> None:
    """Remove the bytecode of a file: Python takes it for that of another text with the same size and second of change."""
    for bytecode in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        bytecode.unlink()


def _kill(group: int) -> None:
    """End a process and everything it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def survivors(copies: Copies, jobs: int, pairs: list[tuple[Mutant, tuple[str, ...]]]) -> list[Mutant]:
    """The mutants that no test notices. Prints a line for each mutant when it is decided."""
    alive = set()
    with ThreadPoolExecutor(jobs) as pool:
        try:
            # Without this, every mutant would seem to be noticed by tests that fail anyway.
            rows = list(dict.fromkeys(TESTS.values()))
            limits = {}
            for tests, verdict in zip(rows, pool.map(copies.run, rows), strict=True):
                limits[tests] = max(LEAST_SECONDS, TIMES * verdict.seconds)
                print(
                    f"without a mutant: {verdict.seconds:.1f} s, so a mutant has {limits[tests]:.0f} s: {' '.join(tests)}",
                    flush=True,
                )
            runs: dict[Future[Verdict], Mutant] = {
                pool.submit(copies.run, tests, mutant, limits[tests]): mutant for mutant, tests in pairs
            }
            for number, run in enumerate(as_completed(runs), 1):
                mutant, verdict = runs[run], run.result()
                if verdict.code == 0:
                    alive.add(mutant)
                word = "killed" if verdict.code else "SURVIVED"
                print(f"{number}/{len(runs)} {word} in {verdict.seconds:.1f} s: {mutant.place} {verdict.noticed}", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            copies.end()
            raise
    return [mutant for mutant, _ in pairs if mutant in alive]


def main() -> int:
    """1 where a mutant survived that is not allowed to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    begin = time.monotonic()
    pairs = drawn(options.seed, options.count)
    with tempfile.TemporaryDirectory(prefix="assay-mutants-") as folder:
        alive = survivors(Copies(Path(folder), options.jobs), options.jobs, pairs)
    wrong = [mutant for mutant in alive if mutant.change not in ALLOWED]
    for mutant in alive:
        print(f"survived: {mutant}\n    {ALLOWED.get(mutant.change, 'no test notices this')}")
    print(
        f"{len(pairs)} mutants (seed {options.seed}): {len(pairs) - len(alive)} killed, {len(alive)} survived, "
        f"{len(alive) - len(wrong)} of them allowed; {(time.monotonic() - begin) / 60:.1f} minutes"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
