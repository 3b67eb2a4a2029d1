"""Signed batches: what is written is what the oracle writes, and nothing else is read."""

import base64
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import ledger_kit
import small_folder
from assay.errors import BadInput
from assay.exact import canonical
from assay.ledger import batch, check, intake, keys, settling, signing
from assay.ledger.keys import sign_envelope
from assay.records import Evidence, record
from cli_kit import files_under, from_preset, output, refused, rewrite, run
from oracle import envelopes

SEED = bytes([7]) * 32
THEIRS = Ed25519PrivateKey.from_private_bytes(SEED)
SIGNER = keys.read(SEED.hex().encode())
V = SIGNER.public.raw.hex()
TASK_SET = "sha256:" + "ab" * 32
Doc = dict[str, Any]

EXTRA: dict[str, Doc] = {
    "tests": {"task": "t1", "outcome": "pass", "trial": 1},
    "workflow": {
        "task": "t1",
        "outcome": "invalid",
        "quality": "0",
        "steps_completed": 0,
        "steps_total": 0,
        "cost": "0",
        "budget": "0",
        "seconds": "0",
        "max_seconds": "0",
        "retries": 0,
        "declared_retries": 0,
        "timeouts": 0,
        "hard_failures": 0,
    },
    "rubric": {"baseline": {"B1": True}, "checks": {"C1": 0.5, "é\n\u2028😀": [1e21, -0.0]}, "verdict": "x", "outcome": "judged"},
    "points": {
        "repository": "o/r",
        "valid": 1,
        "invalid": 0,
        "revoked_valid": 0,
        "revoked_invalid": 0,
        "starred": False,
    },
    "given": {"score": "0.5"},
}


def seen(kind: str = "tests", **changes: Any) -> Doc:
    head = {
        "kind": kind,
        "epoch": 3,
        "validator": V,
        "participant": "m1",
        "submission": "s1",
        "observed_at": "2026-01-02T03:04:05Z",
    }
    return head | EXTRA[kind] | changes


def several() -> list[Doc]:
    whole = "sha256:" + "0a" * 32
    return [seen(task=f"t{number}", submission=name) for number in range(5) for name in ("s1", "é", whole, whole[:-1])]


def signed(records: list[Doc], **changes: Any) -> batch.Batch:
    named: Doc = {"origin": "example.org/log", "competition": "c", "task_set": TASK_SET, "signer": SIGNER, "validator": V}
    return batch.make([record(document) for document in records], **named | changes)


def test_a_batch_is_written_as_the_oracle_writes_it() -> None:
    original = signed(several() + several()[:3])
    assert original.data == envelopes.batch(several(), THEIRS, "c", TASK_SET)
    assert original.statement.count == len(original.records) == 20
    again = batch.read(original.data)
    assert again == original
    assert again.digest == f"sha256:{sha256(original.payload).hexdigest()}"
    assert [canonical(record.document()) for record in again.records] == list(again.bodies)
    assert [bytes.fromhex(record.digest[7:]) for record in again.records] == list(again.digests)
    batch.check_signature(again, SIGNER.public)
    with pytest.raises(BadInput, match="as its validator, but the key given is"):
        batch.check_signature(again, keys.new().public)


def test_a_batch_is_checked_by_no_other_key_than_that_of_the_validator_whom_it_names() -> None:
    """Somebody else signs the statement and says to check it by his own key."""
    other = keys.new()
    original = signed(several())
    envelope = canonical(sign_envelope(original.payload, other))
    forged = batch.read(original.data.replace(original.envelope, envelope, 1))
    with pytest.raises(BadInput, match="as its validator, but the key given is"):
        batch.check_signature(forged, other.public)
    with pytest.raises(BadInput, match="it is not signed by the key"):
        batch.check_signature(forged, SIGNER.public)


@pytest.mark.parametrize("kind", EXTRA)
def test_every_kind_of_record_can_be_signed(kind: str, tmp_path: Path) -> None:
    original = signed([seen(kind), seen(kind, participant="m2", submission="s2")], task_set=None)
    (tmp_path / "a.batch").write_bytes(original.data)
    again = batch.read(tmp_path / "a.batch")
    assert again == original
    assert [record.digest[7:] for record in again.records] == [digest.hex() for digest in again.digests]


