"""Lines that a pattern takes: what the model takes and no more, in the one spelling of canonical JSON."""

from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import ConfigDict, Field, computed_field, field_serializer, model_serializer, model_validator

import small_folder
from assay.errors import BadInput
from assay.exact import canonical
from assay.folder.files import Place
from assay.ledger import batch, check, keys, record_lines
from assay.ledger.record_lines import RecordColumns, columns_of, decides, matched
from assay.records import Evidence, Record, record
from assay.scheme.fields import Count

KINDS = ("tests", "workflow", "points", "given")
SIGNER = keys.from_seed(bytes([5]) * 32)
EDGES: dict[str, list[Any]] = {
    "epoch": [0, 1, 999_999_999_999_999],
    "participant": ["m", "x" * 256, "a b", "{},:"],
    "submission": ["", "s" * 256],
    "observed_at": ["2024-02-29T23:59:59Z", "0001-01-01T00:00:00Z", "2026-01-31T10:00:00.000001Z", "9999-12-31T00:00:00Z"],
    "task": ["t", "é🦆"],
    "outcome": ["pass", "fail", "timeout", "error"],
    "trial": [1, 10, 999_999_999],
    "image": ["", "sha256:1"],
    "work": ["ab"],
    "quality": ["0", "1", "0.000000001", "0.5"],
    "cost": ["0", "999999999.999999999", "7.25"],
    "starred": [True, False],
    "score": ["0", "1", "0.123456789"],
}


def body(kind: str, **changes: Any) -> bytes:
    return canonical(record(small_folder.record(kind, **changes)).document())


def bodies(kind: str) -> list[bytes]:
    """A line for each edge of each field that the kind has."""
    fields = record(small_folder.record(kind)).__class__.model_fields
    if kind != "tests":
        return [body(kind, **{name: value}) for name in EDGES if name in fields and name != "outcome" for value in EDGES[name]]
    return [body(kind, **{name: value}) for name in EDGES if name in fields for value in EDGES[name]]


