"""Verifying: what is given decides what is checked; a stranger's files, honest or forged, never end in a traceback."""

import base64
import contextlib
import json
import random
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import assay
import ledger_kit
import small_folder
from assay.errors import AssayError, BadInput, Refused
from assay.exact import canonical
from assay.ledger import bundle, keys, log, settling
from assay.ledger.exchange import participants_of, proof_for
from assay.ledger.verify import STAGES, claims, report, verify
from assay.ledger.verify.recompute import differs
from ledger_kit import SIGNER, V1, V2, V3

KEY = str(ledger_kit.KEY)
Json = dict[str, Any]

place = pytest.fixture(scope="module")(ledger_kit.two_epochs)


def done(report: assay.Verified) -> list[str]:
    return [result.stage for result in report.checked if result.done]


def test_a_receipt_alone(place: Path) -> None:
    report = assay.verify(place / "4.receipt", key=KEY)
    assert done(report) == ["receipt", "log"]
    assert [result.stage for result in report.checked if not result.done] == ["evidence", "settlement"]
    assert not report.recomputed
    assert report.receipt["epoch"] == 4
    assert report.document()["stages"][0] == {"stage": "receipt", "checked": True, "what": report.checked[0].what}
    assert "which the receipt names itself" in verify(place / "4.receipt").checked[0].what


@pytest.mark.parametrize("where", ["epoch-4", "epoch-4/evidence", "columns-4", "columns-4/evidence/epoch-4.parquet"])
def test_a_receipt_with_evidence(where: str, place: Path) -> None:
    report = verify(str(place / "4.receipt"), evidence=str(place / where), key=f" {KEY}\n")
    assert report.recomputed
    assert sorted(set(done(report)), key=STAGES.index) == [stage for stage in STAGES if stage not in ("consistency", "witnesses")]


def test_a_receipt_with_a_file_of_evidence_alone(place: Path, tmp_path: Path) -> None:
    for kind in ("epoch-4/evidence/epoch-4.jsonl", "columns-4/evidence/epoch-4.parquet"):
        file = Path(shutil.copy(place / kind, tmp_path))
        report = verify(place / "4.receipt", evidence=file, key=KEY)
        assert done(report) == ["receipt", "log", "evidence"]
        with pytest.raises(Refused, match=r"are missing|has more than"):
            verify(place / "3.receipt", evidence=file, key=KEY)
    with pytest.raises(BadInput, match=r"has no inputs\.json"):
        verify(place / "4.receipt", evidence=tmp_path)


def test_whose_records_were_changed_is_told(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "small")
    for participant in ("m1", "m2"):
        ledger_kit.add(place, [record for record in ledger_kit.records() if record["participant"] == participant])
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
        bundle.export(ledger, 3, tmp_path / "epoch-3")
    lines = (tmp_path / "epoch-3/evidence/epoch-3.jsonl").read_text().splitlines(keepends=True)
    batches = (tmp_path / "epoch-3/batches.jsonl").read_bytes()

    def refusal_of(lines: list[str], batches: bytes | None = batches) -> str:
        shutil.rmtree(tmp_path / "changed", ignore_errors=True)
        source = Path(shutil.copytree(tmp_path / "epoch-3", tmp_path / "changed"))
        (source / "evidence/epoch-3.jsonl").write_text("".join(lines))
        (source / "batches.jsonl").unlink()
        if batches is not None:
            (source / "batches.jsonl").write_bytes(batches)
        with pytest.raises(Refused) as refused:
            verify(source, key=KEY)
        assert refused.value.stage == "evidence"
        return str(refused.value).partition("epoch-3.jsonl: ")[2]

    changed = [*lines[:8], lines[8].replace('"outcome":"pass"', '"outcome":"fail"'), *lines[9:]]
    whose = f"m2: at least one record with seq 9 … 10 was changed after {V2} signed it (expected sha256:"
    assert refusal_of(changed).startswith(whose)
    assert refusal_of(lines[:8] + lines[9:]) == f"m2: 1 of the records with seq 9 … 10 is missing; {V2} signed them"
    assert refusal_of(lines[:6]) == f"2 of the records with seq 7 … 8 are missing; {V1} signed them"
    first = json.loads(lines[0]) | {"seq": 2}, json.loads(lines[1]) | {"seq": 1}
    general = "the records are not those of the receipt of epoch 3 (expected sha256:"
    swapped = [*(f"{json.dumps(record)}\n" for record in first[::-1]), *lines[2:]]
    assert refusal_of(swapped).startswith(general)  # each is as it was signed, and another is said to be the first
    assert claims._few(["1 … 2", "4", "6", "8", "10"]) == "1 … 2, 4, 6 and 2 more"

    # Where the batches do not tell what was signed.
    rows = batches.splitlines(keepends=True)
    assert refusal_of(changed, None).startswith(general)
    for instead in (
        b"",
        b"x\n",
        rows[4].replace(b'"sig":"', b'"sig":"AAAA'),
        rows[4].replace(b"[[9,10]]", b"[[9,8],[9,10]]"),
        rows[4].replace(b"[[9,10]]", b"[[9,11]]"),
    ):
        assert instead != rows[4]
        message = refusal_of(changed, b"".join([*rows[:4], instead, *rows[5:]]))
        assert message == f"m2: nobody signed the record with seq 9, which names {V2} as its validator"


