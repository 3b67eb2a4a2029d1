"""Writes the input files of every example: `python examples/make.py`. The same bytes everywhere; READMEs are written by hand.

The names are invented and the numbers chosen, so that each rule shows once. A scheme.toml is the preset as it ships.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.errors import AssayError
from assay.judge.github.accounts import AccountClaim, signed_block
from assay.judge.terminal import competition
from assay.judge.terminal.agent import load_agent
from assay.judge.terminal.tasks import read_tasks
from assay.judge.workflow.planner import load_planner
from assay.judge.workflow.tasks import everything, manifest_text
from assay.ledger import keys
from assay.scheme.load import presets

HERE = Path(__file__).parent
GENESIS = datetime(2026, 11, 2, tzinfo=UTC)
EPOCH = timedelta(minutes=72)  # 360 blocks of 12 seconds
TAO = 10**9
PARTICIPANTS = ("key", "uid", "name", "submission", "submitted_at", "last_reset_epoch", "address")
VALIDATORS = ("key", "stake", "name")
BY_HAND = (
    "agonaut/",
    "base/",
    "benchmark/",
    "latency/",
    "term-challenge/tasks/",
    "term-challenge/agents/",
    "term-challenge/audited",
    "term-challenge/publish",
    "term-challenge/subnet.py",
    "cswon/tasks/",
    "cswon/planners/clove/",
    "cswon/serve.py",
    "cswon/services.toml",
    "bounty-challenge/github.py",
)
"""What is written by hand."""
JUDGED = ("term-challenge/evidence/", "term-challenge/trials/", "cswon/evidence/", "cswon/workflows/")  # `assay run` makes them
Record = dict[str, Any]
Files = dict[str, str]


def at(epoch: int, minutes: int = 0) -> str:
    """A time within an epoch, RFC 3339."""
    return (GENESIS + epoch * EPOCH + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def sha(text: str) -> str:
    """The digest by which a submission is known."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV file; None is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


