"""Verifying what a dishonest operator, or a careless one, would have signed: every signature is right, and something is not."""

import base64
import dataclasses
import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import small_folder
from assay.errors import BadInput, CannotSettle, Refused
from assay.exact import canonical, digest
from assay.folder.files import Place
from assay.ledger import batch, bundle, evidence, log, settling
from assay.ledger.check import leaf_hash
from assay.ledger.exchange import proof_for
from assay.ledger.keys import sign_envelope
from assay.ledger.merkle import Tree
from assay.ledger.verify import claims, report, verify
from assay.ledger.verify.report import stage
from ledger_kit import SIGNER

KEY = str(ledger_kit.KEY)
Json = dict[str, Any]

place = pytest.fixture(scope="module")(ledger_kit.two_epochs)


def resigned(source: Path, change: Any) -> Path:
    """A bundle of one epoch whose operator lies: what was changed is signed again, in receipt and log."""
    path = next((source / "receipts").iterdir())
    document = json.loads(path.read_bytes())
    statement = json.loads(base64.b64decode(document["envelope"]["payload"]))
    change(statement["predicate"])
    statement["subject"][0]["name"] = f"small epoch {statement['predicate']['epoch']}"
    statement["subject"][0]["digest"]["sha256"] = statement["predicate"]["settlement"][7:]
    payload = canonical(statement)
    entry = sha256(payload).digest()
    checkpoint = log.sign_checkpoint(1, leaf_hash(entry), ledger_kit.KEY, SIGNER)
    proof = f"c2sp.org/tlog-proof@v1\nindex 0\n\n{checkpoint.decode()}"
    path.write_bytes(canonical({"schema": "assay.receipt/1", "envelope": sign_envelope(payload, SIGNER), "proof": proof}))
    shutil.rmtree(source / "log")
    for name, data in bundle.log_files([entry], checkpoint).items():
        (source / "log" / name).parent.mkdir(parents=True, exist_ok=True)
        (source / "log" / name).write_bytes(data)
    return source


@pytest.fixture
def forged(place: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(place / "epoch-3", tmp_path / "forged"))


