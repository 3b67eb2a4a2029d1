"""`assay init`: a new competition from a preset, with a small invented sample that can be settled at once.

In the sample three validators judge three participants; in a ranking three runs try three agents. Their evidence is made from the
scheme itself: its tasks, checks and repositories.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.output import AsJson, emit
from assay.errors import BadInput, suggest
from assay.scheme.load import parse
from assay.scheme.model import Scheme

SUBNET = "my-subnet.toml"
MEMBERS = ("term-challenge", "bounty-challenge")
EPOCH = 1
SEEN = "2026-11-02T12:00:00Z"
PARTICIPANTS = ("key", "uid", "name", "submission", "submitted_at", "address")
PEOPLE = ("miner-a", "miner-b", "miner-c")
AGENTS = ("agent-a", "agent-b", "agent-c")
RUNS = ("run-1", "run-2", "run-3")
STAKES = {"validator-1": 400, "validator-2": 350, "validator-3": 250}

Record = dict[str, Any]
Files = dict[str, str]


def files_of(preset: str, texts: Mapping[str, str]) -> Files:
    """Path → text of every file that a preset's folder begins with; `texts` are the presets."""
    if preset != "platform":
        return _competition(texts[preset])
    files = {SUBNET: texts[preset]}
    for member in MEMBERS:
        files |= {f"{member}/{name}": text for name, text in _competition(texts[member]).items()}
    return files


def _competition(text: str) -> Files:
    scheme = parse(text)
    pays = scheme.payout is not None
    ranks, people = scheme.reward.kind == "ranking", PEOPLE
    stakes = dict.fromkeys(["enclave-1"], 1) if scheme.consensus.min_validators == 1 else STAKES
    if ranks:
        stakes, people = dict.fromkeys(RUNS, 1), AGENTS
    columns = ("key", "name", "submission", "submitted_at") if ranks else PARTICIPANTS
    files = scheme.kind.sample_rules(text) | {
        "participants.csv": _table(columns, _participants(people, pays, ranks)),
        "validators.csv": _table(("key", "stake", "name"), [(key, stake, "") for key, stake in stakes.items()]),
    }
    files |= scheme.kind.sample_files(scheme.score)
    records = list(_evidence(scheme, tuple(stakes), people))
    files["evidence/README.md"] = _readme(scheme, records[0])
    files["evidence/sample.jsonl"] = "".join(json.dumps(record) + "\n" for record in records)
    return files


def _participants(people: Sequence[str], pays: bool, ranks: bool) -> Iterator[tuple[object, ...]]:
    for at, key in enumerate(people):
        address = "0x" + sha256(f"address of {key}".encode()).hexdigest()[:40] if pays else ""
        cells = "", submission(key), f"2026-11-0{at + 1}T09:00:00Z"
        yield (key, *cells) if ranks else (key, "" if pays else at + 1, *cells, address)


def submission(key: str) -> str:
    """The digest of an invented submission."""
    return f"sha256:{sha256(f'sample submission of {key}'.encode()).hexdigest()}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _evidence(scheme: Scheme, validators: Sequence[str], people: Sequence[str]) -> Iterator[Record]:
    """A record of each validator about each participant: the first is good, the second fair, the third weak."""
    for judge, validator in enumerate(validators):
        for level, key in enumerate(people):
            base = {"kind": scheme.score.kind, "epoch": EPOCH, "validator": validator, "participant": key}
            base |= {"submission": submission(key), "observed_at": SEEN}
            for seen in scheme.kind.sample(scheme.score, judge, level):
                yield base | seen


def _readme(scheme: Scheme, first: Record) -> str:
    kind = scheme.score.kind
    fields = "\n".join(f"- `{name}`: {meaning}" for name, meaning in {**_COMMON, **scheme.kind.fields}.items())
    return f"""# Evidence

One record a line, in as many `.jsonl` files as you like. A record is what one validator saw, of kind `{kind}`:

```json
{json.dumps(first)}
```

{fields}

Fractions and amounts are written in quotes, as decimal strings: `"0.8"`. A validator and a participant must stand in
`validators.csv` and `participants.csv`. Evidence counts while the submission that it is about is the participant's current one.

`sample.jsonl` is invented. Delete it when you have evidence of your own.
"""