def lines(records: Iterable[Record]) -> str:
    """A JSONL file."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def evidence(folder: str, records: Iterable[Record]) -> Files:
    """One file a validator."""
    by_validator: dict[str, list[Record]] = {}
    for record in records:
        by_validator.setdefault(record["validator"], []).append(record)
    return {f"{folder}/evidence/{validator}.jsonl": lines(own) for validator, own in by_validator.items()}


def record(kind: str, epoch: int, validator: str, participant: str, submission: str, minutes: int, **fields: Any) -> Record:
    """A record of evidence with its fields in the order of the format."""
    common = {"kind": kind, "epoch": epoch, "validator": validator, "participant": participant, "submission": submission}
    return {**common, "observed_at": at(epoch, minutes), **fields}


OUTCOME = {"+": "pass", "-": "fail", "t": "timeout", "!": "error"}


def trials(epoch: int, validator: str, participant: str, submission: str, tasks: Sequence[str], run: str) -> Iterator[Record]:
    """One validator's run: a sign for each task, + pass, - fail, t timeout, ! error (of the validator's machine)."""
    for number, (task, sign) in enumerate(zip(tasks, run, strict=True)):
        fields = {"task": task, "outcome": OUTCOME[sign]}
        yield record("tests", epoch, validator, participant, submission, 10 + 5 * number, **fields)


def season() -> Files:
    """term-challenge, epoch 12: an outlier, timeouts, an error, a duplicate, a stale agent, an unregistered one."""
    tasks = (
        "build-static-site",
        "cron-backup-rotation",
        "csv-to-parquet",
        "decode-packet-capture",
        "fix-broken-makefile",
        "git-bisect-regression",
        "nginx-tls-termination",
        "recover-sqlite-journal",
        "resolve-merge-conflict",
        "train-spam-filter",
    )
    validators = [("alder", 420, "Alder"), ("birch", 310, "Birch"), ("cedar", 180, "Cedar"), ("dogwood", 90, "Dogwood")]
    # key, uid, name, version submitted, epoch of submission, last reset
    agents = [
        ("atlas", 11, "Atlas Shell", "atlas 3.1", 8, 9),
        ("borealis", 12, "Borealis", "borealis 1.0", 0, 0),
        ("cobalt", 13, "Cobalt CLI", "cobalt 0.9", 10, 11),
        ("dune", 14, "Dune", "atlas 3.1", 10, None),
        ("ember", None, "Ember", "ember 2.2", 11, None),
        ("fjord", 16, "Fjord", "fjord 0.1", 11, None),
    ]
    runs = {
        ("atlas", 9): ("+++++++++-", "+++++++-++", "++++++++--", "+t+t-tt+tt"),
        ("borealis", 1): ("++++++++--", "++++++++--", "++++++++--", "t+t-t+tttt"),
        ("cobalt", 11): ("++-++--++-", "++-++-+++-", "++-++!-++-", "++-+t--++-"),
        ("ember", 12): ("+-+-+-+-+-", "+-+-+-+-+-", "+-+-+-+-+-", "+-t-t-+-t-"),
        ("fjord", 12): ("+++++++---", "+++++++---", "++++++!---"),
    }
    digests = {key: sha(version) for key, _, _, version, _, _ in agents}
    records = [*trials(3, "alder", "atlas", sha("atlas 2.0"), tasks, "++++------")]
    for (agent, epoch), signs in runs.items():
        for (validator, _, _), run in zip(validators, signs, strict=False):
            records += trials(epoch, validator, agent, digests[agent], tasks, run)
    rows = [(key, uid, name, digests[key], at(epoch, 30), last, None) for key, uid, name, _, epoch, last in agents]
    return {
        "season/scheme.toml": presets()["term-challenge"],
        "season/participants.csv": table(PARTICIPANTS, rows),
        "season/validators.csv": table(VALIDATORS, [(key, stake * TAO, name) for key, stake, name in validators]),
        "season/tasks.txt": "".join(f"{task}\n" for task in tasks),
        **evidence("season", records),
    }


def hundredths(count: int) -> str:
    """75 → "0.75"."""
    return f"{count // 100}.{count % 100:02d}".rstrip("0").rstrip(".")


def window() -> Files:
    """cswon, epochs 1 to 3: the 0.745 of the docs, the strict gate, an invalid plan, a service error, the cap of 15 %."""
    tasks = ("agent-triage", "code-refactor", "data-clean", "rag-contracts")
    validators = [("loom", 500), ("spindle", 300), ("weft", 200)]
    # key: quality (hundredths), cost (thousandths of 0.05), seconds of 10, retries, timeouts
    miners = {
        "alba": (98, 5, 1, 0, 0),
        "briar": (92, 10, 2, 2, 0),
        "clove": (85, 20, 4, 3, 0),
        "dill": (80, 25, 5, 2, 1),
        "elder": (75, 30, 6, 4, 1),
        "fennel": (70, 5, 1, 2, 0),
        "gorse": (100, 10, 2, 0, 0),
        "hazel": (60, 10, 8, 5, 2),
    }
    digests = {key: sha(f"{key} planner") for key in miners}
    records = []
    for epoch in (1, 2, 3):
        for validator, _ in validators:
            for minutes, task in enumerate(tasks):
                for key, (quality, cost, seconds, retries, timeouts) in miners.items():
                    fields: Record = {
                        "task": task,
                        "quality": hundredths(quality),
                        "steps_completed": 3 if key == "gorse" else 4,
                        "steps_total": 4,
                        "cost": f"0.{cost:03d}".rstrip("0"),
                        "budget": "0.05",
                        "seconds": str(seconds),
                        "max_seconds": "10",
                        "retries": retries,
                        "declared_retries": 2,
                        "timeouts": timeouts,
                        "hard_failures": 1 if key == "gorse" else 0,
                    }
                    if (key, epoch, task) == ("hazel", 2, "data-clean"):
                        fields = {"task": task, "outcome": "invalid"}
                    elif (validator, epoch, task) == ("weft", 3, "rag-contracts") and key in ("alba", "briar"):
                        fields = {"task": task, "outcome": "service-error"}
                    records.append(record("workflow", epoch, validator, key, digests[key], 5 + 10 * minutes, **fields))
    rows = [(key, 20 + i, key.title(), digests[key], at(0, i), None, None) for i, key in enumerate(miners)]
    return {
        "window/scheme.toml": presets()["cswon"],
        "window/participants.csv": table(PARTICIPANTS, rows),
        "window/validators.csv": table(VALIDATORS, [(key, stake * TAO, key.title()) for key, stake in validators]),
        **evidence("window", records),
    }


def plan(task: str, line: str) -> Record:
    """A plan for one of the six tasks of cswon, whose writer is on one of three lines."""
    kind, _, name = task.partition("-")
    ferry = {"text": "${task.input.question}"}
    rows = [("rows", "library", {}), ("clean", "writer", {"rows": "${rows.output.rows}", "line": line})]
    steps: dict[str, list[tuple[str, str, Record]]] = {
        "rag": [("find", "library", ferry), ("answer", "writer", {"passages": "${find.output.passages}", "line": line})],
        "data": rows + [("totals", "writer", {"rows": "${clean.output}", "line": line})] * (name == "totals"),
        "agent": [("triage", "writer", {"report": "${task.input.report}", "line": line})],
        "code": [("program", "writer", {"wanted": "the median of integers", "line": line})],
    }
    nodes = [{"id": id, "service": service, "action": id, "params": params} for id, service, params in steps[kind]]
    edges = [[one["id"], other["id"]] for one, other in pairwise(nodes)]
    return {"nodes": nodes, "edges": edges}


def workflows() -> Files:
    """cswon, to be judged: four planners and six tasks; no evidence, for `assay run` makes it."""
    folder = HERE / "cswon"
    validators = [("loom", 500), ("spindle", 300), ("weft", 200)]
    tasks = everything(folder / "tasks")
    lines = {"alba": "fast", "briar": "slow", "dill": "bad"}
    plans = {
        f"planners/{key}/{task.id}.json": json.dumps(plan(task.id, line), indent=1) + "\n"
        for key, line in lines.items()
        for task in tasks
    }
    digests = {key: digest_of({path: text for path, text in plans.items() if f"/{key}/" in path}) for key in lines}
    digests["clove"] = load_planner(folder / "planners" / "clove").digest
    rows = [(key, 61 + i, key.title(), digests[key], at(0, i), None, None) for i, key in enumerate(sorted(digests))]
    return {
        "cswon/scheme.toml": presets()["cswon"],
        "cswon/participants.csv": table(PARTICIPANTS, rows),
        "cswon/validators.csv": table(VALIDATORS, [(key, stake * TAO, key.title()) for key, stake in validators]),
        "cswon/tasks.txt": manifest_text(tasks),
        **{f"cswon/{path}": text for path, text in plans.items()},
    }


def digest_of(files: Files) -> str:
    """The digest of a planner's folder that is not there yet."""
    with TemporaryDirectory() as made:
        for path, text in files.items():
            (Path(made) / Path(path).name).write_text(text, encoding="utf-8")
        return load_planner(Path(made)).digest


