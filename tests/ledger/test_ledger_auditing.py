"""Audits of an epoch: what is drawn, what is signed, and that everything in it is made again by whoever checks it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import audit_kit
import ledger_kit
from assay.errors import MISSING, BadInput, CannotSettle, Refused
from assay.exact import canonical
from assay.ledger import audit_log, auditing, beacon, check, keys, log
from assay.ledger.auditing import AuditedEpoch, AuditRandomness, audited_epoch
from assay.ledger.check import CheckError
from assay.ledger.verify import verify

AUDITOR = keys.read(b"55" * 32)
ORIGIN = "example.org/small/audits"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audit_kit.witnessed(tmp_path_factory.mktemp("audit") / "small")


@pytest.fixture(scope="module")
def epoch(bundle: Path) -> AuditedEpoch:
    return audited_epoch(bundle, str(ledger_kit.KEY), bundle.parent / "witnesses.policy")


@pytest.fixture(scope="module")
def drand(epoch: AuditedEpoch) -> AuditRandomness:
    answer = {"round": audit_kit.ROUND, "randomness": audit_kit.RANDOMNESS, "signature": audit_kit.SIGNATURE}
    return auditing.of_beacon(beacon.parse_round(json.dumps(answer).encode(), epoch.round))


def checked(epoch: AuditedEpoch, predicate: dict[str, Any]) -> dict[str, Any]:
    return auditing.check_statement(epoch, auditing.statement_of(predicate))


def test_an_honest_epoch_is_confirmed_by_a_part_of_its_trials(epoch: AuditedEpoch, drand: AuditRandomness) -> None:
    assert (epoch.round, epoch.witnessed) == (audit_kit.ROUND, audit_kit.ROUND_TIME - 600)
    assert len(epoch.trials) == 120
    assert len(epoch.plan.trials) == 48 + 3 * 11  # the passes of m1, and the fails of m2 that tests decided
    seen = audit_kit.carried_out(epoch, drand.value)
    predicate = auditing.predicate_of(epoch, drand, seen)
    assert predicate["verdict"] == "confirmed"
    assert len(predicate["judged"]) == len(seen) <= len(predicate["draws"]) == epoch.clean
    assert {row["state"] for row in predicate["judged"]} == {"held"}
    assert [row["trials"] for row in predicate["untested"]] == [1, 1, 1]
    assert checked(epoch, predicate) == predicate


def test_more_trials_are_drawn_after_a_false_claim(epoch: AuditedEpoch, drand: AuditRandomness) -> None:
    first = auditing.next_trials(epoch, drand.value, {})[0]
    predicate = auditing.predicate_of(epoch, drand, audit_kit.carried_out(epoch, drand.value, lambda trial: trial == first))
    assert predicate["verdict"] == "confirmed"
    assert [row["state"] for row in predicate["judged"]].count("false") == 1
    assert epoch.clean is not None
    assert len(predicate["draws"]) > epoch.clean
    assert checked(epoch, predicate) == predicate


def test_lies_that_decide_end_in_a_recount_that_refuses(epoch: AuditedEpoch, drand: AuditRandomness) -> None:
    seen = audit_kit.carried_out(epoch, drand.value, lambda trial: trial.participant == "m1")
    predicate = auditing.predicate_of(epoch, drand, seen)
    assert (predicate["verdict"], len(predicate["judged"])) == ("refused", len(epoch.plan.trials))
    assert [row["stands"] for row in predicate["overstated"]] == [False]
    assert checked(epoch, predicate) == predicate


def test_a_trial_that_differed_once_is_not_decided(epoch: AuditedEpoch, drand: AuditRandomness) -> None:
    seen = audit_kit.carried_out(epoch, drand.value)
    rest = next(trial for trial in epoch.plan.trials if trial.record not in seen)
    once = seen | {rest.record: ["fail" if rest.passed else "pass"]}
    with pytest.raises(BadInput, match=r"a trial that differs is judged \d+ times, so the audit is not over"):
        auditing.predicate_of(epoch, drand, once)


def test_a_trial_ends_at_the_first_run_that_shows_its_claim(epoch: AuditedEpoch, drand: AuditRandomness) -> None:
    """Otherwise a false claim could be judged until it shows once, and would be called flaky."""
    seen = audit_kit.carried_out(epoch, drand.value)
    trial = epoch.plan.trials[0]
    shows, differs = ("pass", "fail") if trial.passed else ("fail", "pass")
    for outcomes in ([shows, differs], [shows, shows], [differs, differs, differs, shows]):
        with pytest.raises(BadInput, match="judged again after it had shown its claim, or more than 3 times"):
            auditing.predicate_of(epoch, drand, seen | {trial.record: outcomes})
    auditing.predicate_of(epoch, drand, seen | {trial.record: [differs, differs, shows]})


def test_a_recount_can_confirm(tmp_path: Path) -> None:
    place = audit_kit.witnessed(tmp_path / "small", passes={"m1": 9, "m2": 8})
    close = audited_epoch(place, policy=place.parent / "witnesses.policy")
    assert close.clean is None
    randomness = auditing.given("ab" * 32)
    predicate = auditing.predicate_of(close, randomness, audit_kit.carried_out(close, randomness.value))
    assert (predicate["verdict"], predicate["draws"], len(predicate["judged"])) == ("recounted", [], len(close.plan.trials))
    notes: list[str] = []
    auditing.check_statement(close, auditing.statement_of(predicate), on_randomness=notes.append)
    assert "not chosen" in notes[0]


def test_missing_work_counts_against_the_claim_without_being_called_a_lie(epoch: AuditedEpoch, drand: AuditRandomness) -> None:
    seen = audit_kit.carried_out(epoch, drand.value)
    first = next(iter(seen))
    assert auditing.next_trials(epoch, drand.value, seen) == []
    assert auditing.next_trials(epoch, drand.value, seen | {first: []}) != []
    with pytest.raises(BadInput, match="not over"):
        auditing.predicate_of(epoch, drand, seen | {first: []})


@pytest.mark.parametrize(
    "name", ["draws", "martingale", "verdict", "claims", "risk", "witnessed", "receipt", "trials", "untested"]
)
def test_a_changed_field_is_named(epoch: AuditedEpoch, drand: AuditRandomness, name: str) -> None:
    predicate = auditing.predicate_of(epoch, drand, audit_kit.carried_out(epoch, drand.value))
    other = {
        "draws": predicate["draws"][1:],
        "martingale": [*predicate["martingale"][1:], "1"],
        "verdict": "recounted",
        "risk": "0.1",
        "witnessed": 7,
        "receipt": f"sha256:{'0' * 64}",
        "trials": predicate["trials"] | {"counted": 9},
    }
    with pytest.raises(Refused, match=name):
        checked(epoch, predicate | {name: other.get(name, [])})


def test_what_is_no_statement_of_this_epoch_is_refused(epoch: AuditedEpoch, drand: AuditRandomness) -> None:
    predicate = auditing.predicate_of(epoch, drand, audit_kit.carried_out(epoch, drand.value))
    document, first = json.loads(auditing.statement_of(predicate)), predicate["judged"][0]
    for payload, why in (
        (b"[]", "not a statement"),
        (canonical(document | {"predicateType": "assay:receipt/v2"}), "not a statement"),
        (canonical(document | {"predicate": predicate | {"judged": [{}]}}), "judged does not fit"),
        (canonical(document | {"subject": []}), "subject"),
        (canonical(document | {"predicate": predicate | {"judged": predicate["judged"][1:]}}), "not over"),
        (
            canonical(document | {"predicate": predicate | {"judged": [first | {"seen": ["fail"] * 3}]}}),
            "not over",
        ),
    ):
        with pytest.raises(Refused, match=why):
            auditing.check_statement(epoch, payload)


def test_the_round_is_the_one_that_the_rule_fixes(bundle: Path, epoch: AuditedEpoch, drand: AuditRandomness) -> None:
    predicate = auditing.predicate_of(epoch, drand, audit_kit.carried_out(epoch, drand.value))
    source = predicate["randomness"]
    for change, why in (
        ({"round": 1001}, "not the round of drand that the rule fixes"),
        ({"signature": "00" * 48}, "not signed by drand"),
        ({"chain": "00" * 32}, "another chain"),
    ):
        with pytest.raises(Refused, match=why):
            checked(epoch, predicate | {"randomness": source | change})
    alone = audited_epoch(bundle)
    with pytest.raises(Refused, match="give the policy"):
        checked(alone, predicate)
    with pytest.raises(BadInput, match="no round of drand is fixed"):
        _ = alone.round
    with pytest.raises(BadInput, match="64 hex digits"):
        auditing.given("xyz")


def test_only_trials_that_count_are_in_it(bundle: Path, epoch: AuditedEpoch) -> None:
    settlement = verify(bundle).settlement
    assert settlement is not None
    about = next(iter(epoch.records.values()))
    changes: list[dict[str, Any]] = [{}, {"trial": 2}, {"task": "t99"}, {"outcome": "error"}, {"validator": "nobody"}]
    records = [(about.participant, about.model_copy(update=change)) for change in changes]
    assert len(auditing.trials_of(settlement, records)) == 1


def test_epochs_that_have_nothing_to_audit_are_told(tmp_path: Path, bundle: Path) -> None:
    with pytest.raises(BadInput, match="no bundle"):
        audited_epoch(bundle / "receipts" / "epoch-3.receipt")
    nobody = audit_kit.witnessed(tmp_path / "nobody", passes={"m1": 0, "m2": 0})
    with pytest.raises(CannotSettle, match="nothing to confirm"):
        audited_epoch(nobody)
    place = ledger_kit.ledger_folder(tmp_path / "given", "given")
    ledger_kit.add(place, ledger_kit.records("given"))
    with ledger_kit.opened(place) as ledger:
        from assay.ledger.bundle import export
        from assay.ledger.settling import settle

        settle(ledger, ledger_kit.SIGNER, 3)
        export(ledger, 3, place / "epoch-3")
    with pytest.raises(BadInput, match="only trials"):
        audited_epoch(place / "epoch-3")


class TestBeacon:
    def test_rounds_are_counted_from_the_first(self) -> None:
        assert beacon.round_after(0) == beacon.round_after(beacon.GENESIS) == 1
        assert [beacon.round_after(beacon.GENESIS + seconds) for seconds in (1, 3, 4)] == [2, 2, 3]
        assert beacon.time_of_round(beacon.round_after(audit_kit.ROUND_TIME)) == audit_kit.ROUND_TIME
        assert beacon.path_of(1000).endswith("/public/1000")

    @pytest.mark.full
    @pytest.mark.no_cover
    def test_the_library_leaves_the_limit_of_recursion_as_it_was(self) -> None:
        """With the one that it sets, JSON of many brackets would crash the process. In a process that has not loaded it yet."""
        check_it = (
            "import sys; from assay.ledger import beacon; before = sys.getrecursionlimit(); "
            f"beacon.check_round({audit_kit.ROUND}, bytes.fromhex({audit_kit.SIGNATURE!r})); "
            "assert 'py_ecc' in sys.modules; print(before == sys.getrecursionlimit())"
        )
        ran = subprocess.run([sys.executable, "-c", check_it], capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.stderr) == ("True\n", "")

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            (b"{", "strict JSON"),
            (b"[]", "does not fit"),
            ({"round": 999}, "another round"),
            ({"randomness": "00" * 32}, "not that of its signature"),
            ({"signature": "c0" + "00" * 47, "randomness": None}, "not signed"),  # the point at infinity
            ({"signature": "ff" * 48, "randomness": None}, "not signed"),  # no point at all
        ],
    )
    def test_what_the_group_did_not_sign_is_refused(self, answer: Any, why: str) -> None:
        good = {"round": 1000, "randomness": audit_kit.RANDOMNESS, "signature": audit_kit.SIGNATURE, "previous_signature": ""}
        if isinstance(answer, dict):
            changed = good | answer
            if changed["randomness"] is None:
                from hashlib import sha256

                changed["randomness"] = sha256(bytes.fromhex(str(changed["signature"]))).hexdigest()
            answer = json.dumps(changed).encode()
        with pytest.raises(CheckError, match=why):
            beacon.parse_round(answer, 1000)

    def test_without_the_library_it_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "py_ecc.bls.g2_primitives", None)
        with pytest.raises(CheckError, match=r"assay\[audit\]"):
            beacon.check_round(1001, bytes.fromhex(audit_kit.SIGNATURE))

    def test_an_audit_is_then_unsupported_and_not_wrong(
        self, epoch: AuditedEpoch, drand: AuditRandomness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        payload = auditing.statement_of(auditing.predicate_of(epoch, drand, audit_kit.carried_out(epoch, drand.value)))
        beacon._signed.cache_clear()
        monkeypatch.setitem(sys.modules, "py_ecc.bls.g2_primitives", None)
        with pytest.raises(BadInput) as missing:
            auditing.check_statement(epoch, payload)
        why = "drand's signatures are checked with py_ecc, which is not installed: pip install 'assay[audit]'"
        assert (missing.value.stage, str(missing.value)) == (MISSING, f"unsupported: {why}")
        answer = json.dumps({"round": 1000, "randomness": audit_kit.RANDOMNESS, "signature": audit_kit.SIGNATURE}).encode()
        with pytest.raises(BadInput) as missing, keys.as_bad_input("ask another server of drand"):
            beacon.parse_round(answer, 1000)
        assert (missing.value.stage, str(missing.value)) == (MISSING, f"unsupported: {why}")


class TestAuditLog:
    @pytest.fixture
    def payload(self, epoch: AuditedEpoch) -> Callable[[str], bytes]:
        def payload_of(hex_digits: str) -> bytes:
            randomness = auditing.given(hex_digits)
            return auditing.statement_of(auditing.predicate_of(epoch, randomness, audit_kit.carried_out(epoch, randomness.value)))

        return payload_of

    def test_audits_are_signed_one_after_the_other_and_once_each(self, tmp_path: Path, payload: Callable[[str], bytes]) -> None:
        sign = partial(audit_log.append, tmp_path / "audits", ORIGIN, AUDITOR)
        paths = [sign(payload(digits * 32)) for digits in ("aa", "bb")]
        assert sign(payload("aa" * 32)) == paths[0]
        key = log.log_key(ORIGIN, AUDITOR.public)
        audits = [audit_log.read_audit(path, key) for path in paths]
        assert [(audit.index, audit.size) for audit in audits] == [(0, 1), (1, 2)]
        assert [audit.payload for audit in audit_log.kept(tmp_path)] == [audit.payload for audit in audits]
        assert audits[0].predicate["epoch"] == 3
        assert audit_log.read_audit(paths[0]).key == key
        with pytest.raises(Refused, match="not signed by the key"):
            audit_log.read_audit(paths[0], log.log_key(ORIGIN, ledger_kit.SIGNER.public))

    def test_an_audit_is_told_in_a_sentence(self) -> None:
        rows = [{"validator": name, "state": state} for name, state in (("a", "held"), ("a", "false"), ("b", "flaky"))]
        predicate = {"verdict": "refused", "risk": "0.05", "trials": {"counted": 9}, "judged": rows}
        assert audit_log.summary(predicate) == "Audited at 5 % risk: 3 of 9 trials judged again; the outcome is not confirmed."
        assert audit_log.false_claims(predicate) == {"a": (1, 2)}

    def test_a_crash_before_the_log_signs_no_second_tree(
        self, tmp_path: Path, payload: Callable[[str], bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sign = partial(audit_log.append, tmp_path / "audits", ORIGIN, AUDITOR)
        with monkeypatch.context() as patch:
            patch.setattr(log.Log, "publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                sign(payload("aa" * 32))
        (tmp_path / "audits" / "torn.audit").write_bytes(b"{")
        sign(payload("bb" * 32))
        assert [audit.index for audit in audit_log.kept(tmp_path)] == [0, 1]
        assert log.Log(tmp_path / "audits" / "log", log.log_key(ORIGIN, AUDITOR.public)).size == 2

    def test_a_log_that_lacks_entries_signs_no_second_tree(self, tmp_path: Path, payload: Callable[[str], bytes]) -> None:
        sign = partial(audit_log.append, tmp_path / "audits", ORIGIN, AUDITOR)
        paths = [sign(payload(digits * 32)) for digits in ("aa", "bb", "cc")]
        shutil.rmtree(tmp_path / "audits" / "log")
        first = paths[0].read_bytes()
        paths[0].unlink()
        with pytest.raises(BadInput, match=r"is entry [12] of example.org/.*, but the log here has only 0"):
            sign(payload("dd" * 32))
        paths[0].write_bytes(first)  # with every file from the first on, the log can be made again
        assert audit_log.read_audit(sign(payload("dd" * 32))).index == 3

    def test_a_folder_keeps_the_audits_of_its_own_log(self, tmp_path: Path, payload: Callable[[str], bytes]) -> None:
        assert list(audit_log.kept(tmp_path)) == []
        sign = partial(audit_log.append, origin=ORIGIN, payload=payload("aa" * 32))
        path = sign(tmp_path / "audits", signer=AUDITOR)
        other = sign(tmp_path / "others", signer=ledger_kit.SIGNER)
        (path.parent / "other.audit").write_bytes(other.read_bytes())
        assert [audit.path for audit in audit_log.kept(tmp_path)] == [path]
        assert [audit.path.name for audit in audit_log.present(tmp_path)] == [path.name, "other.audit"]
        (path.parent / "log" / "checkpoint").write_bytes(b"x")
        assert audit_log.kept(tmp_path) == []
        (tmp_path / "file").write_text("")
        with pytest.raises(BadInput, match="cannot be made"):
            sign(tmp_path / "file" / "audits", signer=AUDITOR)

    def test_files_that_are_no_audits_are_refused(self, tmp_path: Path, payload: Callable[[str], bytes]) -> None:
        path = audit_log.append(tmp_path, ORIGIN, AUDITOR, payload("aa" * 32))
        good = json.loads(path.read_bytes())
        other = keys.sign_envelope(canonical({"predicateType": "x"}), AUDITOR)
        unnamed = good["envelope"] | {"signatures": [good["envelope"]["signatures"][0] | {"keyid": "x"}]}
        changes: list[tuple[dict[str, Any], str]] = [
            ({"schema": "assay.audit/2"}, "does not have the format"),
            ({"proof": good["proof"].replace("index 0", "index 1")}, "beyond the tree"),
            ({"envelope": other}, "does not lead to the root"),
            ({"envelope": unnamed}, "does not name the key"),
        ]
        for change, why in changes:
            path.write_bytes(canonical(good | change))
            with pytest.raises(Refused, match=why):
                audit_log.read_audit(path)
        path.unlink()
        wrong = canonical({"_type": check.STATEMENT, "predicateType": "x", "predicate": {"epoch": 1}})
        with pytest.raises(Refused, match="not a statement"):
            audit_log.read_audit(audit_log.append(tmp_path / "x", ORIGIN, AUDITOR, wrong))
