"""The second verifier under Node: every conformance case, and the same verdict as Assay on every change of a bundle. SPEC 6."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import assay
import ledger_kit
import small_folder
from assay.errors import AssayError
from assay.ledger import batch, bundle, intake, settling
from assay.records import record
from depth import depth
from verifier_kit import CONFORMANCE, ROOT, VERIFIER, Change, changes, node, run

KEY = str(ledger_kit.KEY)
CHANGED = Path(__file__).with_name("changed.mjs")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of a small competition, exported, with a receipt and a participant's proof."""
    return ledger_kit.two_epochs(tmp_path_factory)


def test_every_conformance_case_passes() -> None:
    process = run("conformance", CONFORMANCE)
    assert process.returncode == 0, process.stdout[:4000] + process.stderr
    counted = re.fullmatch(r"(\d+) cases in \d+ files: (\d+) right, 0 wrong, 0 unsupported\n", process.stdout)
    assert counted
    assert counted[1] == counted[2]
    cases = sum(
        len(json.loads(path.read_text(encoding="utf-8"))["cases"])
        for path in CONFORMANCE.glob("*.json")
        if ".schema." not in path.name
    )
    assert int(counted[1]) == cases


def test_it_answers_the_runner_of_assay() -> None:
    command = f"{node()} {VERIFIER / 'bin' / 'assay-verify.js'} --cases"
    done = subprocess.run(
        [
            shutil.which("assay") or str(ROOT / ".venv/bin/assay"),
            "conformance",
            "run",
            str(CONFORMANCE / "cap.json"),
            "--with",
            command,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all pass" in done.stdout


def test_a_case_that_is_wrong_is_named(tmp_path: Path) -> None:
    cases = json.loads((CONFORMANCE / "cap.json").read_text(encoding="utf-8"))
    cases["cases"][0]["output"]["burn"] = "1/7"
    (tmp_path / "cap.json").write_text(json.dumps(cases), encoding="utf-8")
    process = run("conformance", tmp_path)
    assert process.returncode == 1
    assert f"FAILED cap {cases['cases'][0]['name']}" in process.stdout
    assert "1 wrong" in process.stdout


@pytest.mark.parametrize("epoch", [3, 4])
def test_a_bundle_is_verified_as_assay_verifies_it(two: Path, epoch: int) -> None:
    process = run(two / f"epoch-{epoch}", "--key", KEY, "--json")
    assert process.returncode == 0, process.stdout + process.stderr
    report = json.loads(process.stdout)
    verified = assay.verify(two / f"epoch-{epoch}", key=KEY)
    assert report["recomputed"]
    assert verified.recomputed
    assert [row["stage"] for row in report["stages"]] == [check.stage for check in verified.checked]


def test_an_archive_a_receipt_and_a_proof(two: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "epoch-4.tar", "w") as archive:
        archive.add(two / "epoch-4", arcname="epoch-4")
    for what in (tmp_path / "epoch-4.tar", two / "4.receipt", two / "4.proof"):
        assert run(what, "--key", KEY).returncode == 0, what
    key_file = tmp_path / "ledger.toml"
    key_file.write_text(f'origin = "x"\nkey = "{KEY}"\n', encoding="utf-8")
    assert run(two / "epoch-4", "--key", key_file, "--checkpoint", two / "3.checkpoint").returncode == 0


def test_a_zip_is_read_as_macos_and_windows_make_it(two: Path, tmp_path: Path) -> None:
    for name, way in (("deflated.zip", zipfile.ZIP_DEFLATED), ("stored.zip", zipfile.ZIP_STORED)):
        with zipfile.ZipFile(tmp_path / name, "w", way) as archive:
            for path in sorted((two / "epoch-4").rglob("*")):
                archive.write(path, f"epoch-4/{path.relative_to(two / 'epoch-4')}")
            archive.writestr("__MACOSX/epoch-4/._inputs.json", b"\x00\x05")
            archive.writestr("epoch-4/.DS_Store", b"x")
        process = run(tmp_path / name, "--key", KEY, "--json")
        assert process.returncode == 0, process.stdout + process.stderr
        assert json.loads(process.stdout)["recomputed"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["cut off", "twice", "leads out", "another length", "not deflated", "nothing"])
def test_a_zip_that_is_damaged_is_refused_with_a_sentence(two: Path, tmp_path: Path, what: str) -> None:
    place = tmp_path / "bundle.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((two / "epoch-4").rglob("*.*")):
            archive.write(path, str(path.relative_to(two / "epoch-4")))
        if what == "leads out":
            archive.writestr("../x.json", "{}")
        if what == "twice":
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("inputs.json", "{}")
    data = bytearray(place.read_bytes())
    if what == "cut off":
        data = data[: len(data) // 2]
    elif what == "another length":
        at = data.rindex(b"PK\x01\x02")
        data[at + 24] ^= 1
    elif what == "not deflated":
        data[data.index(b"PK\x03\x04") + 60] ^= 0xFF
    elif what == "nothing":
        data = bytearray(b"PK\x03\x04")
    place.write_bytes(bytes(data))
    process = run(place, "--key", KEY)
    assert process.returncode == 1, process.stdout + process.stderr
    assert " at " not in process.stderr.splitlines()[-1].split(":")[0], process.stderr


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["tests", "workflow", "rubric", "points", "given"])
def test_evidence_as_parquet_of_every_kind(tmp_path: Path, kind: str) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "folder", kind)
    ledger_kit.add(folder, ledger_kit.records(kind))
    with ledger_kit.opened(folder) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 3)
        bundle.export(ledger, 3, tmp_path / "epoch-3", as_parquet=True)
    assert list((tmp_path / "epoch-3" / "evidence").glob("*.parquet"))
    process = run(tmp_path / "epoch-3", "--key", KEY, "--json")
    assert process.returncode == 0, process.stdout + process.stderr
    assert json.loads(process.stdout)["recomputed"]