def test_a_scheme_that_somebody_keeps(place: Path, tmp_path: Path) -> None:
    assert done(verify(place / "4.receipt", scheme=place / "scheme.toml"))[-1] == "inputs"
    other = tmp_path / "scheme.toml"
    other.write_text(small_folder.SCHEME + '[reward]\ncap = "51%"\n')
    with pytest.raises(Refused, match="the scheme is not the receipt's") as refused:
        verify(place / "4.receipt", scheme=other)
    assert refused.value.stage == "inputs"
    with pytest.raises(BadInput, match="no such file"):
        verify(place / "4.receipt", scheme=tmp_path / "none.toml")


def test_an_earlier_checkpoint(place: Path, tmp_path: Path) -> None:
    report = verify(place / "epoch-4", key=KEY, checkpoint=place / "3.checkpoint")
    assert done(report).count("consistency") == 1
    assert "consistency" in done(verify(place / "3.receipt", key=KEY, checkpoint=place / "4.checkpoint", log=place / "log"))
    assert "consistency" in done(verify(place / "4.receipt", key=KEY, checkpoint=place / "4.checkpoint"))
    assert "consistency" in done(verify(place / "4.proof", key=KEY, checkpoint=place / "3.checkpoint", log=place / "log"))
    with pytest.raises(Refused, match="nothing proves that one checkpoint continues the other") as refused:
        verify(place / "4.receipt", key=KEY, checkpoint=place / "3.checkpoint")
    assert refused.value.stage == "consistency"
    with pytest.raises(Refused, match="was rolled back") as refused:
        verify(place / "epoch-3", key=KEY, checkpoint=place / "4.checkpoint")
    assert refused.value.stage == "consistency"
    forked = tmp_path / "forked"
    forked.write_bytes(log.sign_checkpoint(1, bytes(32), ledger_kit.KEY, SIGNER))
    with pytest.raises(Refused, match="was forked"):
        verify(place / "epoch-4", key=KEY, checkpoint=forked)
    forked.write_bytes(log.sign_checkpoint(1, bytes(32), log.log_key("example.org/x", SIGNER.public), SIGNER))
    with pytest.raises(Refused) as refused:
        verify(place / "epoch-4", key=KEY, checkpoint=forked)
    assert refused.value.stage == "consistency"
    with pytest.raises(BadInput, match="no such file"):
        verify(place / "epoch-4", key=KEY, checkpoint=tmp_path / "none")


def test_another_key(place: Path) -> None:
    other = str(log.log_key(ledger_kit.ORIGIN, keys.new().public))
    for given, file in (("epoch-4", "epoch-4/receipts/epoch-4.receipt"), ("4.receipt", "4.receipt"), ("4.proof", "4.proof")):
        with pytest.raises(Refused) as refused:
            verify(place / given, key=other)
        assert (refused.value.stage, refused.value.file) == ("receipt", place / file)
    for wrong in ("", "x", KEY + "x", "a" * 64):
        with pytest.raises(BadInput, match="give the log's public key"):
            verify(place / "4.receipt", key=wrong)


def test_a_receipt_that_names_no_key(place: Path, tmp_path: Path) -> None:
    document = json.loads((place / "4.receipt").read_bytes())
    for name in ("", "ed25519:zz", "ed25519:" + "00" * 32, "sr25519:" + "11" * 32):
        document["envelope"]["signatures"][0]["keyid"] = name
        (tmp_path / "a.receipt").write_bytes(canonical(document))
        for key in (None, KEY):
            with pytest.raises(Refused) as refused:
                verify(tmp_path / "a.receipt", key=key)
            assert refused.value.stage == "receipt"


def test_what_is_not_there(place: Path, tmp_path: Path) -> None:
    for given in (tmp_path / "none", tmp_path, tmp_path / ("x" * 300), place / "4.receipt\0"):
        with pytest.raises(BadInput):
            verify(given)
    with pytest.raises(Refused, match="no such file"):
        verify(place / "4.receipt", log=tmp_path)