REPOSITORY = "PlatformNetwork/bounty-challenge"
REPOSITORY_ID = 700_001
HUNTERS = [("robin", 31), ("sable", 32), ("tern", 33), ("umber", 34)]
ACCOUNTS = {"robin": (5001, "robin-codes"), "sable": (5002, "sable-b"), "tern": (5003, "tern"), "umber": (5004, "umber-dev")}
KESTREL, MAGPIE, STARLING = 9001, 6001, 6002
OTHERS = {KESTREL: "kestrel", MAGPIE: "magpie", STARLING: "starling"}
"""The maintainer, and two who are neither maintainers nor participants."""
JUDGES = [("heron", 450), ("ibis", 350), ("jay", 200)]
COUNTED: dict[str, dict[int, tuple[int, int, int]]] = {
    "robin": {1: (5, 1, 0), 2: (4, 0, 0), 3: (0, 0, 1)},
    "sable": {1: (4, 0, 0), 2: (1, 1, 0)},
    "tern": {1: (1, 2, 0), 3: (1, 1, 0)},
    "umber": {},
}
"""Participant → epoch → issues found valid, found invalid, and found valid earlier and no longer so."""
DUPLICATES = {("sable", 2): 3}
"""Issues found to be duplicates, which count as neither; Jay counts them as valid."""
STARS = {"robin": 1, "tern": 1, "umber": 2}
"""Participant → the epoch in which it starred the repository."""
EPOCHS = (1, 2, 3)