def one_by_one(lines: list[bytes], kind: str) -> list[Evidence]:
    """The same lines as `read_records` reads what no pattern takes."""
    return [batch._read_record(line, kind, Place(None, number)) for number, line in enumerate(lines, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_pattern_takes_the_edges_of_each_field(kind: str) -> None:
    lines = bodies(kind)
    columns = matched(lines, kind)
    assert columns is not None
    assert [list(column) for column in columns[:4]] == [list(column) for column in columns_of(one_by_one(lines, kind))[:4]]
    assert [*map(list, columns.parts)] == [*map(list, columns_of(one_by_one(lines, kind)).parts)]
    assert decides(kind) == (kind != "workflow")  # whose model has a rule beside its fields


@pytest.mark.parametrize("kind", KINDS)
def test_the_pattern_takes_nothing_that_the_model_refuses(kind: str) -> None:
    """Each byte of a line removed, doubled, or another one."""
    taken = 0
    others = [bytes([value]) for value in b'"\\{}:,0159e.-\n \x00\x7f\x80\xc2T'] + [b"\xe2\x80\x8b", b"null", b"0.0"]
    for line in (body(kind), bodies(kind)[-1]):
        for at in range(len(line)):
            for change in (b"", line[at : at + 1] * 2, *others):
                changed = line[:at] + change + line[at + 1 :]
                if matched([changed], kind) is not None and (kind != "workflow" or changed not in refused_by_model):
                    one_by_one([changed], kind)
                    taken += changed != line
    assert taken > 100


class _Refused:
    """Lines of a workflow that only its model refuses: the pattern says that they are canonical."""

    def __contains__(self, line: object) -> bool:
        try:
            one_by_one([line], "workflow")  # type: ignore[list-item]
        except BadInput as error:
            return "canonical" not in error.what
        return False


refused_by_model = _Refused()


@pytest.mark.parametrize(
    "changed",
    [
        (b"2026-", b"2026-02-30T00:00:00Z"),
        (b"2026-", b"2026-13-01T00:00:00Z"),
        (b"2026-", b"0000-01-01T00:00:00Z"),
        (b"2026-", b"2026-01-01T24:00:00Z"),
        (b"2026-", b"2026-01-01T00:00:60Z"),
        (b"2026-", b"2026-01-01T00:00:00.5Z"),
        (b"2026-", b"2026-01-01T00:00:00.000000Z"),
    ],
)
def test_a_time_that_is_none_is_not_taken(changed: tuple[bytes, bytes]) -> None:
    begin, time = changed
    line = body("tests")
    at = line.index(begin)
    other = line[:at] + time + line[line.index(b'"', at) :]
    assert matched([line], "tests") is not None
    assert matched([line, other], "tests") is None
    with pytest.raises(BadInput):
        batch.read_records([line, other], "tests", None, 1)


@pytest.mark.parametrize("name", ["é\u200b", "a\u2028b", "\x85"])
def test_characters_that_are_refused_are_not_taken(name: str) -> None:
    line = body("tests")
    assert matched([line, line.replace(b'"t1"', f'"{name}"'.encode())], "tests") is None
    assert matched([line.replace(b'"t1"', b'"\xff"')], "tests") is None
    assert matched([line.replace(b'"t1"', '"é"'.encode())], "tests") is not None


def test_lines_that_are_records_only_together_are_not_taken() -> None:
    line = body("tests")
    cut = line.index(b"t1")
    assert matched([line[:cut], line[cut:]], "tests") is None
    assert matched([line[:cut], line[cut:], line], "tests") is None
    assert matched([line + b"\n" + line], "tests") is None
    assert matched([], "tests") is None
    assert matched([body("rubric")], "rubric") is None  # it holds JSON of others
    assert not decides("rubric")


class Mine(Record):
    """A record of a package's own kind."""

    parts: ClassVar[tuple[str, ...]] = ("item",)
    kind: Literal["mine"]
    item: Count


class Bare(Record):
    """Its part is no field."""

    parts: ClassVar[tuple[str, ...]] = ("item",)
    kind: Literal["mine"]
    item: ClassVar[int] = 1


class Lax(Mine):
    item: Annotated[int, Field(strict=False, ge=0, le=99)]


class Long(Mine):
    item: Annotated[str, Field(min_length=2, max_length=9)]  # type: ignore[assignment]


class Endless(Mine):
    item: str  # type: ignore[assignment]


class Flag(Mine):
    item: bool


class Perhaps(Mine):
    item: Count | None = None  # type: ignore[assignment]


class Listed(Mine):
    more: list[int]


class Numbered(Mine):
    more: Literal[1, 2]


class Otherwise(Mine):
    @field_serializer("item")
    def _twice(self, value: int) -> int:
        return 2 * value


class Computed(Mine):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.item


class Named(Mine):
    @model_serializer
    def _other(self) -> dict[str, Any]:
        return {"kind": "mine"}


class Aliased(Mine):
    item: Annotated[Count, Field(alias="thing")]


class After(Mine):
    @model_validator(mode="after")
    def _odd(self) -> "After":
        return self


class Trimmed(Mine):
    model_config = ConfigDict(str_strip_whitespace=True)


UNKNOWN = (Bare, Lax, Long, Endless, Flag, Perhaps, Listed, Numbered, Otherwise, Computed, Named, Aliased, After, Trimmed)


def kind_of(model: type[Record], monkeypatch: pytest.MonkeyPatch, *, in_bulk: bool = False) -> None:
    record_lines._line_pattern.cache_clear()
    monkeypatch.setattr(record_lines, "find", lambda _: SimpleNamespace(record=model, in_bulk=in_bulk))


@pytest.fixture(autouse=True)
def patterns() -> Any:
    """What a test says of a kind is forgotten."""
    yield
    record_lines._line_pattern.cache_clear()


def test_the_pattern_of_a_packages_kind_is_made_from_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    kind_of(Mine, monkeypatch)
    head = {"epoch": 3, "validator": "v", "participant": "m", "submission": "s", "observed_at": "2026-01-02T03:04:05Z"}
    line = canonical(Mine.model_validate(head | {"kind": "mine", "item": 7}).document())
    assert matched([line], "mine") == RecordColumns((b"3",), (b"v",), (b"m",), (b"s",), ((b"7",),))
    assert matched([line], "other") is None
    kind_of(After, monkeypatch, in_bulk=True)
    assert matched([line], "mine") is not None
    assert not decides("mine")


@pytest.mark.parametrize("model", UNKNOWN)
def test_a_model_with_anything_that_is_unknown_has_no_pattern(model: type[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    kind_of(model, monkeypatch)
    assert record_lines._line_pattern("mine") is None


def signed(**changes: Any) -> batch.Batch:
    records = [record(small_folder.record("tests", validator=SIGNER.public.raw.hex(), task=task)) for task in ("t1", "t2")]
    named: dict[str, Any] = {"origin": "example.org/log", "competition": "c", "task_set": None, "signer": SIGNER}
    return batch.make(records, **named | {"validator": SIGNER.public.raw.hex()} | changes)


@pytest.mark.parametrize("changes", [{}, {"task_set": "sha256:" + "ab" * 32}, {"competition": "Ä"}])
def test_a_plain_statement_is_read_as_any_other(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    envelope = signed(**changes).envelope
    plain = batch._plainly_stated(envelope)
    assert plain is not None
    monkeypatch.setattr(batch, "_plainly_stated", lambda _: None)
    assert batch.stated(envelope) == plain


def test_a_plain_statement_is_nothing_that_would_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte of the envelope, and of the statement in it, is another one."""
    original, plainly = signed(), batch._plainly_stated
    monkeypatch.setattr(batch, "_plainly_stated", lambda _: None)
    envelopes = [
        original.envelope[:at] + other + original.envelope[at + 1 :]
        for at in range(len(original.envelope))
        for other in (b"=", b"")
    ]
    for at in range(len(original.payload)):
        for other in (b"0", b'"', b"x", b"\xff", b""):
            payload = original.payload[:at] + other + original.payload[at + 1 :]
            envelopes.append(canonical(keys.sign_envelope(payload, SIGNER)))
    taken = 0
    for envelope in envelopes:
        plain = plainly(envelope)
        if plain is not None:
            assert batch.stated(envelope) == plain
            taken += 1
    assert taken > 100
    assert plainly(b" " * (check.ENVELOPE_BYTES + 1)) is None
