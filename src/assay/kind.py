"""A kind of judge as one object, and the lookup of a kind by its name. SPEC 2, 7.

    [score] kind = "tests"  ─▶  the entry point `tests` of the group `assay.kinds`  ─▶  a `Kind`

A kind says which rules and which records it has, how records become scores, and what people read of them. Everybody who
needs one of these asks the object; nobody compares names. The five kinds of SPEC 2 are in `assay.kinds`; a package adds
another by an entry point in the same group.

- A name of SPEC 2 is always Assay's own kind: how those scores come about cannot be changed by installing something.
- Heavy modules (models, scorers, judges) are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from assay.errors import BadInput

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from assay.records import Record
    from assay.scheme.model import Scheme, ScoreRules
    from assay.settle.columns import Columns, RecordColumn, StandingRecords
    from assay.settle.inputs import Bools, Frame, Scored
    from assay.settle.settlement import Settlement
    from assay.settle.story.telling import Chapter, Subject

__all__ = [
    "GROUP",
    "JUDGES",
    "Kind",
    "Option",
    "ParquetReader",
    "SubmitResult",
    "builtin_options",
    "find",
    "known",
    "names",
    "origin",
    "plugins",
]

GROUP, JUDGES = "assay.kinds", "assay.judges"
"""The groups of entry points: of kinds, and of judges, which are called as their kind, or as `[judge] use` says."""
SELF = "assay"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Option:
    """An option on `assay run` that not every judge has: `--rounds`, its help, its type and its default."""

    name: str
    """As `--rounds`, or `--yes/--no` of a switch with two names."""
    help: str
    type: Any = str
    default: Any = None
    metavar: str | None = None
    """The placeholder for the value in the help."""
    least: int | None = None
    """The smallest number allowed."""

    @property
    def key(self) -> str:
        """Under which name its value is given to `Kind.settings`: `--max-rounds` is `max_rounds`."""
        return self.name.partition("/")[0].lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """The result of `assay submit`: the submission's name and digest, whether it is new, and the epoch that accepted it."""

    name: str
    submission: str
    changed: bool
    epoch: int | None


class ParquetReader(Protocol):
    """A reader of a kind's evidence in Parquet: a module of `assay.folder`. All methods raise BadInput with file and row."""

    def tally(self, paths: Sequence[Path], axes: Frame, scheme: Scheme) -> Scored:
        """The scores of one competition."""

    def highest_epoch(self, paths: Sequence[Path], scheme: Scheme) -> int | None:
        """The highest epoch; None without a record."""

    def records(self, paths: Sequence[Path], scheme: Scheme, wanted: Mapping[str, Sequence[str]]) -> Iterator[Any]:
        """The records whose columns have one of the wanted values."""