def key_of(word: str) -> keys.PrivateKey:
    """A key made of a word, so that it is the same everywhere; worth nothing, as anybody can make it."""
    return keys.read(hashlib.sha256(word.encode()).hexdigest().encode())


def public_of(word: str) -> str:
    """Its public key as registries spell it."""
    return key_of(word).public.raw.hex()


def bounty(folder: str, validators: Sequence[tuple[str, int, str]]) -> Files:
    """bounty-challenge, epochs 1 to 3: points, a star, an issue revoked, more invalid than valid, a miscounting validator."""
    records = []
    for validator, _, name in validators:
        for epoch in EPOCHS:
            for key, _ in HUNTERS:
                valid, invalid, revoked = COUNTED[key].get(epoch, (0, 0, 0))
                valid += DUPLICATES.get((key, epoch), 0) if name == "Jay" else 0
                fields = {"valid": valid, "invalid": invalid, "revoked_valid": revoked, "starred": STARS.get(key, 9) <= epoch}
                one = record("points", epoch, validator, key, "", 0, repository=REPOSITORY, **fields)
                records.append(one | {"observed_at": at(4, 10)})
    rows = [(key, uid, key.title(), None, None, None, None) for key, uid in HUNTERS]
    links = [(key, f"https://gist.github.com/{login}/{gist_of(key)}", public_of(key)) for key, (_, login) in ACCOUNTS.items()]
    return {
        f"{folder}/scheme.toml": presets()["bounty-challenge"],
        f"{folder}/participants.csv": table(PARTICIPANTS, rows),
        f"{folder}/validators.csv": table(VALIDATORS, [(key, stake * TAO, name) for key, stake, name in validators]),
        f"{folder}/issues.toml": ISSUES,
        f"{folder}/accounts.csv": table(("participant", "url", "key"), links),
        **{
            f"{folder}/evidence/{name.lower()}.jsonl": lines(one for one in records if one["validator"] == validator)
            for validator, _, name in validators
        },
    }


ISSUES = f"""# How reported issues are judged. Every validator has the same file; what is counted follows from it and from GitHub.

[github]
api = "http://127.0.0.1:8765"      # the small GitHub of this example; left out it is https://api.github.com

[epochs]
first = 1                          # the number of the first epoch
begins = {at(1)}      # when it begins; what happened before is not looked at
seconds = {EPOCH.seconds}                     # how long each one lasts
wait = 300                         # seconds after its end before it is judged

[labels]                           # what a maintainer says with a label; the last one set, and not taken off again, decides
valid = ["valid"]
invalid = ["invalid"]
duplicate = ["duplicate"]          # decides too, and counts as neither

[maintainers]                      # whose labels count: the id of the account; the name is for the reader
kestrel = {KESTREL}

[repositories]                     # the id of each repository of the scheme's table: names change, and can be taken by others
"{REPOSITORY}" = {REPOSITORY_ID}
"""