def test_a_participants_proof(place: Path) -> None:
    report = verify(place / "4.proof", key=KEY)
    assert done(report) == ["receipt", "log", "results", "chain", "evidence"]
    assert not report.recomputed
    assert done(verify(place / "3.proof", key=KEY)) == ["receipt", "log", "results", "evidence"]
    whole = (place / "4.proof").read_text("utf-8")
    assert "m2" not in whole
    assert '"s2"' not in whole
    assert len(json.loads(whole)["records"]) == 12
    with ledger_kit.opened(place) as ledger:
        assert proof_for(ledger, "m1") == proof_for(ledger, "m1", 4)
        assert [participant.key for participant in participants_of(ledger, 3)] == ["m1", "m2"]
        with pytest.raises(BadInput, match="there is no participant 'nobody'"):
            proof_for(ledger, "nobody")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Any:
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def changed(value: Any, path: tuple[Any, ...]) -> Any:
    copy = json.loads(canonical(value))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    old = holder[path[-1]]
    if isinstance(old, str) and path[-1] in ("payload", "sig"):
        data = base64.b64decode(old)
        holder[path[-1]] = base64.b64encode(data[:40] + bytes([data[40] ^ 1]) + data[41:]).decode()
    elif isinstance(old, bool) or old is None or isinstance(old, dict | list):
        holder[path[-1]] = "x" if old is None or isinstance(old, dict | list) else not old
    else:
        holder[path[-1]] = old + 1 if isinstance(old, int) else f"{old[:-1]}{'0' if old[-1:] != '0' else '1'}"
    return copy


def test_every_value_of_a_participants_proof(place: Path, tmp_path: Path) -> None:
    whole = json.loads((place / "4.proof").read_bytes())
    stages = {"result": "results", "result_proof": "results", "records": "evidence", "receipts": "chain", "schema": "receipt"}
    file, count = tmp_path / "a.proof", 0
    for path, _ in leaves(whole):
        if path[0] == "records" and path[1] > 2:
            continue
        file.write_bytes(canonical(changed(whole, path)))
        with pytest.raises(Refused) as refused:
            verify(file, key=KEY)
        wanted = stages.get(path[0]) or ("log" if path[1] == "proof" else "receipt")
        shaped = "it is not a participant's proof" in str(refused.value)
        assert refused.value.stage == ("receipt" if shaped else wanted), (path, str(refused.value))
        count += 1
    assert count > 60
    for name in whole:
        file.write_bytes(canonical({key: value for key, value in whole.items() if key != name}))
        with pytest.raises(Refused):
            verify(file, key=KEY)


def test_a_proof_with_anothers_records_or_receipts(place: Path, tmp_path: Path) -> None:
    with ledger_kit.opened(place) as ledger:
        mine, other = (proof_for(ledger, key) for key in ("m1", "m2"))
    file = tmp_path / "a.proof"
    for change, words in (
        ({"records": other["records"]}, "is about another participant"),
        ({"result": other["result"]}, "the proof does not lead to the root"),
        ({"receipts": []}, "there is no receipt of epoch 3"),
        ({"receipts": [mine["receipt"], json.loads((place / "4.receipt").read_bytes())]}, "or of no earlier epoch"),
    ):
        file.write_bytes(canonical(mine | change))
        with pytest.raises(Refused, match=words):
            verify(file, key=KEY)
    three = json.loads((place / "3.proof").read_bytes())
    file.write_bytes(canonical(three | {"receipts": [mine["receipt"]]}))
    with pytest.raises(Refused, match="is not proven by the same checkpoint"):
        verify(file, key=KEY)
    row = three["records"][0]
    file.write_bytes(
        canonical(three | {"records": [row | {"record": row["record"] | {"observed_at": "2026-11-02T10:00:00.0Z"}}]})
    )
    with pytest.raises(Refused, match="is not in its canonical form"):
        verify(file, key=KEY)


@pytest.mark.sampled(2)
@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["given", "points", "workflow", "rubric"])
def test_proofs_of_every_kind(kind: str, tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path, kind)
    people = "key,uid,submission,submitted_at\nm1,1,s1,2026-11-02T09:00:00Z\nm2,2,s2,\nm3,3,s1,\nm4,4,,\n"
    (place / "participants.csv").write_text(people)
    extra = [small_folder.record(kind, validator=key, participant="m4", submission="") for key in (V1, V2)]
    ledger_kit.add(place, [*ledger_kit.records(kind), *extra])
    ledger_kit.add(place, ledger_kit.records(kind, validators=[V3], observed_at="2026-11-02T11:00:00Z"))
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
        for key, count in (("m1", 3), ("m2", 3), ("m3", 0), ("m4", 2)):
            count *= 2 if kind == "workflow" and count == 3 else 1
            proof = proof_for(ledger, key)
            assert len(proof["records"]) == count, key
            (tmp_path / "a.proof").write_bytes(canonical(proof))
            assert "evidence" in done(verify(tmp_path / "a.proof", key=KEY))


