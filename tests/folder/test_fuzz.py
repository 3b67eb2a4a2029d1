"""Whatever bytes a loader is given, it reads them or raises an AssayError: never anything else.

The inputs are files that are right, with bytes changed at random places. One Hypothesis example stands for a batch of
them: it draws the seed, and the batch is made from that, so that a failure is repeated by running the test again.
`check` tries a few thousand inputs, `full` well over a hundred thousand.
"""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import small_folder
from assay import folder
from assay.errors import AssayError, BadInput
from assay.folder import csvs, evidence, previous, registry, strict
from assay.folder.files import Place
from assay.records import record
from assay.scheme.fields import instant
from assay.scheme.load import parse as parse_scheme
from assay.scheme.load import parse as parse_toml

FULL = os.environ.get("ASSAY_PROFILE", "check") != "check"
BATCH = 150 if FULL else 25
"""Inputs in one example; an example is one of each loader."""
EXAMPLES = 100 if FULL else 10

SCHEME = parse_scheme(small_folder.SCHEME)
TEXTS = [
    *("", "\0", '"', '""', ",", "\n", "\r", "\\", "\\ud800", "{", "}", "[", "]", "[" * 50, ".", "%", "=", "#", "''''", "\ufeff"),
    *("null", "true", "NaN", "-Infinity", "inf", "1e999", "-1", "0.5", "1" * 20, "9" * 400, "9223372036854775808", "0x"),
    *('"kind": "given",', '"seq": 1,', "é", "\u202e", "😀", "٣", "1979-05-27", "2026-02-30T25:61:61Z"),
    *("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"),
]
PIECES = [*(text.encode() for text in TEXTS), b"\xff", b"\xed\xa0\x80"]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A few changes: a piece put in or over, a stretch left out or twice, a bit turned, the end cut off."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(data))
        to = min(len(data), at + chance.choice([0, 1, 1, 2, 8, 40]))
        kind = chance.randint(0, 5)
        if kind == 0:
            data = data[:at] + chance.choice(PIECES) + data[at:]
        elif kind == 1:
            data = data[:at] + chance.choice(PIECES) + data[to:]
        elif kind == 2:
            data = data[:at] + data[to:]
        elif kind == 3:
            data = data[:to] + data[at:]
        elif kind == 4 and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << chance.randint(0, 7)]) + data[at + 1 :]
        elif chance.randint(0, 3) == 0:
            data = data[:at]
    return data


def participants(data: bytes) -> None:
    registry.participants(csvs.parse(data, csvs.PARTICIPANTS), Place("participants.csv"), SCHEME)


def validators(data: bytes) -> None:
    registry.validators(csvs.parse(data, csvs.VALIDATORS), Place("validators.csv"), 2)


def history(data: bytes) -> None:
    registry.history(csvs.parse(data, csvs.HISTORY), Place("history.csv"))


def randomness(data: bytes) -> None:
    registry.randomness(csvs.parse(data, csvs.RANDOMNESS), Place("randomness.csv"))


def task_set(data: bytes) -> None:
    registry.parse_tasks(registry.task_lines(data, "tasks.txt"), 2, Place("tasks.txt"))


def line(data: bytes) -> None:
    parsed = record(evidence.parse(data, Place("a.jsonl", 1)))
    assert parsed.digest.startswith("sha256:")  # what is read can be digested
    assert record(json.loads(json.dumps(parsed.document()))).digest == parsed.digest