def test_a_hotkey_signs_too() -> None:
    hotkey = keys.new("sr25519")
    address = keys.hotkey.address(hotkey.public.raw)
    original = signed([seen(validator=address)], signer=hotkey, validator=address)
    batch.check_signature(batch.read(original.data), keys.public(address))
    envelope = json.loads(original.envelope)
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    for at in range(len(signature)):
        wrong = signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]
        envelope["signatures"][0]["sig"] = base64.b64encode(wrong).decode()
        changed = batch.read(original.data.replace(original.envelope, canonical(envelope), 1))
        with pytest.raises(BadInput, match="it is not signed by the key"):
            batch.check_signature(changed, keys.public(address))


def test_a_record_of_a_batch_is_provable_alone() -> None:
    original = signed(several())
    for digest in original.digests:
        proof = batch.record_proof(original, digest)
        root = bytes.fromhex(original.statement.root[7:])
        check.check_inclusion(root, original.statement.count, proof.index, check.leaf_hash(digest), proof.hashes)
    with pytest.raises(BadInput, match="is not in the batch sha256:"):
        batch.record_proof(original, bytes(32))


@pytest.mark.parametrize(
    ("records", "changes", "why"),
    [
        ([], {}, "there are no records to sign"),
        ([seen(), seen(epoch=4)], {}, "epoch 4, kind tests is not of"),
        ([seen(), seen("given")], {}, "kind given is not of"),
        ([seen(), seen(validator="other")], {}, "a record of 'other'"),
        ([seen(validator="v")], {"validator": "v"}, "'v' is not a public key"),
        ([seen()], {"signer": keys.new()}, "is not the key that signs, ed25519:"),
        ([seen(), seen(outcome="fail")], {}, "contradicts another record of the batch; keep the record that is meant"),
    ],
)
def test_what_is_no_batch_is_not_signed(records: list[Doc], changes: Doc, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        signed(records, **changes)


def test_two_holders_of_one_submission_do_not_contradict() -> None:
    assert signed([seen(), seen(participant="m2")]).statement.count == 2


def test_a_batch_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    data = signed(several()).data
    monkeypatch.setattr(batch, "RECORDS", 19)
    with pytest.raises(BadInput, match="larger than a batch may be: 19 records"):
        signed(several())
    with pytest.raises(BadInput, match="and the most is 19"):
        batch.read(data)
    monkeypatch.setattr(batch, "RECORDS", 20)
    monkeypatch.setattr(batch, "BATCH_BYTES", len(data) - 1)
    with pytest.raises(BadInput, match="larger than a batch may be"):
        signed(several())
    with pytest.raises(BadInput, match="is not a batch"):
        batch.read(data)
    monkeypatch.setattr(batch, "BATCH_BYTES", len(data))
    assert batch.read(data).data == data


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = signed(several()).data
    (tmp_path / "a.batch").write_bytes(data)
    monkeypatch.setattr(batch, "BATCH_BYTES", len(data) - 1)
    with pytest.raises(BadInput, match=r"a\.batch: is larger than"):
        batch.read(tmp_path / "a.batch")
    with pytest.raises(BadInput, match="no such file; give a batch"):
        batch.read(tmp_path / "b.batch")


Change = Callable[[Doc, list[bytes]], tuple[Doc, list[bytes]]]


def stated(change: Doc) -> Change:
    """Another predicate, signed by the same key."""

    def do(statement: Doc, rows: list[bytes]) -> tuple[Doc, list[bytes]]:
        return statement | {"predicate": statement["predicate"] | change}, rows

    return do


def row(old: bytes, new: bytes) -> Change:
    return lambda statement, rows: (statement, [rows[0].replace(old, new), *rows[1:]])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (stated({"count": 19}), "has 20 records, but its statement counts 19"),
        (stated({"root": TASK_SET}), "the records are not those that were signed: their root differs"),
        (stated({"epoch": 4}), ":2: is not of .* and epoch 4"),
        (stated({"validator": "0" * 64}), ":2: is not of '0000"),
        (stated({"kind": "given"}), ":2: kind: is not of the kind 'given'"),
        (stated({"kind": "taste"}), ":1: its statement is not a batch's: kind does not fit"),
        (stated({"epoch": "3"}), "epoch does not fit"),
        (stated({"epoch": 3.0}), "epoch does not fit"),
        (stated({"task_set": ""}), "task_set does not fit"),
        (stated({"more": 1}), "predicate does not fit"),
        (lambda doc, rows: (doc | {"_type": "x"}, rows), "_type does not fit"),
        (lambda doc, rows: (doc | {"subject": doc["subject"][1:]}, rows), "are not of the submissions that are its subjects"),
        (lambda doc, rows: (doc | {"subject": doc["subject"][::-1]}, rows), "are not of the submissions that are its subjects"),
        (
            lambda doc, rows: (doc | {"subject": [entry | {"digest": {"sha256": "0" * 64}} for entry in doc["subject"]]}, rows),
            "the statement is not in its canonical form",
        ),
        (lambda doc, rows: (doc, [rows[1], rows[0], *rows[2:]]), ":3: is not in the order of the digests"),
        (lambda doc, rows: (doc, [rows[0], rows[0], *rows[2:]]), ":3: is not in the order of the digests"),
        (lambda doc, rows: (doc, rows[1:]), "has 19 records, but its statement counts 20"),
        (row(b'"epoch":3', b'"epoch": 3'), ":2: is not in its canonical form"),
        (row(b'"epoch":3', b'"epoch":3.0'), ":2: epoch: "),
        (row(b'"epoch":3', b'"epoch":3,"epoch":3'), ":2: has the key 'epoch' twice"),
        (row(b'"epoch":3', b'"epoch":3,"seq":1'), ":2: "),
        (row(b',"trial":1', b""), ":2: is not in its canonical form"),
        (row(b"pass", b"maybe"), ":2: outcome: "),
        (row(b"2026-01-02T03:04:05Z", b"2026-01-02T03:04:05+00:00"), ":2: is not in its canonical form"),
        (lambda doc, rows: (doc, [b"[]", *rows[1:]]), ":2: kind: is not of the kind 'tests'"),
        (lambda doc, rows: (doc, [b"", *rows[1:]]), ":2: is not JSON"),
        (lambda doc, rows: (doc, [b'{"a":"' + b"x" * 10**6 + b'"}', *rows[1:]]), ":2: the line is longer than 1000000 bytes"),
    ],
)
def test_what_is_no_batch_is_not_read(change: Change, why: str, tmp_path: Path) -> None:
    statement, rows = change(*envelopes.statement_of(several(), "c", TASK_SET))
    path = tmp_path / "a.batch"
    path.write_bytes(b"\n".join([envelopes.plain(envelopes.dsse(envelopes.plain(statement), THEIRS)), *rows, b""]))
    with pytest.raises(BadInput, match=why) as caught:
        batch.read(path)
    assert caught.value.file == path


