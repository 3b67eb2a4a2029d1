"""A panel inside an enclave: one quote binds all answers, and a changed answer is refused. SPEC 2.3, 6."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import seal_kit as kit
from assay.enclave import proofs
from assay.enclave.attest.document import parse_attestation
from assay.enclave.service.results import RESULTS_STATEMENT
from assay.errors import Refused
from assay.exact import digest
from assay.judge.rubric.judgement import Judgement, make_record
from assay.judge.rubric.panel import panel_differs, panel_judgement
from assay.ledger import batch
from assay.ledger.keys import public
from assay.records import Rubric
from test_enclave_service import given_out

TEXT = "Merge sort, in n log n."
ASKED = {"primary": {"name": "primary", "asked": "primary"}}


@pytest.fixture
def house(tmp_path: Path) -> kit.House:
    place = kit.bounty_folder(tmp_path / "bounty")
    scheme = place / "scheme.toml"
    scheme.write_text(scheme.read_text().replace('kind = "rubric"\n', 'kind = "rubric"\n[score.panel]\nanswers = 3\n'))
    return kit.House(place)


def answers(house: kit.House) -> list[Judgement]:
    what = kit.solution(TEXT)
    return [kit.judgement(house.bounty, what, yes, asked=ASKED) for yes in (("C1", "C2"), ("C1",), ("C1", "C2"))]


def test_a_quote_binds_every_answer(house: kit.House) -> None:
    house.script[TEXT] = panel_judgement(answers(house), house.bounty)

    async def act(service: Any) -> dict[str, Any]:
        house.hand_in(service, kit.P1, TEXT)
        work = service.ready()
        await kit.until(lambda: work.finished)
        return await given_out(house, service)

    results = house.run(act)
    assert RESULTS_STATEMENT.read(json.dumps(results["statement"]).encode()).predicate["submissions"][0]["state"] == "judged"
    signed_batch = batch.read(results["batch"].encode())
    batch.check_signature(signed_batch, public(signed_batch.statement.validator))
    (record,) = signed_batch.records
    assert isinstance(record, Rubric)
    assert record.panel is not None
    assert [(answer.checks["C1"], answer.checks["C2"]) for answer in record.panel] == [(True, True), (True, False), (True, True)]
    (document,), (quote,) = results["judgements"], results["attestations"]
    assert (record.attestation, len(document["answers"])) == (digest(document), 3)
    assert proofs.contradiction(document, record, house.bounty) is None
    attestation, now = parse_attestation(json.dumps(quote).encode()), int(kit.BEFORE.timestamp())
    bounty, signer = kit.with_enclave(house.bounty, house.dstack.machine), kit.identity(house.bounty).signer.public.id
    collateral = house.dstack.machine.authority.collateral(now)
    proofs.check_judgement(bounty, attestation, digest(document), signer, now=now, collateral=collateral)
    changed = copy.deepcopy(document)
    changed["answers"][1]["checks"]["C2"] = True
    with pytest.raises(Refused, match="of another judgement"):
        proofs.check_judgement(bounty, attestation, digest(changed), signer, now=now, collateral=collateral)
    assert proofs.contradiction(changed, record, house.bounty) == "panel"


def test_a_document_that_is_no_panels_contradicts_its_record(house: kit.House) -> None:
    whole = panel_judgement(answers(house), house.bounty)
    document = whole.document()
    record = make_record(whole, epoch=1, validator="v", participant=kit.P1, observed_at=kit.BEFORE)
    assert not panel_differs(document, record)
    assert panel_differs(whole.panel[0].document(), record)
    assert panel_differs(document | {"answers": document["answers"][:2]}, record)
    foreign = [answer | {"submission": f"sha256:{'ab' * 32}"} for answer in document["answers"]]
    assert panel_differs(document | {"answers": foreign}, record)
    assert panel_differs(document | {"answers": [7]}, record)
    alone = record.model_copy(update={"panel": None})
    assert proofs.contradiction(document, alone, house.bounty) == "panel"
    assert proofs.contradiction(whole.panel[0].document(), record, house.bounty) == "schema"