@pytest.mark.full
def test_files_of_noise(place: Path, tmp_path: Path) -> None:
    noise = random.Random(7)
    source = Path(shutil.copytree(place / "columns-4", tmp_path / "noise"))
    files = [path for path in sorted(source.rglob("*")) if path.is_file()]
    for path in files:
        whole = path.read_bytes()
        for size in (0, 1, 100, 5000):
            path.write_bytes(noise.randbytes(size))
            with pytest.raises(AssayError):
                verify(source, key=KEY)
        for _ in range(3):
            at = noise.randrange(len(whole))
            path.write_bytes(whole[:at] + noise.randbytes(3) + whole[at + 3 :])
            lenient = path.suffix == ".parquet"  # not every byte of such a file says something
            with contextlib.suppress(AssayError) if lenient else pytest.raises(AssayError):
                verify(source, key=KEY)
        path.write_bytes(whole)
    assert verify(source, key=KEY).recomputed


def test_parquet_of_which_some_do_not_count(place: Path, tmp_path: Path) -> None:
    """As long as the evidence is that of the receipts, those who left are found in Parquet as in lines."""
    small = ledger_kit.ledger_folder(tmp_path / "small", scheme_toml=small_folder.SCHEME + "[consensus]\nmin_validators = 2\n")
    ledger_kit.add(small, ledger_kit.records())
    with ledger_kit.opened(small) as ledger:
        settling.settle(ledger, SIGNER)
    (small / "validators.csv").write_text(f"key,stake\n{V1},100\n{V2},200\n")
    (small / "participants.csv").write_text("key,uid,submission\nm1,1,s1\nm3,3,s2\n")
    (small / "tasks.txt").write_text("t1\nt2\n")
    with ledger_kit.opened(small) as ledger:
        settled = settling.settle(ledger, SIGNER, 4)
        for as_parquet in (False, True):
            report = verify(bundle.export(ledger, 4, tmp_path / str(as_parquet), as_parquet=as_parquet), key=KEY)
            assert report.receipt["settlement"] == settled.settlement.digest
    assert settled.settlement.ranking == ["m1", "m3"]
    mixed = Path(shutil.copytree(tmp_path / "False", tmp_path / "mixed"))
    (mixed / "evidence/epoch-3.jsonl").unlink()
    shutil.copy(tmp_path / "True/evidence/epoch-3.parquet", mixed / "evidence")
    assert verify(mixed, key=KEY).recomputed
    assert pq.read_table(tmp_path / "True/evidence/epoch-4.parquet").num_rows == 0


def test_a_settlement_in_another_layout_is_the_same(place: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(place / "epoch-4", tmp_path / "copy"))
    path = copy / "settlement.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=2))
    assert verify(copy, key=KEY).recomputed


def test_the_first_difference_is_told() -> None:
    rows = [{"participant": "a", "x": 1}, {"participant": "b", "x": 2}]
    assert differs({"rows": rows}, {"rows": rows}) is None
    assert differs({"rows": rows}, {"rows": rows[::-1]}) == ("rows[0].participant", "a", "a", "b")
    assert differs({"rows": rows}, {"rows": rows[1:]}) == ("rows", "a", "a row", "nothing")
    assert differs({"rows": rows}, {"rows": [*rows, {"participant": "c"}]}) == ("rows", "", "2 rows", "3 rows")
    assert differs({"rows": rows}, {"rows": [{"participant": "b", "x": 3}, rows[0]]}) == ("rows.x", "b", 2, 3)
    assert differs({"rows": [1, 2]}, {"rows": [1]}) == ("rows", "", "2 rows", "1 rows")
    assert differs({"a": 1}, {"a": True}) == ("a", "", 1, True)
    assert differs({"a": 1}, {"b": 1}) == ("a", "", 1, "nothing")
    assert differs({}, {"b": 1}) == ("b", "", "nothing", 1)
    assert differs([], {}) == ("", "", [], {})
    assert differs({"participant": 3, "x": 1}, {"participant": 3, "x": 2}) == ("x", "", 1, 2)


def test_a_bundle_that_is_still_packed_is_refused_with_what_to_do(tmp_path: Path) -> None:
    packed = tmp_path / "epoch-4.tar"
    with tarfile.open(packed, "w") as tar:
        tar.addfile(tarfile.TarInfo("epoch-4/receipt"))
    with pytest.raises(Refused, match="it is a tar archive; unpack it"):
        report.gather_material(packed, None)