def lied(source: Path, **changes: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        verify(resigned(source, lambda predicate: predicate.update(changes)), key=KEY)
    return refused.value


@pytest.mark.no_cover
def test_an_operator_who_signs_another_settlement(forged: Path) -> None:
    document = json.loads((forged / "settlement.json").read_bytes())
    document["weights"][1]["u16"] += 1
    document["digest"] = digest({key: value for key, value in document.items() if key != "digest"})
    (forged / "settlement.json").write_bytes(canonical(document))
    error = lied(forged, settlement=document["digest"])
    assert (error.stage, error.participant, error.what) == ("settlement", "m2", "weights[1].u16 differs")
    assert (error.expected, error.found) == (32768, 32769)
    assert "m2: weights[1].u16 differs (expected 32768, found 32769)" in str(error)


def test_an_operator_who_signs_the_digest_of_another_settlement(forged: Path) -> None:
    assert lied(forged, settlement=f"sha256:{'0' * 64}").what == "the receipt is of another settlement"


@pytest.mark.parametrize(
    ("stage", "changes"),
    [
        ("results", {"results": {"root": f"sha256:{'0' * 64}", "count": 2}}),
        ("inputs", {"scheme": f"sha256:{'0' * 64}"}),
        ("inputs", {"inputs": f"sha256:{'0' * 64}"}),
        ("inputs", {"task_set": None}),
        ("evidence", {"evidence": {"root": f"sha256:{'0' * 64}", "count": 12}}),
        ("evidence", {"evidence": {"root": f"sha256:{'0' * 64}", "count": 11}}),
        ("chain", {"previous": {"epoch": 2, "receipt": f"sha256:{'0' * 64}"}}),
    ],
)
def test_an_operator_who_signs_something_else(stage: str, changes: Json, forged: Path) -> None:
    assert lied(forged, **changes).stage == stage


def test_an_operator_whose_inputs_are_not_normal(forged: Path) -> None:
    for change, words in (
        (lambda inputs: inputs | {"participants": inputs["participants"][::-1]}, "not in the normalised form"),
        (lambda inputs: inputs | {"participants": []}, "no participant"),
        (lambda inputs: inputs | {"extra": 1}, "there is no field 'extra'"),
        (lambda inputs: [inputs], "not a JSON object"),
    ):
        inputs = change(json.loads((forged / "inputs.json").read_bytes()))
        kept = (forged / "inputs.json").read_bytes()
        (forged / "inputs.json").write_bytes(canonical(inputs))
        error = lied(forged, inputs=digest(inputs))
        assert error.stage == "inputs"
        assert words in str(error)
        (forged / "inputs.json").write_bytes(kept)


def test_evidence_of_an_epoch_that_is_not_the_receipts(forged: Path) -> None:
    (forged / "evidence/epoch-3.jsonl").rename(forged / "evidence/epoch-2.jsonl")
    (forged / "receipts/epoch-3.receipt").rename(forged / "receipts/epoch-2.receipt")
    error = lied(forged, epoch=2)
    assert (error.stage, error.what, error.expected) == ("evidence", "there is a record of epoch 3", "0 … 2")


def test_other_receipts_and_settlements_that_are_right_by_themselves(place: Path, forged: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="the last of the receipts is not the one that is verified") as refused:
        verify(place / "3.receipt", evidence=place / "epoch-4", key=KEY)
    assert refused.value.stage == "chain"
    shutil.copy(place / "epoch-4/settlement.json", forged / "previous.json")
    with pytest.raises(Refused, match="there is a settlement before the first one"):
        verify(forged, key=KEY)
    four = Path(shutil.copytree(place / "epoch-4", tmp_path / "four"))
    shutil.copy(four / "settlement.json", four / "previous.json")
    with pytest.raises(Refused, match="it is not the settlement that the receipt before names"):
        verify(four, key=KEY)


def test_a_bundle_has_all_receipts_up_to_its_checkpoint(forged: Path) -> None:
    path = forged / "receipts/epoch-3.receipt"
    document = json.loads(path.read_bytes())
    mine, other = sha256(base64.b64decode(document["envelope"]["payload"])).digest(), bytes(32)
    for entries, words in (([other, mine], "it is not in its place in the log"), ([mine, other], "are not all that the log has")):
        tree = Tree([leaf_hash(entry) for entry in entries])
        checkpoint = log.sign_checkpoint(2, tree.root(), ledger_kit.KEY, SIGNER)
        document["proof"] = log.proof_text(tree.inclusion(entries.index(mine)), checkpoint)
        path.write_bytes(canonical(document))
        shutil.rmtree(forged / "log")
        for name, data in bundle.log_files(entries, checkpoint).items():
            (forged / "log" / name).parent.mkdir(parents=True, exist_ok=True)
            (forged / "log" / name).write_bytes(data)
        with pytest.raises(Refused, match=words) as refused:
            verify(forged, key=KEY)
        assert refused.value.stage == "chain"


def test_a_batch_of_another_competition(forged: Path) -> None:
    lines = (forged / "batches.jsonl").read_bytes().splitlines(keepends=True)
    envelope, members = report.split_batch_line(lines[0], Place())
    _, stated = batch.stated(envelope)
    payload = canonical(dataclasses.replace(stated, competition="another").document())
    signed = canonical(sign_envelope(payload, ledger_kit.VALIDATORS[stated.validator]))
    first = b'{"envelope":%b,"members":%b}\n' % (signed, canonical(members))
    (forged / "batches.jsonl").write_bytes(b"".join([first, *lines[1:]]))
    with pytest.raises(Refused, match="the batch is of another competition"):
        verify(forged, key=KEY)


def test_lines_that_are_too_long_and_files_that_are_folders(forged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "BATCH_LINE_BYTES", 100)
    with pytest.raises(Refused, match="longer than 100 bytes") as refused:
        verify(forged, key=KEY)
    assert refused.value.stage == "signatures"
    monkeypatch.undo()
    for name, where in (
        ("batches.jsonl", "signatures"),
        ("evidence/epoch-3.jsonl", "evidence"),
        ("settlement.json", "settlement"),
    ):
        (forged / name).rename(forged / "kept")
        (forged / name).mkdir()
        with pytest.raises(Refused) as refused:
            verify(forged, key=KEY)
        assert refused.value.stage == where
        (forged / name).rmdir()
        (forged / "kept").rename(forged / name)
    (forged / "evidence").rename(forged / "gone")
    with pytest.raises(Refused) as refused:
        verify(forged, key=KEY)
    assert refused.value.stage == "evidence"


def test_records_some_at_a_time_and_a_seq_twice(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place / "epoch-4/evidence/epoch-4.jsonl"
    whole = list(evidence.evidence_parts(file))
    monkeypatch.setattr(evidence, "AT_ONCE", 5)
    pieces = list(evidence.evidence_parts(file))
    assert len(pieces) == 5
    assert [body for part in pieces for body in part.bodies] == whole[0].bodies
    with pytest.raises(Refused, match="two records have the same seq"):
        claims._sorted(evidence.BoundRecords([2, 1, 2], [b""] * 3, [("tests", 3, "v")] * 3))


def test_whatever_is_refused_has_a_stage() -> None:
    with pytest.raises(Refused) as refused, stage("evidence"):
        raise CannotSettle("too little memory", file="x")
    assert str(refused.value) == "evidence: x: too little memory"
    with pytest.raises(Refused) as refused, stage("log"):
        raise BadInput("is wrong", field="a", line=3)
    assert str(refused.value) == "log: line 3: a: is wrong"


def test_what_is_no_json_is_no_proof(tmp_path: Path) -> None:
    file = tmp_path / "a.proof"
    for data in (b'{"schema":"assay.proof/1"', b'{"schema":"assay.proof/1"}', b'"assay.proof/1"', b'\xff"result_proof"'):
        file.write_bytes(data)
        with pytest.raises(Refused) as refused:
            verify(file)
        assert refused.value.stage == "receipt"


def test_payouts_are_results_too(tmp_path: Path) -> None:
    payout = '[reward]\nkind = "payout"\n[payout]\ndeposit = "1000000"\nsplit = [6000, 4000]\nthreshold_bps = 5000\n'
    place = ledger_kit.ledger_folder(tmp_path, "given", scheme_toml=small_folder.SCHEMES["given"] + payout)
    ledger_kit.add(place, ledger_kit.records("given"))
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER)
        proof = proof_for(ledger, "m2")
        assert [row["net"] for row in proof["result"]["payouts"]] == ["400000"]
        assert proof["result"]["weight"] is None
        assert verify(bundle.export(ledger, 3, tmp_path / "epoch-3"), key=KEY).recomputed


def test_batches_that_claim_the_records_of_others(place: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(place / "epoch-4", tmp_path / "claims"))
    lines = (source / "batches.jsonl").read_bytes().splitlines(keepends=True)
    parts = [report.split_batch_line(line, Place()) for line in lines]
    assert len(parts) == 9
    far = [[first + 1000, last + 1000] for first, last in parts[8][1]]
    for changes, words in (
        ({0: parts[1][1], 1: parts[0][1]}, "a record is of another validator, epoch or kind than its batch"),
        ({3: parts[6][1], 6: parts[3][1]}, "the records are not those that were signed"),
        ({8: far}, "a record of the batch is missing"),
    ):
        written = [
            b'{"envelope":%b,"members":%b}\n' % (envelope, canonical(changes.get(at, members)))
            for at, (envelope, members) in enumerate(parts)
        ]
        (source / "batches.jsonl").write_bytes(b"".join(written))
        with pytest.raises(Refused, match=words) as refused:
            verify(source, key=KEY)
        assert refused.value.stage == "signatures"
