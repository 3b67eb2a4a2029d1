"""`kill -9` of `assay run` at random moments: afterwards no trial is lost or counted twice, and nothing of ours is left.

Every round begins a competition, kills its run once or more often, lets it come to its end, and then looks: at the evidence, at
what is kept, at processes, mounts, folders and control groups.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from assay.judge.terminal.record import TrialStore, stored_trials
from bench import small

TASKS, TRIALS, JOBS = 3, 2, 2
PAUSE = 0.1
"""Seconds of the agent, so that kills fall into it as well as between trials."""
IN_A_ROW = 3
PATIENCE = 120.0
"""Seconds until what was killed must have cleared up after itself."""
_GROUP = re.compile(r"assay-\d+-(\d+)-(\d+)-\d+")


def kills(folder: Path, count: int, seed: int) -> int:
    """Carries out so many kills and prints what came of them; how many rounds something was wrong in."""
    draw = random.Random(seed)
    scratch = Path(tempfile.mkdtemp(prefix="assay-bench-", dir="/var/tmp"))
    scratch.chmod(0o755)
    env = os.environ | {"ASSAY_SCRATCH": str(scratch / "boxes")}
    groups_before = _dead_groups()
    template = small.competition(folder / "template", tasks=TASKS, trials=TRIALS, pause=PAUSE)
    wrong: list[str] = []
    known: set[str] = set()
    done = rounds = judged_by_killed = 0
    try:
        whole = _whole(_copy(template, folder / "first"), env)
        while done < count:
            rounds += 1
            place = _copy(template, folder / f"round-{rounds}")
            for _ in range(min(draw.randint(1, IN_A_ROW), count - done)):
                _killed(place, env, draw.uniform(0, whole))
                done += 1
            judged_by_killed += len(_lines(place))
            _whole(place, env)
            left = _left(place, scratch, groups_before, known)
            known |= left
            wrong += [f"round {rounds}: {each}" for each in (*_evidence(place), *sorted(left))]
            shutil.rmtree(place)
    finally:
        for pid in _processes(os.fsencode(scratch)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(scratch, ignore_errors=True)
    trials = 2 * TASKS * TRIALS
    print(f"\n{f'kill -9 of a run of {trials} trials, seed {seed}':52}")
    rows = {
        "kills": done,
        "rounds, each run to its end afterwards": rounds,
        "trials that a killed run had done": judged_by_killed,
        "trials that there should be, in all rounds": rounds * trials,
        "rounds with a trial lost or twice, or anything left": len({each.split(":")[0] for each in wrong}),
    }
    for what, value in rows.items():
        print(f"{what:52}{value:8}")
    for each in wrong[:20]:
        print(f"  {each}")
    sys.stdout.flush()
    return len(wrong)


def _command(place: Path) -> list[str]:
    return [sys.executable, "-m", "assay", "run", str(place), "--validator", small.VALIDATOR, "--jobs", str(JOBS), "--quiet"]


def _whole(place: Path, env: dict[str, str]) -> float:
    """Runs to the end; how long that takes."""
    began = time.monotonic()
    ran = subprocess.run(_command(place), env=env, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"assay run ended with {ran.returncode}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return time.monotonic() - began


def _killed(place: Path, env: dict[str, str], after: float) -> None:
    process = subprocess.Popen(_command(place), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _copy(template: Path, place: Path) -> Path:
    shutil.copytree(template, place, symlinks=True)
    return place


def _lines(place: Path) -> list[tuple[str, str, int, str]]:
    file = TrialStore(place, small.VALIDATOR).evidence
    rows = (
        [json.loads(line) for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        if file.exists()
        else []
    )
    return [(row["participant"], row["task"], row["trial"], row["outcome"]) for row in rows]


def _evidence(place: Path) -> list[str]:
    """The errors in the evidence that was judged."""
    counts = Counter(_lines(place))
    wanted = {
        (who, f"t{task:03}", trial, outcome)
        for who, outcome in ((small.SOLVER, "pass"), (small.IDLER, "fail"))
        for task in range(TASKS)
        for trial in range(1, TRIALS + 1)
    }
    results = Counter((record.participant, record.task, record.trial, str(record.outcome)) for _, record in stored_trials(place))
    wrong = [f"lost: {each}" for each in sorted(wanted - counts.keys())]
    wrong += [f"not expected: {each}" for each in sorted(counts.keys() - wanted)]
    wrong += [f"counted {times} times: {each}" for each, times in sorted(counts.items()) if times > 1]
    wrong += [f"kept otherwise than written: {each}" for each in sorted(results.keys() ^ counts.keys())]
    return wrong


def _left(place: Path, scratch: Path, groups_before: set[str], known: set[str]) -> set[str]:
    """The remains that were not there before. Processes of a killed run may take a moment to see that nobody listens to them."""
    until = time.monotonic() + PATIENCE
    while (remains := set(_now(place, scratch, groups_before)) - known) and time.monotonic() < until:
        time.sleep(0.1)
    return remains


def _now(place: Path, scratch: Path, groups_before: set[str]) -> list[str]:
    remains = [f"process {pid}" for pid in _processes(os.fsencode(scratch))]
    remains += [
        f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(scratch) in line
    ]
    remains += [f"folder {box.name}" for box in (scratch / "boxes").glob("run-*")]
    remains += [f"unfinished {partial.name}" for partial in (place / "trials").rglob(".partial/*")]
    return remains + [f"control group {name}" for name in sorted(_dead_groups() - groups_before)]


def _processes(mark: bytes) -> list[int]:
    """The processes that were started for this scratch folder: judges by their variables, boxes by their command line."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "cmdline").read_bytes() or mark in (entry / "environ").read_bytes():
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids


def _dead_groups() -> set[str]:
    """Control groups of processes that live no more."""
    groups = set()
    for _, names, _ in os.walk("/sys/fs/cgroup"):
        for name in names:
            match = _GROUP.fullmatch(name)
            if match is not None and _born(match[1]) != match[2]:
                groups.add(name)
    return groups


def _born(pid: str) -> str:
    """The start of a process; "" if none with this number lives. A process that only waits to be reaped is dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