class Kind:
    """One kind of judge. A subclass has `name`, `rules`, `record` and `score`; everything else has a default that fits most.

    `rules` is the model of the section `[score]`, `record` that of a record of evidence: classes, or properties that import them.
    Methods that say something read what the stages computed and compute no number anew.
    """

    name: ClassVar[str]
    """The value of `score.kind`, and of `kind` in every record."""
    judges: ClassVar[str] = "submissions"
    """The noun for the things that its judge judges, where there is no task set."""
    in_bps: ClassVar[bool] = False
    """Whether scores are whole BPS, so that the agreed score is one too. SPEC 2.3, 3.3."""
    fractions: ClassVar[frozenset[str]] = frozenset()
    """The names of the arrays in `Scored.work` that are nanos; a settlement writes them as decimal strings."""
    beside: ClassVar[str] = ""
    """A file beside scheme.toml that may hold a part of the rules; empty: there is none."""
    shared: ClassVar[tuple[str, ...]] = ()
    """Further files of the folder that all validators must have alike, if they are there."""
    archive_bytes: ClassVar[int] = 64_000_000
    """Bytes of an archive with a submission, as a service takes it."""
    jobs: ClassVar[int] = 1
    """The number of things that its judge judges at one time, by default."""
    options: ClassVar[tuple[Option, ...]] = ()
    """Options on `assay run` that not every judge has."""
    fields: ClassVar[Mapping[str, str]] = {}
    """Field of a record → what it means, for the README of a sample."""

    @property
    def rules(self) -> type[ScoreRules]:
        """The model of `[score]`."""
        raise NotImplementedError

    @property
    def record(self) -> type[Record]:
        """The model of a record of evidence."""
        raise NotImplementedError

    @property
    def in_bulk(self) -> bool:
        """Whether records are read and scored as arrays, and may be Parquet: then the kind has `columns`."""
        return type(self).columns is not Kind.columns

    @property
    def parquet(self) -> ParquetReader:
        """The reader of its evidence in Parquet, where `in_bulk` is true."""
        raise NotImplementedError

    def columns(self, rules: Any) -> tuple[RecordColumn, ...]:
        """The fields of a record as arrays. A kind that has them has `tally` and `parquet` too, and its `score` asks `tally`.

        rules: may be None where the record holds no JSON of others (`Record.holds_json`).
        """
        return ()

    def wrong(self, columns: Columns, present: Mapping[str, Bools]) -> Bools | None:
        """The records that the model refuses though each field is right by itself, as a mask; `present`: field → mask of records.

        None: there is no such rule.
        """
        return None

    def tally(self, standing: StandingRecords, frame: Frame, rules: Any) -> Scored:
        """The scores by the records that stand, as `score` gives them. It is pure. SPEC 2."""
        raise NotImplementedError

    def score(self, records: Sequence[Any], frame: Frame, rules: Any) -> Scored:
        """The scores of participants by each validator's records: nanos, arrays of shape [validators, participants]. SPEC 2.

        It is pure: no file, no clock, no random number, no float. Raises BadInput for records that it cannot score.
        """
        raise NotImplementedError

    def tallied(self, rules: Any) -> bool:
        """Whether sums over a validator's records about a submission are enough for its score: `counts` and `scored`."""
        return False

    def counts(self, value: Json, tasks: frozenset[str], rules: Any) -> tuple[int, ...]:
        """The amounts that a record adds to the sums of its validator and submission, if they are `tallied`. tasks: their ids."""
        raise NotImplementedError

    def scored(self, sums: Mapping[tuple[int, int], Sequence[int]], frame: Frame, rules: Any, first: Mapping[str, int]) -> Scored:
        """The scores, as `score` gives them, from sums by (row, column) instead of records; first: as `Scored.first`."""
        raise NotImplementedError

    def spoils(self, value: Json) -> tuple[Any, ...] | None:
        """The key of the work that a record takes out of the scores of all participants; None if it takes out nothing."""
        return None

    def lasting(self, values: Sequence[Json], rules: Any, spoilt: Container[tuple[Any, ...]]) -> Sequence[Json]:
        """The records about one submission (or participant) that may still decide a score, whatever is accepted later.

        values: with `seq`, of each key the first accepted. spoilt: what `spoils` gave for any record. By default all of them.
        """
        return values

    def trials(self, rules: Any) -> int | None:
        """The number of trials of each task of tasks.txt; None for a kind that has no such task set."""
        return None

    def has_tasks(self, folder: Path, rules: Any) -> bool:
        """Whether the competition in a folder has a tasks.txt, which validators need with the folders of its tasks."""
        return self.trials(rules) is not None

    def remarks(self, rules: Any) -> Iterator[str]:
        """Remarks about rules that are allowed, and yet probably not meant."""
        return iter(())

    def saw(self, work: Json) -> str:
        """A validator's work, as the settlement has it, in a few words."""
        return ", ".join(f"{name} {value}" for name, value in work.items())

    def failing(self, settlement: Settlement, subject: Subject, records: Sequence[Any]) -> Chapter | None:
        """The chapter that names what a participant did not pass; None where that cannot be said."""
        return None

    def enough(self, subject: Subject, value: int) -> tuple[tuple[str, ...], Json]:
        """The results that would give this score (nanos), in sentences and as facts; empty where that cannot be said."""
        return (), {}

    def work_schema(self) -> Json:
        """The JSON schema of `work`, as the settlement has it for each validator."""
        return {"type": "object"}

    def sample(self, rules: Any, judge: int, level: int) -> Iterator[Json]:
        """Sample records by an invented validator (0, 1, …) about an invented participant: level 0 is good, 1 fair, 2 weak."""
        return iter(())

    def sample_rules(self, text: str) -> dict[str, str]:
        """Path → text of the files with the rules that `assay init` makes of a scheme's text."""
        return {"scheme.toml": text}

    def sample_files(self, rules: Any) -> dict[str, str]:
        """Path → text of what else this kind's competition has, beside rules, registries and evidence."""
        return {}

    def settings(self, values: Mapping[str, Any]) -> Any:
        """The settings that its judge gets as `RunOptions.own`; values: key → value of its `options`. Raises BadInput."""
        return values

    def cautions(self, settings: Any) -> Iterator[str]:
        """Warnings before the run about settings that are allowed, and yet probably not meant."""
        return iter(())

    def submit(
        self, folder: Path, participant: str, given: str, epoch: int | None, *, at: datetime | None = None
    ) -> SubmitResult:
        """Make something the submission of a participant. at: when it was handed in; None: now. Raises BadInput."""
        hint = "write its digest into the column submission of participants.csv"
        raise BadInput(f"`assay submit` does not work for the kind {self.name!r}", file=folder / "scheme.toml", hint=hint)

    def files(self, folder: Path, submission: str) -> Path | None:
        """The path of a submission's files; None if they are not here. Raises BadInput if they are others than submitted."""
        return None

    def has(self, folder: Path, submission: str) -> bool:
        """Whether a submission can be judged here. Raises BadInput if its files are others than submitted."""
        return self.files(folder, submission) is not None

    def put(self, folder: Path, submission: str, source: Path) -> None:
        """Copy a submission to its place, whole or not at all; source: a folder with what `files` led to elsewhere.

        Raises BadInput if it is another submission, or cannot be written.
        """
        hint = "copy them from whoever has them"
        raise BadInput(f"the files of submissions of the kind {self.name!r} cannot be fetched", field="score.kind", hint=hint)

    def kept(self, folder: Path, record: Any) -> Mapping[str, Path]:
        """The files that its judge kept here of a record's subject, for people to read: name → a file, or a folder of files."""
        return {}

    def standings(self, settlement: Settlement) -> Mapping[str, Any] | None:
        """Participant → `uncertainty.Standing`; None where no interval can be given."""
        return None

    def doubts(self, rules: Any) -> str | None:
        """The reason why a board has no intervals, where people would expect some."""
        return None

    def notes(self, settlement: Settlement, folder: Path) -> Iterator[str]:
        """The notes of a board below its tables, a paragraph at a time."""
        return iter(())

    def about(self, settlement: Settlement, folder: Path, participant: str) -> Json:
        """The facts that `assay explain` adds to the story of a participant, by name, for programs."""
        return {}

    def sentences(self, about: Json) -> Iterator[str]:
        """The same in sentences."""
        return iter(())

    def look(self, folder: Path, participant: str) -> tuple[str, tuple[str | Path, ...]] | None:
        """A command that shows more: its purpose in words, and its arguments; None if there is none."""
        return None


