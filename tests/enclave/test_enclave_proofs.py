"""What attests a score: published attestations where an enclave judged, and nothing where none did; on the chain, and told."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import publish_kit as kit
from assay.enclave import proofs
from assay.enclave.attest import JudgementStatement, report_data
from assay.errors import BadInput
from assay.exact import canonical, digest
from assay.judge.rubric import judgement
from assay.ledger.keys import public
from assay.publish import settled_epoch
from assay.records import Rubric
from assay.records import record as read_record
from assay.scheme.bounty import read_bounty
from cli_kit import output, run
from enclave_kit import MACHINE, attested, compose_hash
from evm_commands_kit import ONE, P1, P2, bounty, judged, opened, place, printed
from evm_kit import HOUR, AnvilChain
from ledger_kit import V1
from publish_kit import with_keys

__all__ = ["place", "with_keys"]  # fixtures

pytestmark = pytest.mark.usefixtures("with_keys")


@pytest.fixture
def sealed(place: Path) -> Path:
    """The bounty with an enclave."""
    file = place / "bounty.toml"
    pinned = f'[enclave]\ncompose_hash = "{compose_hash()}"\ndevelopment = true\n[[checks]]'
    file.write_text(file.read_text().replace("[[checks]]", pinned, 1))
    return place


def record(place: Path, key: str = P1, bps: int = 9000, **document: Any) -> Rubric:
    """The record of a judgement whose document is in the folder; document: what that says otherwise than the record."""
    fields = kit.rubric(bps, participant=key, submission=f"s-{[P1, P2].index(key) + 1}")
    names = ("submission", "baseline", "checks", "verdict")
    content = {
        "schema": judgement.JUDGEMENT_SCHEMA,
        "bounty": read_bounty(place).digest,
        "outcome": "judged",
        "injection_suspected": None,
    }
    content |= {name: fields.get(name) for name in names} | document
    name = digest(content)
    (place / "judgements").mkdir(exist_ok=True)
    (place / "judgements" / f"{name[7:]}.json").write_bytes(canonical(content))
    read = read_record(fields | {"attestation": name})
    assert isinstance(read, Rubric)
    return read


def attest(place: Path, rubric: Rubric, *, about: str | None = None, validator: str = V1) -> str:
    """The attestation of a record's judgement, put where `assay enclave collect` puts it; its digest."""
    name = str(rubric.attestation)
    statement = JudgementStatement(bounty=read_bounty(place).digest, judgement=about or name, signer=public(validator).id)
    attestation = attested(statement=statement, quote=MACHINE.quote(report_data(statement)).hex())
    (place / "judgements" / f"{name[7:]}.attestation.json").write_bytes(attestation.data)
    return attestation.digest


def test_without_an_enclave_nothing_attests_whatever_lies_there(place: Path) -> None:
    rubric = record(place)
    attest(place, rubric)
    assert proofs.find_proof(read_bounty(place), [rubric]) is None
    assert proofs.find_proof(None, [rubric]) is None


def test_it_is_the_digest_of_the_document_with_the_quote(sealed: Path) -> None:
    rubric = record(sealed)
    name = attest(sealed, rubric)
    unjudged = rubric.model_copy(update={"outcome": "unjudged", "attestation": None})
    proof = proofs.find_proof(read_bounty(sealed), [rubric, unjudged])
    assert proof is not None
    assert (proof.digest, proof.listed) == (name, None)
    document = json.loads(proof.files[0].read_text())
    assert (digest(document), document["statement"]["judgement"]) == (name, rubric.attestation)
    assert document["quote"]
    assert proofs.find_proof(read_bounty(sealed), [unjudged]) is None


def test_of_several_it_is_the_list_of_theirs(sealed: Path) -> None:
    both = [record(sealed), record(sealed, bps=6000)]
    names = sorted(attest(sealed, rubric) for rubric in both)
    proof = proofs.find_proof(read_bounty(sealed), both)
    assert proof is not None
    assert proof.listed == {"schema": "assay.attestations/1", "attestations": names}
    proofs.write_attestations(sealed, proof.listed)
    written = json.loads((sealed / "judgements" / f"{proof.digest[7:]}.attestations.json").read_text())
    assert digest(written) == proof.digest


def test_what_is_missing_or_about_something_else_is_no_proof(sealed: Path) -> None:
    bounty, rubric = read_bounty(sealed), record(sealed)
    with pytest.raises(BadInput, match=r"attestation\.json: is missing, and bounty\.toml says that an enclave judges"):
        proofs.find_proof(bounty, [rubric])
    attest(sealed, rubric, about=f"sha256:{'cd' * 32}")
    with pytest.raises(BadInput, match=f"is not about the judgement {rubric.attestation} of this bounty by"):
        proofs.find_proof(bounty, [rubric])
    attest(sealed, rubric, validator="ee" * 32)
    with pytest.raises(BadInput, match="is not about the judgement"):
        proofs.find_proof(bounty, [rubric])
    (sealed / "judgements" / f"{str(rubric.attestation)[7:]}.attestation.json").write_bytes(attested().data)
    with pytest.raises(BadInput, match="is not about the judgement"):
        proofs.find_proof(bounty, [rubric])
    attest(sealed, rubric)
    (sealed / "judgements" / f"{str(rubric.attestation)[7:]}.json").unlink()
    with pytest.raises(BadInput, match=str(rubric.attestation)[7:]):
        proofs.find_proof(bounty, [rubric])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("submission", "s-2"),
        ("checks", {"c1": True, "c2": False, "c3": False, "c4": False}),
        ("verdict", "FLAWED"),
        ("outcome", "unjudged"),
        ("bounty", f"sha256:{'ee' * 32}"),
    ],
)
def test_the_judgement_of_another_submission_or_with_other_answers_is_no_proof(sealed: Path, field: str, value: object) -> None:
    """Its quote is genuine, and states this very document: the record must say what that says."""
    changed: Any = {field: value}
    rubric = record(sealed, **changed)
    attest(sealed, rubric)
    with pytest.raises(BadInput, match=f"attests a judgement with another {field} than the record of {P1} by {V1} that names it"):
        proofs.find_proof(read_bounty(sealed), [rubric])