def test_lines_that_are_records_only_together_are_none() -> None:
    """Joined by a comma they read as two records, and the digests are of neither."""
    first, second = (canonical(record(seen(task=task)).document()) for task in ("t1", "t2"))
    whole = first + b"," + second
    cut = whole.index(b",", 20)
    with pytest.raises(BadInput, match="is not JSON"):
        batch.read_records([whole[:cut], whole[cut + 1 :]], "tests", None, 2)


@pytest.mark.parametrize(("head", "tail"), [("x", "y"), ("x}", "{y"), ("x}", '{"y')])
def test_a_line_that_ends_within_a_record_is_not_made_good_by_one_that_has_two(head: str, tail: str) -> None:
    """As many lines as records, and joined they are canonical, braces and all."""
    first, second, odd = (canonical(record(seen(task=task)).document()) for task in ("t1", "t2", f"{head},{tail}"))
    cut = odd.index(b",", odd.index(head.encode()))
    with pytest.raises(BadInput, match="2: is not JSON"):
        batch.read_records([first + b"," + second, odd[:cut], odd[cut + 1 :]], "tests", None, 2)
    with pytest.raises(BadInput, match="2: is not JSON"):
        batch.read_records([odd[:cut], odd[cut + 1 :], first + b"," + second], "tests", None, 2)