@pytest.mark.full
def test_parquet_that_was_changed_is_refused(two: Path, tmp_path: Path) -> None:
    """A value, a row, the file's bytes: each verifier says so. What Assay does not write is named, and is no fault."""
    whole = Path(shutil.copytree(two / "columns-4", tmp_path / "bundle"))
    path = next((whole / "evidence").glob("epoch-4.parquet"))
    table = pq.read_table(path)
    outcomes = table.column("outcome").to_pylist()
    outcomes[1] = "fail" if outcomes[1] == "pass" else "pass"
    data = path.read_bytes()
    trials = [[None if trial == 1 else trial for trial in table.column("trial").to_pylist()]]
    sparse = table.set_column(table.schema.get_field_index("trial"), "trial", trials).drop_columns(["image"])
    right: dict[str, Callable[[], object]] = {
        "plain": lambda: pq.write_table(table, path, compression="none", use_dictionary=False),
        "small pages": lambda: pq.write_table(table, path, compression="zstd", data_page_size=64, write_batch_size=2),
        "groups": lambda: pq.write_table(table, path, compression="zstd", row_group_size=5),
        "another column": lambda: pq.write_table(table.append_column("more", [["x"] * len(table)]), path, compression="zstd"),
        "without defaults": lambda: pq.write_table(sparse, path, compression="zstd"),
    }
    wrong: dict[str, Callable[[], object]] = {
        "a value": lambda: pq.write_table(table.set_column(table.schema.get_field_index("outcome"), "outcome", [outcomes]), path),
        "a row less": lambda: pq.write_table(table.slice(1), path, compression="zstd"),
        "cut off": lambda: path.write_bytes(data[:-9]),
        "no Parquet": lambda: path.write_bytes(b"PAR1" + b"\x15" * 64 + b"PAR1"),
        "in two files": lambda: shutil.copy(two / "epoch-4" / "evidence" / "epoch-4.jsonl", path.with_suffix(".jsonl")),
    }
    for name, change in (right | wrong).items():
        change()
        process = run(whole, "--key", KEY)
        assert process.returncode == (0 if name in right else 1), (name, process.stdout, process.stderr)
        try:
            assay.verify(whole, key=KEY)
            verified = True
        except AssayError:
            verified = False
        assert verified == (name in right), name
        path.write_bytes(data)
        assert "node:internal" not in process.stderr, (name, process.stderr)
    path.with_suffix(".jsonl").unlink()
    pq.write_table(table, path, compression="snappy")
    process = run(whole, "--key", KEY)
    assert process.returncode == 1
    assert "unsupported" in process.stderr
    assert "Zstandard" in process.stderr


def test_files_that_the_reader_trusts_are_compared(two: Path, tmp_path: Path) -> None:
    own = two / "scheme.toml"
    for what in ("epoch-4", "4.receipt", "4.proof"):
        assert run(two / what, "--key", KEY, "--scheme", own).returncode == 0, what
    changed = tmp_path / "scheme.toml"
    changed.write_text(own.read_text(encoding="utf-8").replace('kind = "tests"', 'kind = "tests"\ntrials = 7'), encoding="utf-8")
    process = run(two / "epoch-4", "--key", KEY, "--scheme", changed)
    assert process.returncode == 1
    assert "another than your file's" in process.stderr
    changed.write_text("a = [", encoding="utf-8")
    process = run(two / "epoch-4", "--key", KEY, "--scheme", changed)
    assert (process.returncode, process.stderr.splitlines()[0].startswith(f"error: {changed}: is no TOML")) == (2, True)