def scheme(data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    assert parse_toml(text, file="scheme.toml").digest.startswith("sha256:")


def settlement(data: bytes) -> None:
    previous.previous_of(strict.parse(folder_text(data)))


def case(data: bytes) -> None:
    folder.parse_case(strict.parse(folder_text(data)))


def folder_text(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogatepass") if not data.startswith(b"\xff") else data.decode("latin-1")


def time(data: bytes) -> None:
    assert instant(data.decode("latin-1")).tzinfo is not None


CASE: dict[str, Any] = {
    "scheme": {"scheme": {"name": "small"}, "score": {"kind": "tests"}, "consensus": {"assign": 1, "max_age_epochs": 3}},
    "participants": [{"key": "m1", "uid": 1, "submission": "s1", "submitted_at": "2026-11-02T09:00:00Z"}, {"key": "m2"}],
    "validators": [{"key": "v1", "stake": "100"}, {"key": "v2", "stake": "200"}],
    "tasks": ["t1", "t2 shared"],
    "history": [{"epoch": 1, "top_score": "0.5"}],
    "randomness": [{"epoch": 3, "hex": "0f" * 32}],
    "evidence": [small_folder.record(), small_folder.record(validator="v2", seq=2)],
}
LOADERS: list[tuple[Callable[[bytes], None], list[str]]] = [
    (participants, [small_folder.PARTICIPANTS, 'key,name,accepted_epoch\nm1,"a, ""b""",3\n']),
    (validators, [small_folder.VALIDATORS]),
    (history, ["epoch,top_score,submission,task_set\n1,0.5,s0,x\n2,1,,\n"]),
    (randomness, [f"epoch,hex\n1,{'0f' * 32}\n"]),
    (task_set, [f"# tasks\nt1\nt2 sha256:{'a' * 64} shared\n\nt3 snapshot\n"]),
    (line, [json.dumps(small_folder.record(kind, seq=3)) for kind in small_folder.FIELDS]),
    (scheme, [*small_folder.SCHEMES.values(), small_folder.SCHEME + '[reward]\ncap = "50%"\n[decay]\nrate = "0.05"\n']),
    (settlement, [json.dumps(small_folder.settlement())]),
    (case, [json.dumps(CASE)]),
    (time, ["2026-11-02T09:00:00Z", "2026-11-02t09:00:00.123456+01:00"]),
]


def test_the_originals_are_right() -> None:
    for load, originals in LOADERS:
        for original in originals:
            load(original.encode())


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_loaders_raise_only_their_own_errors(seed: int) -> None:
    chance = random.Random(seed)
    for load, originals in LOADERS:
        for _ in range(BATCH):
            data = mutated(chance.choice(originals).encode(), chance)
            try:
                load(data)
            except AssayError as error:
                check(error)
            except UnicodeDecodeError:
                continue  # what the test itself decodes
            except Exception as error:
                raise AssertionError(f"{load.__name__} raised {error!r} for {data!r}") from error


def check(error: AssayError) -> None:
    """A refusal is a sentence that can be shown: what is wrong, not too long."""
    assert error.what
    assert len(str(error)) < 2000, str(error)
    assert "\n" not in str(error), str(error)


@settings(max_examples=EXAMPLES)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kind", "epoch", "key", "score"]), inner),
        max_leaves=12,
    ),
    data=st.data(),
)
def test_any_json_in_any_part_of_a_case(value: Any, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(CASE)))
    part = CASE[name]
    if isinstance(part, list) and isinstance(part[0], dict) and data.draw(st.booleans()):
        value = [part[0] | {data.draw(st.sampled_from(sorted(part[0]))): value}]
    try:
        folder.parse_case(CASE | {name: value})
    except AssayError as error:
        check(error)


def test_a_whole_folder(tmp_path: Path) -> None:
    """The same through files: a few dozen, since these are slower."""
    chance = random.Random(7)
    whole = {
        "scheme.toml": small_folder.SCHEME,
        "participants.csv": small_folder.PARTICIPANTS,
        "validators.csv": small_folder.VALIDATORS,
        "tasks.txt": small_folder.TASKS,
        "evidence/a.jsonl": small_folder.lines([small_folder.record(), small_folder.record(validator="v2")]),
    }
    place = small_folder.make(tmp_path)
    for _ in range(200 if FULL else 40):
        name = chance.choice(sorted(whole))
        (place / name).write_bytes(mutated(whole[name].encode(), chance))
        try:
            folder.read(place, epoch=3)
        except BadInput as error:
            check(error)
        (place / name).write_text(whole[name])


@pytest.mark.parametrize("kind", sorted(small_folder.FIELDS))
def test_every_record_can_be_cut_off_anywhere(kind: str) -> None:
    whole = json.dumps(small_folder.record(kind)).encode()
    line(whole)
    for end in range(len(whole)):
        with pytest.raises(BadInput):
            line(whole[:end])