def gist_of(key: str) -> str:
    """The id of the gist in which a participant links his account."""
    return hashlib.sha256(f"gist of {key}".encode()).hexdigest()[:32]


def github() -> Files:
    """What happened on GitHub, so that the counts above come out: for the server in bounty-challenge/github.py."""
    issues: list[Record] = []

    def reported(by: int, epoch: int, *labels: tuple[int, int, str], **fields: Any) -> Record:
        """An issue, and the labels set on it: when (minutes into the epoch), by whom, which."""
        number = len(issues) + 1
        events = [{"at": at(epoch, minutes), "by": who, "event": "labeled", "label": label} for minutes, who, label in labels]
        title = ("The page is blank", "A wrong total", "It hangs when offline", "A typo", "The login fails")[number % 5]
        one = {"number": number, "title": title, "by": by, "at": at(epoch, number % 20), **fields, "events": events}
        issues.append(one)
        return one

    first = None
    for epoch in EPOCHS:
        for key, _ in HUNTERS:
            valid, invalid, revoked = COUNTED[key].get(epoch, (0, 0, 0))
            said = ["valid"] * valid + ["invalid"] * invalid + ["duplicate"] * DUPLICATES.get((key, epoch), 0)
            for label in said:
                one = reported(ACCOUNTS[key][0], epoch, (30, KESTREL, label))
                first = first or one
            if revoked and first is not None:
                first["events"].append({"at": at(epoch, 40), "by": KESTREL, "event": "unlabeled", "label": "valid"})
    reported(ACCOUNTS["tern"][0], 2, (35, MAGPIE, "valid"))  # who is no maintainer
    reported(STARLING, 2, (36, KESTREL, "valid"))  # who takes no part
    reported(ACCOUNTS["umber"][0], 3, (37, KESTREL, "valid"), pull_request=True)
    people = dict(ACCOUNTS.values()) | OTHERS
    facts = {
        "now": at(4, 10),
        "accounts": [{"id": number, "login": login} for number, login in sorted(people.items())],
        "repositories": [
            {
                "id": REPOSITORY_ID,
                "name": REPOSITORY,
                "formerly": [],
                "stars": [{"by": ACCOUNTS[key][0], "at": at(epoch, 5)} for key, epoch in STARS.items()],
                "issues": issues,
            }
        ],
        "gists": [
            {
                "id": gist_of(key),
                "owner": number,
                "at": at(0, place),
                "files": {"assay.txt": signed_block(AccountClaim("bounty-challenge", key, number, login), key_of(key))},
            }
            for place, (key, (number, login)) in enumerate(ACCOUNTS.items())
        ],
    }
    return {"bounty-challenge/github.json": json.dumps(facts, indent=1) + "\n"}


def judged() -> Files:
    """bounty-challenge by itself, and the GitHub that it is judged from."""
    return {**bounty("bounty-challenge", [(key, stake, key.title()) for key, stake in JUDGES]), **github()}


def verdicts() -> Files:
    """agonaut, epoch 1: the example of Agonaut's page, a cap, a failed baseline, a malformed judgement, a second place."""
    met = {"B1": True, "B2": True, "B3": True, "B4": True}
    checks = [f"C{number}" for number in range(1, 9)]

    def answers(*missed: str) -> dict[str, bool]:
        return {check: check not in missed for check in checks}

    judged: dict[str, Record] = {
        "larch": {"baseline": met, "checks": answers("C6", "C8"), "verdict": "ELEGANT"},
        "maple": {"baseline": met, "checks": answers("C3"), "verdict": "MINOR_ISSUES"},
        "noble": {"baseline": met, "checks": answers("C4"), "verdict": "EXCEPTIONAL"},
        "olive": {"baseline": {**met, "B3": False}},
        "pine": {"baseline": met, "checks": {**answers(), "C5": "mostly"}, "verdict": "COHERENT"},
    }
    digests = {key: sha(f"{key} solution") for key in judged}
    attested = {"attestation": sha("quote of enclave-1")}
    records = [
        record("rubric", 1, "enclave-1", key, digests[key], 10 * place, **fields, **attested)
        for place, (key, fields) in enumerate(judged.items(), start=1)
    ]
    rows = [
        (key, None, key.title(), digests[key], at(0, 60 + place), None, f"0x{hashlib.sha256(key.encode()).hexdigest()[:40]}")
        for place, key in enumerate(judged)
    ]
    return {
        "verdicts/scheme.toml": presets()["agonaut"],
        "verdicts/participants.csv": table(PARTICIPANTS, rows),
        "verdicts/validators.csv": table(VALIDATORS, [("enclave-1", 1, "Enclave")]),
        **evidence("verdicts", records),
    }