def test_a_chain_is_told_it_and_so_is_who_asks(sealed: Path, chain: AnvilChain) -> None:
    opened(sealed, chain)
    bounty("commit", sealed, "sha256:" + "33" * 32, key="one")
    bounty("commit", sealed, "sha256:" + "34" * 32, key="two")
    both = {P1: record(sealed), P2: record(sealed, P2, 6000)}
    judged(sealed, chain, {P1: 9000, P2: 6000}, named={key: rubric.attestation for key, rubric in both.items()})
    chain.at(chain.now + HOUR + 1)
    assert "is missing, and bounty.toml says that an enclave judges" in run("publish", sealed, "--to", "local", code=2).stderr
    names = [attest(sealed, rubric) for rubric in both.values()]
    assert printed("publish", sealed, "--to", "local", "--yes")["outcome"]["state"] == "confirmed"
    rows = printed("bounty", "show", sealed, "--to", "local")["scores"]
    assert {row["attestation"] for row in rows} == set(names)
    file = f"judgements/{str(both[P1].attestation)[7:]}.attestation.json"
    explained = " ".join(output("explain", sealed, P1).split())
    assert f"Where its judge ran is attested by {names[0]}, in {file}" in explained
    assert printed("explain", sealed, P1)["attestation"] == {"digest": names[0], "files": [file], "why": None}


@pytest.mark.full
def test_another_submissions_attestation_is_neither_published_nor_shown(sealed: Path, chain: AnvilChain) -> None:
    """Two judged by one enclave: the one's record names the other's judgement, the quote of which is genuine."""
    opened(sealed, chain)
    bounty("commit", sealed, "sha256:" + "33" * 32, key="one")
    bounty("commit", sealed, "sha256:" + "34" * 32, key="two")
    rubric = record(sealed)
    attest(sealed, rubric)
    judged(sealed, chain, {P1: 9000, P2: 9000}, named=rubric.attestation)
    chain.at(chain.now + HOUR + 1)
    why = f"attests a judgement with another submission than the record of {P2} by {V1} that names it"
    assert why in " ".join(run("publish", sealed, "--to", "local", code=2).stderr.split())
    assert "Nothing attests where its judge ran: " in " ".join(output("explain", sealed, P2).split())
    attestation = printed("explain", sealed, P2)["attestation"]
    assert (attestation["digest"], attestation["files"]) == (None, [])
    assert why in attestation["why"]
    assert printed("explain", sealed, P1)["attestation"]["digest"] is not None


def test_verifying_one_says_of_which_submission_it_is(sealed: Path) -> None:
    rubric = record(sealed)
    attest(sealed, rubric)
    file = sealed / "judgements" / f"{str(rubric.attestation)[7:]}.attestation.json"
    words: list[str | Path] = ["enclave", "verify", file, "--bounty", sealed, "--at", "2027-01-15T08:00:00Z"]
    assert printed(*words)["submission"] == "s-1"
    assert re.search(r"submission +s-1\n", output(*words))
    other = record(sealed, bounty=f"sha256:{'ee' * 32}")
    attest(sealed, other)
    words[2] = sealed / "judgements" / f"{str(other.attestation)[7:]}.attestation.json"
    assert printed(*words, code=1)["stage"] == "judgement"


def test_a_score_that_names_no_judgement_is_not_published_where_an_enclave_judges(sealed: Path, chain: AnvilChain) -> None:
    """A validator signs a score by hand, and leaves out what it rests on."""
    opened(sealed, chain)
    bounty("commit", sealed, "sha256:" + "33" * 32, key="one")
    judged(sealed, chain, {P1: 9000}, named=None)
    chain.at(chain.now + HOUR + 1)
    refused = run("publish", sealed, "--to", "local", code=2).stderr
    assert f"the score of {P1} by {V1} rests on no judgement, and an enclave is to judge" in " ".join(refused.split())


def test_it_is_of_the_judgement_that_counts(place: Path, chain: AnvilChain) -> None:
    """Of one that is too old by `max_age_epochs` nothing follows, and nothing of it is told."""
    file = place / "scheme.toml"
    file.write_text(file.read_text().replace("[consensus]", "[consensus]\nmax_age_epochs = 1"))
    judged(place, chain, {P1: 9000}, epoch=1, named=f"sha256:{'cd' * 32}")
    judged(place, chain, {P1: 9000}, epoch=4)
    with ledger_kit.opened(place) as ledger:
        assert [rubric.attestation for rubric in settled_epoch.read(ledger, 1).judgements[P1]] == [f"sha256:{'cd' * 32}"]
        assert [rubric.attestation for rubric in settled_epoch.read(ledger, 4).judgements[P1]] == [ONE]


def test_a_plain_run_is_told_as_one_that_nothing_attests(place: Path, chain: AnvilChain) -> None:
    judged(place, chain, {P1: 9000})
    assert "Nothing attests where its judge ran: there is no enclave; the chain gets 0 instead of a digest." in " ".join(
        output("explain", place, P1).split()
    )
    assert printed("explain", place, P1)["attestation"] == {
        "digest": None,
        "files": [],
        "why": "there is no enclave; the chain gets 0 instead of a digest",
    }