def test_a_split_is_compared_with_a_subnet_file(tmp_path: Path) -> None:
    cases = json.loads((CONFORMANCE / "emission-receipt.json").read_text(encoding="utf-8"))["cases"]
    case = next(case["input"] for case in cases if case["input"].get("subnet") and "error" not in case["output"])
    split, subnet = tmp_path / "emission.receipt", tmp_path / "subnet.toml"
    split.write_text(case["receipt"], encoding="utf-8")
    rows = case["subnet"].pop("competitions")
    lines = [f"{name} = {json.dumps(value)}" for name, value in case["subnet"].items() if value is not None]
    for row in rows:
        lines += ["[[competitions]]", *(f"{name} = {json.dumps(value)}" for name, value in row.items())]
    subnet.write_text("\n".join(lines), encoding="utf-8")
    process = run(split, "--key", case["key"], "--subnet", subnet)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "those of your subnet file" in process.stdout
    subnet.write_text("burn_uid = 9999\n" + "\n".join(line for line in lines if "burn_uid" not in line), encoding="utf-8")
    process = run(split, "--key", case["key"], "--subnet", subnet)
    assert process.returncode == 1
    assert "burn_uid is another than the subnet file's" in process.stderr


def test_a_difference_is_named_with_both_values(two: Path, tmp_path: Path) -> None:
    place = tmp_path / "changed"
    shutil.copytree(two / "epoch-3", place)
    settlement = json.loads((place / "settlement.json").read_text(encoding="utf-8"))
    settlement["weights"][1]["u16"] += 1
    (place / "settlement.json").write_text(json.dumps(settlement), encoding="utf-8")
    process = run(place, "--key", KEY, "--json")
    assert process.returncode == 1
    report = json.loads(process.stdout)
    now = settlement["weights"][1]["u16"]
    assert (report["stage"], report["file"], report["expected"], report["found"]) == (
        "settlement",
        "weights[1].u16",
        str(now - 1),
        str(now),
    )
    assert settlement["weights"][1]["participant"] in report["what"]


def test_wrong_commands_end_with_2(two: Path, tmp_path: Path) -> None:
    for words in ([tmp_path / "nothing"], [two / "epoch-3", "--kee", KEY], [two / "epoch-3", "--key"], ["a", "b"]):
        process = run(*words)
        assert (process.returncode, process.stdout) == (2, ""), words
        assert process.stderr.startswith("error: ")