_COMMON = {
    "epoch": "the epoch in which it was seen",
    "validator`, `participant": "their keys",
    "submission": "digest of what was judged; it must be the participant's current one to count",
    "observed_at": "when, with a time zone",
}


def presets(incomplete: str) -> list[str]:
    """The names of presets with this beginning, for the shell's completion."""
    from importlib import resources

    names = (item.name.removesuffix(".toml") for item in (resources.files("assay.scheme") / "presets").iterdir())
    return sorted(name for name in names if name.startswith(incomplete))


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.", show_default=False)],
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The rules to start from; `assay scheme list` shows the presets.",
            autocompletion=presets,
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a competition from a preset.

    Writes the rules (scheme.toml), and an invented sample of participants, validators and evidence, which can be settled at once.
    Then replace the sample with your own: participants.csv, validators.csv, tasks.txt, evidence/.

    \b
    Examples:
      assay init --preset term-challenge my-competition
      assay init --preset platform my-subnet
    """
    from assay.scheme.load import parse
    from assay.scheme.load import presets as known

    texts = known()
    if preset is None:
        raise BadInput("says which rules to begin with", field="--preset", hint=f"give one of {', '.join(texts)}")
    if preset not in texts:
        hint = suggest(preset, texts, f"the presets are {', '.join(texts)}")
        raise BadInput(f"there is no preset {preset[:80]!r}", field="--preset", hint=hint)
    files = files_of(preset, texts)
    place(folder, files)
    if emit({"folder": str(folder), "preset": preset, "files": list(files)}, as_json):
        return

    from assay.cli.show import Column, command, grid, heading, note, show

    ranks = preset != "platform" and parse(texts[preset]).reward.kind == "ranking"
    judges = "runs" if ranks else "validators"
    first = ("emission", folder / "my-subnet.toml") if preset == "platform" else ("settle", folder)
    show(
        heading(f"{folder}, from the preset {preset}"),
        grid([Column("file", [*files]), Column("what it is", [_about(name, ranks=ranks) for name in files], kind="text")]),
        "",
        note(f"Participants, {judges}, tasks and evidence are an invented sample. Put your own in their place."),
        command("Next", "assay", *first),
    )


def _about(name: str, *, ranks: bool = False) -> str:
    """The purpose of a file. In a ranking nobody has a stake, so a validator is called a run."""
    return {
        "my-subnet.toml": "the competitions of the subnet and their shares",
        "scheme.toml": "the rules, each with what it does",
        "bounty.toml": "what the sponsor asks for, the checks, what is paid",
        "problem.md": "the problem, in the sponsor's words",
        "participants.csv": "who takes part, with which submission",
        "validators.csv": "the runs: each tried every task" if ranks else "who judges, with how much stake",
        "tasks.txt": "the task set",
        "issues.toml": "whose labels decide on issues, and when an epoch is",
        "accounts.csv": "where participants link their GitHub accounts",
        "README.md": "how records of evidence are written",
        "sample.jsonl": "the sample: delete it when you have your own",
    }[name.rpartition("/")[2]]


def place(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files (path → text) into a new or empty folder, all of them or none; raises BadInput."""
    target = Path(os.path.abspath(folder))
    try:
        if target.exists() and not target.is_dir():
            raise BadInput("is a file", file=folder, hint="name a new or empty folder")
        if target.is_dir() and any(target.iterdir()):
            raise BadInput("is not empty", file=folder, hint="name a new or empty folder; Assay overwrites nothing")
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            _write(staging, files)
            _move(staging, target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise BadInput(
            f"cannot be made ({error.strerror})", file=folder, hint="check the permissions and the space left"
        ) from None


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    umask = os.umask(0)
    os.umask(umask)
    folder.chmod(0o777 & ~umask)


def _move(staging: Path, target: Path) -> None:
    """Move the folder to its place. An empty folder that exists stays the same folder: a shell may be in it."""
    if not target.exists():
        staging.rename(target)
        return
    moved: list[Path] = []
    try:
        for path in sorted(staging.iterdir()):
            moved.append(path.rename(target / path.name))
    except OSError:
        for path in moved:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