def test_records_that_have_braces_in_a_name_are_read() -> None:
    lines = [canonical(record(seen(task=task)).document()) for task in ("t1", "},{", "é🦆")]
    assert [canonical(read_record.document()) for read_record in batch.read_records(lines, "tests", None, 2)] == lines


def test_the_canonical_form_has_no_numbers_of_pythons_own() -> None:
    evidence = record(seen("rubric"))
    assert batch.record_bodies([evidence], "rubric") == [canonical(evidence.document())]
    assert batch.record_bodies([], "tests") == []
    assert batch.read_records([], "tests", None, 2) == []
    with pytest.raises(BadInput, match="is not in its canonical form"):
        batch.read_records([canonical(evidence.document()).replace(b"0.5", b"0.50")], "rubric", None, 2)


@pytest.mark.parametrize("data", [b"", b"\n", b"{}", b"{}\n", b"{}\n{}", b"\n\n", b"{}\n\n"])
def test_what_is_no_file_of_a_batch_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        batch.read(data)


def test_both_alphabets_are_read_and_no_other_signature() -> None:
    original = signed(several())
    envelope = json.loads(original.envelope)
    envelope["payload"] = envelope["payload"].replace("+", "-").replace("/", "_")
    twice = [{"sig": envelope["signatures"][0]["sig"]}, *envelope["signatures"]]
    again = batch.read(b"\n".join([json.dumps(envelope | {"signatures": twice}).encode(), *original.bodies, b""]))
    assert (again.payload, again.digest) == (original.payload, original.digest)
    batch.check_signature(again, SIGNER.public)
    other = [*twice, *envelopes.dsse(original.payload, Ed25519PrivateKey.generate())["signatures"]]
    again = batch.read(b"\n".join([json.dumps(envelope | {"signatures": other}).encode(), *original.bodies, b""]))
    with pytest.raises(BadInput, match="the signature names another key"):
        batch.check_signature(again, SIGNER.public)