def find(name: str) -> Kind:
    """The kind of a name; raises BadInput, of the field `score.kind`, if no package has it, or several, or it does not load."""
    own = _own()
    if name in own:
        return own[name]
    there = plugins(GROUP, name) if name in _others() else []
    if not there:
        hint = f"use one of {', '.join(names())}, or install the package whose entry point in {GROUP} is called so"
        raise BadInput(f"no package here has the kind {name[:80]!r}", field="score.kind", hint=hint)
    if len(there) > 1:
        several = " and ".join(map(origin, there))
        raise BadInput(f"several packages have the kind {name!r}: {several}", field="score.kind", hint="keep one")
    return _loaded(there[0])


def known(name: object) -> bool:
    """Whether a package that is installed has a kind of this name."""
    return isinstance(name, str) and (name in _own() or name in _others())


def names() -> tuple[str, ...]:
    """The names of all kinds that are installed, in the order of the alphabet."""
    return tuple(sorted({*_own(), *_others()}))


def plugins(group: str, name: str) -> list[EntryPoint]:
    """The entry points of a name in a group, of all packages that are installed."""
    by_value = {
        entry_point.value: entry_point for entry_point in entry_points(group=group, name=name)
    }  # a package can be on the path twice
    return [by_value[value] for value in sorted(by_value)]


def origin(entry: EntryPoint) -> str:
    """The target and the package of an entry point: "duel.judge:run of duel"."""
    return entry.value if entry.dist is None else f"{entry.value} of {entry.dist.name}"


def builtin_options() -> dict[str, Option]:
    """The options of Assay's own kinds by name, each once."""
    return {option.name: option for kind in _own().values() for option in kind.options}


@cache
def _own() -> dict[str, Kind]:
    """Assay's own kinds by name. Only its own metadata is read for them, which takes a twentieth of reading everybody's."""
    try:
        own = [entry_point for entry_point in distribution(SELF).entry_points if entry_point.group == GROUP]
    except PackageNotFoundError:
        own = []
    if not own:
        hint = "install it again (in a checkout: tools/setup)"
        raise BadInput(f"the installed package assay has no entry points in the group {GROUP}", hint=hint)
    return {entry_point.name: _loaded(entry_point) for entry_point in own}


@cache
def _others() -> frozenset[str]:
    """The names of other packages' kinds. A name that is Assay's own is none of them, whoever else has it."""
    return frozenset(entry_points(group=GROUP).names) - _own().keys()


@cache
def _loaded(entry: EntryPoint) -> Kind:
    what = f"the kind {entry.name!r}, {origin(entry)},"
    try:
        loaded: object = entry.load()
    except (ImportError, AttributeError) as error:
        hint = "install what it needs"
        raise BadInput(f"{what} cannot be loaded: {error}", field="score.kind", hint=hint) from error
    if not isinstance(loaded, Kind) or loaded.name != entry.name:
        hint = "its entry point must lead to an object of a subclass of assay.kind.Kind, with that name"
        raise BadInput(f"{what} does not lead to a kind of that name", field="score.kind", hint=hint)
    return loaded
