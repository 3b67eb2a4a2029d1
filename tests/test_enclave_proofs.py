"""What attests a score: published attestations where an enclave judged, and nothing where none did; on the chain, and told."""

import json
from pathlib import Path

import pytest

import ledger_kit
from assay.enclave import proofs
from assay.enclave.attest import JudgementStatement, report_data
from assay.errors import BadInput
from assay.exact import digest
from assay.ledger.keys import public
from assay.publish import settled
from assay.scheme.bounty import read_bounty
from cli_kit import output, run
from enclave_kit import MACHINE, attested, compose_hash
from evm_commands_kit import P1, P2, bounty, judged, opened, place, said
from evm_kit import HOUR, Chain
from ledger_kit import V1
from publish_kit import with_keys

__all__ = ["place", "with_keys"]  # fixtures

pytestmark = pytest.mark.usefixtures("with_keys")
ONE, TWO = f"sha256:{'ab' * 32}", f"sha256:{'cd' * 32}"
"""Digests of judgements' documents."""


@pytest.fixture
def sealed(place: Path) -> Path:
    """The bounty with an enclave."""
    file = place / "bounty.toml"
    pinned = f'[enclave]\ncompose_hash = "{compose_hash()}"\ndevelopment = true\n[[checks]]'
    file.write_text(file.read_text().replace("[[checks]]", pinned, 1))
    return place


def publish(place: Path, judgement: str = ONE, about: str | None = None, validator: str = V1) -> str:
    """The attestation of a judgement, put where `assay enclave collect` puts it; its digest."""
    statement = JudgementStatement(bounty=read_bounty(place).digest, judgement=about or judgement, signer=public(validator).id)
    found = attested(statement=statement, quote=MACHINE.quote(report_data(statement)).hex())
    (place / "judgements").mkdir(exist_ok=True)
    (place / "judgements" / f"{judgement[7:]}.attestation.json").write_bytes(found.data)
    return found.digest


def test_without_an_enclave_nothing_attests_whatever_lies_there(place: Path) -> None:
    publish(place)
    assert proofs.proof(read_bounty(place), [(V1, ONE)]) is None
    assert proofs.proof(None, [(V1, ONE)]) is None


def test_it_is_the_digest_of_the_document_with_the_quote(sealed: Path) -> None:
    name = publish(sealed)
    found = proofs.proof(read_bounty(sealed), [(V1, ONE), (V1, None)])
    assert found is not None
    assert (found.digest, found.listed) == (name, None)
    document = json.loads(found.files[0].read_text())
    assert (digest(document), document["statement"]["judgement"]) == (name, ONE)
    assert document["quote"]
    assert proofs.proof(read_bounty(sealed), [(V1, None)]) is None


def test_of_several_it_is_the_list_of_theirs(sealed: Path) -> None:
    names = sorted([publish(sealed, ONE), publish(sealed, TWO)])
    found = proofs.proof(read_bounty(sealed), [(V1, ONE), (V1, TWO)])
    assert found is not None
    assert found.listed == {"schema": "assay.attestations/1", "attestations": names}
    proofs.put(sealed, found.listed)
    written = json.loads((sealed / "judgements" / f"{found.digest[7:]}.attestations.json").read_text())
    assert digest(written) == found.digest


def test_what_is_missing_or_about_something_else_is_no_proof(sealed: Path) -> None:
    bounty = read_bounty(sealed)
    with pytest.raises(BadInput, match=r"attestation\.json: is missing, and bounty\.toml says that an enclave judges"):
        proofs.proof(bounty, [(V1, ONE)])
    publish(sealed, about=TWO)
    with pytest.raises(BadInput, match=f"is not about the judgement {ONE} of this bounty by"):
        proofs.proof(bounty, [(V1, ONE)])
    publish(sealed, validator="ee" * 32)
    with pytest.raises(BadInput, match="is not about the judgement"):
        proofs.proof(bounty, [(V1, ONE)])
    (sealed / "judgements" / f"{ONE[7:]}.attestation.json").write_bytes(attested().data)
    with pytest.raises(BadInput, match="is not about the judgement"):
        proofs.proof(bounty, [(V1, ONE)])


def test_a_chain_is_told_it_and_so_is_who_asks(sealed: Path, chain: Chain) -> None:
    opened(sealed, chain)
    bounty("commit", sealed, "sha256:" + "33" * 32, key="one")
    bounty("commit", sealed, "sha256:" + "34" * 32, key="two")
    judged(sealed, chain, {P1: 9000, P2: 6000})
    chain.at(chain.now + HOUR + 1)
    assert "is missing, and bounty.toml says that an enclave judges" in run("publish", sealed, "--to", "local", code=2).stderr
    name = publish(sealed)
    assert said("publish", sealed, "--to", "local", "--yes")["outcome"]["state"] == "confirmed"
    rows = said("bounty", "show", sealed, "--to", "local")["scores"]
    assert [row["attestation"] for row in rows] == [name, name]
    told = " ".join(output("explain", sealed, P1).split())
    assert f"Where its judge ran is attested by {name}, in judgements/{ONE[7:]}.attestation.json" in told


def test_a_score_that_names_no_judgement_is_not_published_where_an_enclave_judges(sealed: Path, chain: Chain) -> None:
    """A validator signs a score by hand, and leaves out what it rests on."""
    opened(sealed, chain)
    bounty("commit", sealed, "sha256:" + "33" * 32, key="one")
    judged(sealed, chain, {P1: 9000}, named=None)
    chain.at(chain.now + HOUR + 1)
    refused = run("publish", sealed, "--to", "local", code=2).stderr
    assert f"the 9000 BPS of {P1} rest on no judgement, and an enclave is to judge" in " ".join(refused.split())


def test_it_is_of_the_judgement_that_counts(place: Path, chain: Chain) -> None:
    """Of one that is too old by `max_age_epochs` nothing follows, and nothing of it is told."""
    file = place / "scheme.toml"
    file.write_text(file.read_text().replace("[consensus]", "[consensus]\nmax_age_epochs = 1"))
    judged(place, chain, {P1: 9000}, epoch=1, named=TWO)
    judged(place, chain, {P1: 9000}, epoch=4)
    with ledger_kit.opened(place) as ledger:
        assert settled.read(ledger, 1).judgements[P1] == ((V1, TWO),)
        assert settled.read(ledger, 4).judgements[P1] == ((V1, ONE),)


def test_a_plain_run_is_told_as_one_that_nothing_attests(place: Path, chain: Chain) -> None:
    judged(place, chain, {P1: 9000})
    assert "Nothing attests where its judge ran: there is no enclave, and a chain is told 0 for it." in " ".join(
        output("explain", place, P1).split()
    )