@pytest.mark.parametrize("field", ["payload", "payloadType", "sig"])
def test_every_byte_of_the_envelope_is_held(field: str) -> None:
    data = signed([seen()]).data
    begin = data.index(b":", data.index(f'"{field}"'.encode())) + 2
    for at in range(begin, data.index(b'"', begin)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(BadInput):
            batch.check_signature(batch.read(changed), SIGNER.public)


def test_every_byte_of_a_record_is_held() -> None:
    data = signed([seen()]).data
    for at in range(data.index(b"\n"), len(data)):
        with pytest.raises(BadInput):
            batch.read(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


# The command

SIGN = ("evidence", "sign", "--origin", "example.org/log")


@pytest.fixture
def competition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sample competition whose first validator is a key of ours."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    keys.save("val-1", SIGNER)
    place = from_preset(tmp_path / "competition")
    rewrite(place / "validators.csv", "validator-1,", f"{V},")
    rewrite(place / "evidence/sample.jsonl", '"validator-1"', f'"{V}"')
    return place


def everything(place: Path) -> list[Evidence]:
    rows = [json.loads(line) for line in (place / "evidence/sample.jsonl").read_text(encoding="utf-8").splitlines()]
    return [record(row) for row in rows if row["validator"] == V]


def test_evidence_is_signed_a_batch_for_each_submission(competition: Path) -> None:
    lines = output(*SIGN, competition, "--key", "val-1", columns=500).splitlines()
    batches = [batch.read(Path(path)) for path in lines[:-1]]
    assert lines[-1] == f"{len(everything(competition))} records in {len(batches)} batches, signed."
    assert len(batches) == len({record.submission for record in everything(competition)}) > 1
    assert all(len(signed_batch.statement.submissions) == 1 for signed_batch in batches)
    assert {record.digest for some in batches for record in some.records} == {record.digest for record in everything(competition)}
    for signed_batch in batches:
        batch.check_signature(signed_batch, SIGNER.public)
        assert signed_batch.statement.task_set is not None
        assert signed_batch.statement.competition == "term-challenge"
    before = files_under(competition)
    output(*SIGN, competition, "--key", "val-1")
    assert files_under(competition) == before


def test_evidence_is_signed_for_a_log(competition: Path) -> None:
    words = ("evidence", "sign", competition, "--key", "val-1")
    assert "ledger.toml: no such file, so the log is unknown for which the evidence is signed" in refused(*words)
    assert not (competition / "batches").exists()
    lines = output(*SIGN, competition, "--key", "val-1", columns=500).splitlines()
    assert {batch.read(Path(path)).statement.origin for path in lines[:-1]} == {"example.org/log"}
    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.setenv("ASSAY_KEYS", str(competition.parent / "keys"))
        keys.save("log", keys.new())
        output("ledger", "init", competition, "--origin", "example.org/ours", "--key", "log")
    lines = output(*words, columns=500).splitlines()
    assert {batch.read(Path(path)).statement.origin for path in lines[:-1]} == {"example.org/ours"}


def test_evidence_of_an_epoch_is_one_batch(competition: Path, tmp_path: Path) -> None:
    place = tmp_path / "all.batch"
    words = (*SIGN, competition, "--key", "val-1", "-o", place)
    assert "batches for one file; give a folder" in refused(*words)
    assert not place.exists()
    epoch = everything(competition)[0].epoch
    printed = output(*words, "--by", "epoch", "--epoch", str(epoch), columns=500)
    assert printed == f"{place}\n{len(everything(competition))} records in 1 batch, signed.\n"
    assert batch.read(place).statement.epoch == epoch
    assert "there are no records of epoch 77 by" in refused(*words, "--epoch", "77")


def test_a_competition_without_tasks_has_no_task_set(tmp_path: Path, competition: Path) -> None:
    place = from_preset(tmp_path / "rubric", "agonaut")
    rewrite(place / "validators.csv", "enclave-1,", f"{V},")
    rewrite(place / "evidence/sample.jsonl", '"enclave-1"', f'"{V}"')
    batches = signing.sign_folder(place, SIGNER, origin="example.org/log")
    assert {signed_batch.statement.task_set for signed_batch in batches} == {None}


def test_who_signs_is_a_validator(competition: Path, tmp_path: Path) -> None:
    keys.save("val-2", keys.new())
    assert "no validator has the key ed25519:" in refused(*SIGN, competition, "--key", "val-2")
    rewrite(competition / "validators.csv", f"{V},", f"0x{V},1,\n{V},")
    assert f"validators.csv:3: '{V}' is the same key as '0x{V}'" in refused(*SIGN, competition, "--key", "val-1")


def test_what_cannot_be_written_is_said(competition: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be made" in refused(*SIGN, competition, "--key", "val-1", "-o", tmp_path / "file/folder")


# What came too late


def relabelled(batches: list[batch.Batch]) -> list[tuple[int, dict[str, object]]]:
    """The epoch of each record, and everything else that it says, in one order."""
    rows = [
        (record.epoch, {k: v for k, v in record.document().items() if k != "epoch"})
        for some in batches
        for record in some.records
    ]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def test_what_came_too_late_is_signed_for_an_epoch_that_is_open(competition: Path) -> None:
    words = (*SIGN, competition, "--key", "val-1", "--epoch", "2")
    count = len(everything(competition))
    assert f"there are {count} of epoch 1; if it was settled before they were handed in, add --from 1" in refused(*words)
    evidence = (competition / "evidence/sample.jsonl").read_bytes()
    lines = output(*words, "--from", "1", columns=500).splitlines()
    batches = [batch.read(Path(path)) for path in lines[:-1]]
    assert lines[-1] == f"{count} records in {len(batches)} batches, signed, {count} of them of epoch 1."
    assert relabelled(batches) == [(2, row) for _, row in relabelled(signing.sign_folder(competition, SIGNER, origin="x"))]
    assert (competition / "evidence/sample.jsonl").read_bytes() == evidence
    assert "there are no records of epoch 0 by" in refused(*words, "--from", "0")
    for wrong in (("--from", "2"), ("--from", "3")):
        assert "name with --epoch a later epoch, for which it is signed" in run(*words, *wrong, code=2).stderr.replace("\n", " ")


def test_what_there_is_of_the_open_epoch_stands_before_what_is_late(competition: Path) -> None:
    first = everything(competition)[0]
    newer = first.document() | {"epoch": 2, "observed_at": "2026-11-11T00:00:00Z"}
    with (competition / "evidence/later.jsonl").open("w", encoding="utf-8") as file:
        file.write(json.dumps(newer) + "\n")
    batches = signing.sign_folder(competition, SIGNER, epoch=2, late=signing.Late(2, 1), origin="example.org/log")
    mine = [record for some in batches for record in some.records]
    assert len(mine) == len(everything(competition))
    assert [evidence.document() for evidence in mine if evidence.slot == first.slot] == [record(newer).document()]


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A competition whose third validator's evidence came too late for epoch 3."""
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    place = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(place, ledger_kit.records(validators=[ledger_kit.V1, ledger_kit.V2]))
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 3, without_scores=True)
    (place / "evidence").mkdir()
    rows = ledger_kit.records(validators=[ledger_kit.V3])
    (place / "evidence/late.jsonl").write_bytes(b"".join(canonical(row) + b"\n" for row in rows))
    return place


def late_batches(place: Path) -> tuple[signing.Late, list[batch.Batch]]:
    with ledger_kit.opened(place) as ledger, ledger.store.reading() as view:
        chosen = signing.late_in(view, str(ledger.key))
        assert chosen is not None
        return chosen, signing.sign_folder(place, ledger_kit.VALIDATORS[ledger_kit.V3], late=chosen)


def test_late_evidence_states_the_task_set_with_which_its_epoch_was_settled(late: Path) -> None:
    today = intake.intake_rules(late).task_set
    chosen, batches = late_batches(late)
    assert ({signed_batch.statement.task_set for signed_batch in batches}, chosen.chosen, chosen.outdated) == ({today}, 4, 0)
    rewrite(late / "tasks.txt", "t2", "t2\nt3")
    assert intake.intake_rules(late).task_set != today
    chosen, batches = late_batches(late)
    assert (batches, chosen.chosen, chosen.outdated) == ([], 0, 4)
    keys.save("val-3", ledger_kit.VALIDATORS[ledger_kit.V3])
    words = (*SIGN, late, "--key", "val-3", "--epoch", "4", "--from", "3")
    assert "were judged on another task set than that of tasks.txt now; judge again" in refused(*words)
    (late / "ledger.db").unlink()  # a validator that has only the folder cannot know it: nothing is stated
    output(*words, "-o", late / "late.batch", "--by", "epoch")
    assert batch.read(late / "late.batch").statement.task_set is None


@pytest.mark.parametrize("kind", ["tests", "workflow", "points", "given"])
def test_lines_read_together_are_held_to_their_one_spelling(kind: str) -> None:
    body = canonical(record(small_folder.record(kind, observed_at="2026-11-02T10:00:00.250000Z")).document())
    again = canonical(record(small_folder.record(kind, validator="v2")).document())
    assert len(batch._read_together([body, again], kind)) == 2
    if kind == "tests":  # fields that may be missing, in the middle of a line and at its end
        fields = record(small_folder.record(kind)).document() | {"image": "sha256:1", "work": "ab"}
        assert len(batch._read_together([body, canonical(fields)], kind)) == 2
    others = [
        body.replace(b".250000Z", b".000000Z"),
        body.replace(b'"epoch":3,', b"").replace(b"{", b'{"epoch":3,', 1)
        if kind in ("workflow",)
        else body.replace(b",", b", ", 1),
        body.replace(b'"0.5"', b'"0.50"').replace(b'"trial":1,', b"").replace(b'"starred":true,', b""),
        body.replace(b'"validator"', b'"seq":1,"validator"'),
    ]
    for other in others:
        assert other != body
        assert batch._read_together([again, other], kind) == []