def platform() -> Files:
    """A subnet over two competitions at epoch 3; robin takes part in both."""
    tasks = (
        "fix-broken-makefile",
        "git-bisect-regression",
        "nginx-tls-termination",
        "recover-sqlite-journal",
        "train-spam-filter",
    )
    validators = [(public_of(key), stake, key.title()) for key, stake in JUDGES]
    agents = [("quartz", 41, "quartz 1.0"), ("robin", 31, "robin 4.0"), ("slate", 42, "slate 0.3")]
    runs = {"quartz": "+++++", "robin": "+-+++", "slate": "--t+-"}
    folder = "platform/term-challenge"
    rows = [(key, uid, key.title(), sha(version), at(2, i), None, None) for i, (key, uid, version) in enumerate(agents)]
    return {
        "platform/my-subnet.toml": presets()["platform"],
        f"{folder}/scheme.toml": presets()["term-challenge"],
        f"{folder}/participants.csv": table(PARTICIPANTS, rows),
        f"{folder}/validators.csv": table(VALIDATORS, [(key, stake * TAO, name) for key, stake, name in validators]),
        f"{folder}/tasks.txt": "".join(f"{task}\n" for task in tasks),
        **{
            f"{folder}/evidence/{name.lower()}.jsonl": lines(
                one for key, _, version in agents for one in trials(3, validator, key, sha(version), tasks, runs[key])
            )
            for validator, _, name in validators
        },
        **bounty("platform/bounty-challenge", validators),
    }


def live() -> Files:
    """term-challenge, to be judged: six agents and ten tasks, written by hand; no evidence, for `assay run` makes it."""
    folder = HERE / "term-challenge"
    validators = [("elm", 500, "Elm"), ("fir", 300, "Fir"), ("gum", 200, "Gum")]
    found = [load_agent(one.parent) for one in sorted(folder.glob("agents/*/agent.toml"))]
    rows = [(one.name, 51 + i, None, one.digest, at(0, i), None, None) for i, one in enumerate(found)]
    return {
        "term-challenge/scheme.toml": presets()["term-challenge"],
        "term-challenge/participants.csv": table(PARTICIPANTS, rows),
        "term-challenge/validators.csv": table(VALIDATORS, [(key, stake * TAO, name) for key, stake, name in validators]),
        "term-challenge/tasks.txt": competition.pin_tasks(read_tasks(folder / "tasks")).text(),
    }


EXAMPLES = (season, live, window, workflows, judged, verdicts, platform)


def files() -> Files:
    """Every generated file: path below examples/ → content."""
    return {path: content for make in EXAMPLES for path, content in make().items()}


def main() -> int:
    """Writes them, all or, where one cannot be made, none: then it says which, and the exit code is 1."""
    made: Files = {}
    for make in EXAMPLES:
        try:
            made |= make()
        except AssayError as error:
            print(f"nothing was written: examples/make.py, {make.__name__}: {error}", file=sys.stderr)
            return 1
    for path, content in made.items():
        place = HERE / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