def test_what_is_no_evidence_of_assay_is_refused_with_a_sentence(tmp_path: Path) -> None:
    for name, text in {
        "deep": "[" * 100_000,
        "list": "[]",
        "empty": "",
        "nul": "\x00",
        "fork": '{"schema":"assay.fork/1"}',
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        process = run(tmp_path / name)
        assert process.returncode == 1, name
        assert "at " not in process.stderr.split(":")[0], process.stderr


def explained(place: Path, participant: str) -> str:
    process = run("explain", place, participant, "--key", KEY)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_it_explains_the_numbers_of_the_settlement(two: Path) -> None:
    settlement = json.loads((two / "epoch-4" / "settlement.json").read_text(encoding="utf-8"))
    for row in settlement["weights"]:
        text = explained(two / "epoch-4", row["participant"])
        for value in (row["score"], row["strategy"], row["share"], str(row["u16"]), str(row["chain_u16"])):
            assert value in text, (row["participant"], value)
    assert "There is no participant" in explained(two / "epoch-4", "nobody")


def of_assay(folder: Path, change: Change) -> tuple[bool, str]:
    """Whether Assay verifies the bundle with one file changed."""
    place = folder / change.path
    before = place.read_bytes()
    place.write_bytes(change.data)
    try:
        assay.verify(folder, key=KEY)
    except AssayError as error:
        return False, str(error)
    finally:
        place.write_bytes(before)
    return True, ""


def both_ways(place: Path, *changes: Change) -> list[list[bool]]:
    """Who verifies a bundle, and it with each change: Assay, the second verifier in bulk, and one record at a time."""
    verdicts = [[True, *(of_assay(place, change)[0] for change in changes)]]
    assay.verify(place, key=KEY)
    for way in ("bulk", "records"):
        words = [node(), str(Path(__file__).parent / "changed.mjs"), str(place), KEY, way]
        lines = "".join(f"{line}\n" for line in ['{"path": null}', *(change.line() for change in changes)])
        done = subprocess.run(words, input=lines, capture_output=True, text=True, timeout=600, check=True)
        verdicts.append([json.loads(line)["verified"] for line in done.stdout.splitlines()])
    return verdicts


@pytest.mark.parametrize("first", ["given", "workflow"])
def test_records_of_another_kind_are_set_aside_in_bulk_too(tmp_path: Path, first: str) -> None:
    """The settlement uses none of another kind than the scheme's; they are under their roots and in batches all the same."""
    place = ledger_kit.of_two_kinds(tmp_path / "small", first)
    with ledger_kit.opened(place) as ledger:
        lines = bundle.export(ledger, 4, tmp_path / "lines")
        columns = bundle.export(ledger, 4, tmp_path / "columns", as_parquet=True)
    name = "evidence/epoch-3.jsonl"
    data = (lines / name).read_bytes()
    other = Change(name, "of another kind", data.replace(b'"m1"', b'"m2"', 1))
    signed = (lines / "batches.jsonl").read_bytes()
    batches = Change("batches.jsonl", "without the first batch", signed.partition(b"\n")[2])
    assert both_ways(lines, other, batches) == [[True, False, False]] * 3
    assert both_ways(columns) == [[True]] * 3


def test_a_batch_without_a_task_set_is_of_no_other(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    terms = intake.intake_rules(place)
    make = partial(batch.make, origin=ledger_kit.ORIGIN, competition=terms.competition, task_set=None)
    with ledger_kit.opened(place) as ledger:
        for validator, signer in ledger_kit.VALIDATORS.items():
            rows = [record(row) for row in ledger_kit.records(validators=[validator])]
            intake.accept(ledger.store, make(rows, signer=signer, validator=validator), terms)
        agreed = settling.settle(ledger, ledger_kit.SIGNER, 3).settlement.document["agreed"]
        assert [row["status"] for row in agreed] == ["agreed", "agreed"]
        assert both_ways(bundle.export(ledger, 3, tmp_path / "epoch-3")) == [[True]] * 3


def test_validators_are_drawn_in_bulk_too(tmp_path: Path) -> None:
    """Where the registry does not say when a submission was accepted, the first record about it does, by anybody."""
    scheme = (
        '[scheme]\nname = "small"\n[score]\nkind = "tests"\n[consensus]\nassign = 2\nmin_validators = 2\nmax_age_epochs = 0\n'
    )
    random = f"epoch,hex\n3,{'ab' * 32}\n4,{'cd' * 32}\n"
    people = "key,uid,name,submission\nm1,1,,s1\nm2,2,,\n"
    place = ledger_kit.ledger_folder(tmp_path / "small", scheme_toml=scheme, randomness_csv=random, participants_csv=people)
    for epoch in (3, 4):
        rows = ledger_kit.records(epoch=epoch)
        if epoch == 3:
            rows = [row for row in rows if row["participant"] == "m1"]
        ledger_kit.add(place, [row | {"submission": "s1" if row["participant"] == "m1" else ""} for row in rows])
        with ledger_kit.opened(place) as ledger:
            agreed = settling.settle(ledger, ledger_kit.SIGNER, epoch).settlement.document["agreed"]
    assert [(row["status"], len(row["validators"]), row["not_counted"][0]["reason"]) for row in agreed] == [
        ("agreed", 2, "not-assigned")
    ] * 2
    with ledger_kit.opened(place) as ledger:
        assert both_ways(bundle.export(ledger, 4, tmp_path / "epoch-4")) == [[True]] * 3


@pytest.mark.parametrize("way", ["bulk", pytest.param("records", marks=pytest.mark.full)])
def test_every_changed_field_is_red_in_both_verifiers(two: Path, tmp_path: Path, way: str) -> None:
    place = Path(shutil.copytree(two / "epoch-4", tmp_path / "bundle"))
    every = changes(place)
    assert len(every) > 1000
    step = depth(len(every) // 40, 1)
    some = every[::step] if way == "bulk" else every[step // 2 :: step]
    lines = "".join(f"{line}\n" for line in ['{"path": null}', *(change.line() for change in some)])
    done = subprocess.run(
        [node(), str(CHANGED), str(place), KEY, way],
        input=lines,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    unchanged, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert unchanged["verified"], unchanged
    assert len(answers) == len(some)
    wrong = []
    for change, answer in zip(some, answers, strict=True):
        verified, why = of_assay(place, change)
        if verified or answer["verified"]:
            wrong.append((change.path, change.where, verified, why, answer))
    assert wrong == []


NASTY = [
    *(
        '{"a":1,"a":1}',
        '{"a":1,"b":{"c":1,"c":2}}',
        '{"a":1.0}',
        '{"a":1e3}',
        '{"a":-0}',
        '{"a":01}',
        '{"a":tru}',
        "",
        "7",
        '"x"',
    ),
    *('{"a":9007199254740992}', '{"a":9007199254740993}', '{"a":"\\ud800"}', '{"a":"\\u0041"}', '{"a":"x\\ny"}', '{ "a":1}'),
    *('{"a":1} ', '{"b":1,"a":[1,2,{"c":null}]}', '{"2":1,"1":2}', '{"__proto__":1}', '{"a":"\u2028é"}'),
    *("[" * depth + "]" * depth for depth in (8, 9, 32, 33)),
]


def test_the_quick_ways_say_what_the_exact_ones_say() -> None:
    words = [node(), str(Path(__file__).parent / "quick.mjs")]
    done = subprocess.run(words, input=json.dumps(NASTY), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"texts": [], "numbers": []}


def test_a_settlement_with_its_digest_elsewhere_is_red(two: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(two / "epoch-4", tmp_path / "bundle"))
    settlement = json.loads((place / "settlement.json").read_text(encoding="utf-8"))
    digest = f'"digest":"{settlement["digest"]}",'
    text = (place / "settlement.json").read_text(encoding="utf-8").replace(digest, "")
    for moved in (text.replace('{"agreed":[{', f'{{"agreed":[{{{digest}', 1), text):
        (place / "settlement.json").write_text(moved, encoding="utf-8")
        process = run(place, "--key", KEY, "--json")
        assert (process.returncode, json.loads(process.stdout)["stage"]) == (1, "settlement")


def test_it_imports_nothing_but_itself_and_node() -> None:
    for path in [*VERIFIER.glob("lib/*.js"), *VERIFIER.glob("page/*.js"), *VERIFIER.glob("bin/*.js")]:
        text = path.read_text(encoding="utf-8")
        named = re.findall(r'(?:from |import\()"([^"]+)"', text)
        allowed = re.compile(r"(\.\./|\./)[\w./-]+\.js" + (r"|node:[\w/]+" if path.parent.name == "bin" else ""))
        assert [name for name in named if not allowed.fullmatch(name)] == [], path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path


def test_vendored_files_are_those_that_were_looked_at() -> None:
    pinned = json.loads((VERIFIER / "vendor" / "digests.json").read_text(encoding="utf-8"))
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (VERIFIER / "vendor").glob("*.js")}
    assert digests == pinned


@pytest.mark.full
def test_vendored_files_are_made_of_the_pinned_packages() -> None:
    subprocess.run(
        ["bash", "tools/npm-ci", "verifier/vendor", "what the verifier's vendored files are made of"],
        cwd=ROOT,
        check=True,
        timeout=600,
    )
    done = subprocess.run(
        [node(), "verifier/vendor/make.mjs", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


RULES = {
    "drawn": '[consensus]\nassign = 2\nmin_validators = 1\nmin_stake = "0"\n',  # by when the first record came
    "softmax": '[reward]\nstrategy = "softmax"\n',
    "payout": '[reward]\nkind = "payout"\n[payout]\ndeposit = "1000"\n',
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_that_few_schemes_have_hold_however_evidence_is_read(tmp_path: Path, rule: str) -> None:
    randomness = "epoch,hex\n3," + "ab" * 32 + "\n" if rule == "drawn" else None
    folder = ledger_kit.ledger_folder(
        tmp_path / "small", scheme_toml=small_folder.SCHEME + RULES[rule], randomness_csv=randomness
    )
    rows = [
        small_folder.record(validator=validator, participant=who, submission=submission, task=task)
        for validator in ledger_kit.VALIDATORS
        for who, submission in (("m1", "s1"), ("m2", "s2"))
        for task in ("t1", "t2")
    ]
    ledger_kit.add(folder, rows)
    with ledger_kit.opened(folder) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 3)
        bundle.export(ledger, 3, tmp_path / "epoch-3")
    for way in ("bulk", "records"):
        words = [node(), str(CHANGED), str(tmp_path / "epoch-3"), KEY, way]
        done = subprocess.run(words, input='{"path": null}', capture_output=True, text=True, timeout=60, check=False)
        assert json.loads(done.stdout)["verified"], (way, done.stdout, done.stderr)
