"""The published schemas: as the code says, closed, and kept by every case. SPEC 6."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.conformance import KINDS as CASES
from assay.conformance import answer
from assay.conformance.cases import dumped
from assay.conformance.schemas import schemas
from assay.ledger import check
from assay.ledger import statements as receipts
from assay.ledger.batch import FIRST
from oracle.cases import case_of
from oracle.random_scheme import KINDS

jsonschema = pytest.importorskip("jsonschema")
referencing = pytest.importorskip("referencing")

Doc = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "conformance"
PUBLISHED = {name: json.loads(json.dumps(schema)) for name, schema in schemas().items()}
REGISTRY = referencing.Registry().with_contents(PUBLISHED.items(), default_specification=referencing.jsonschema.DRAFT202012)


def against(name: str) -> Any:
    return jsonschema.Draft202012Validator(PUBLISHED[f"{name}.schema.json"], registry=REGISTRY)


def hold(validator: Any, document: Any) -> None:
    error = jsonschema.exceptions.best_match(validator.iter_errors(document))
    assert error is None, f"{error.json_path}: {error.message[:300]}"


def accepted(kind: str) -> Iterator[Doc]:
    """Every case of a kind that is not refused."""
    for path in sorted(FOLDER.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("kind") == kind:
            yield from (case for case in content["cases"] if "output" in case)


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_the_files_are_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == dumped(schemas()[name]), "run `make schemas`"
    jsonschema.Draft202012Validator.check_schema(PUBLISHED[name])


@pytest.mark.full
def test_every_settlement_and_every_case_fit() -> None:
    case, settlement = against("case"), against("settlement")
    for entry in accepted("settle"):
        hold(case, entry["input"])
        hold(settlement, entry["output"])


def test_schemes_records_splits_and_case_files_fit() -> None:
    scheme, record, emission, subnet = (against(name) for name in ("scheme", "record", "emission", "subnet"))
    for case in accepted("scheme"):
        hold(scheme, case["input"]["scheme"])
        hold(scheme, case["output"]["document"])
    for case in accepted("record"):
        hold(record, case["input"]["record"])
        hold(record, case["output"]["document"])
    for case in accepted("emission"):
        hold(emission, case["output"])
        rules = {name: value for name, value in case["input"]["subnet"].items() if value is not None}
        members = [{"path": f"c{place}", "share": part["share"]} for place, part in enumerate(case["input"]["competitions"])]
        hold(subnet, rules | {"competitions": members})
    for path in sorted(FOLDER.glob("*.json")):
        if not path.name.endswith(".schema.json"):
            hold(against("cases"), json.loads(path.read_text(encoding="utf-8")))


def test_a_scheme_with_every_section_fits() -> None:
    sections: dict[str, Doc] = {
        "judge": {"use": "mine"},
        "submission": {"per_epoch": 3, "reveal": 1, "copies": "hold"},
        "release": {"logs": "after-epoch"},
        "epoch": {"every": "72m", "start": "2026-11-01T00:00:00Z", "grace": "90s", "empty": "burn"},
        "evidence": {"keep": "work", "most_mb": 8, "epochs": 20},
        "audit": {"risk": "1%", "places": 1, "delay": "1h", "failed": "leave-out"},
        "duel": {"margin": "2%", "alpha": "0.05"},
    }
    whole = {"scheme": {"name": "all"}, "score": {"kind": "tests"}, **sections}
    document = answer("scheme", {"scheme": whole})["document"]
    assert sections.keys() <= document.keys()
    scheme = against("scheme")
    for written in (whole, document):
        hold(scheme, written)
    for name, section in sections.items():
        assert not scheme.is_valid(whole | {name: section | {"colour": "red"}}), name
    assert not scheme.is_valid(whole | {"epoch": {"every": "72 minutes", "start": "2026-11-01T00:00:00Z"}})


@pytest.mark.full
def test_every_case_that_is_not_refused_fits_its_kind() -> None:
    kinds = PUBLISHED["kinds.schema.json"]
    assert [kind["properties"]["kind"]["const"] for kind in kinds["oneOf"]] == list(CASES)
    for place, kind in enumerate(CASES):
        validator = jsonschema.Draft202012Validator({"$ref": f"kinds.schema.json#/oneOf/{place}"}, registry=REGISTRY)
        for case in list(accepted(kind))[:40]:
            line = {"kind": kind, "input": case["input"], "output": case["output"]}
            hold(validator, line)
            assert not validator.is_valid(line | {"input": 7})
            assert not validator.is_valid(line | {"output": 7})


def test_what_the_ledger_signs_fits() -> None:
    inputs, batch, receipt, proof = (against(name) for name in ("inputs", "batch", "receipt", "proof"))
    statement = jsonschema.Draft202012Validator(PUBLISHED["receipt.schema.json"]["$defs"]["statement"], registry=REGISTRY)
    for case in accepted("inputs"):
        hold(inputs, case["output"]["document"])
    for case in accepted("batch"):
        if case["output"]["statement"]["predicateType"] != FIRST:  # which is read, and made no more
            hold(batch, case["output"]["statement"])
    for case in accepted("receipt"):
        document = json.loads(case["input"]["receipt"])
        hold(receipt, document)
        stated = json.loads(base64.urlsafe_b64decode(document["envelope"]["payload"].replace("+", "-").replace("/", "_")))
        if stated["predicateType"] != check.FIRST:
            hold(statement, stated)
    split = against("emission-receipt")
    of_split = split.evolve(schema=split.schema["$defs"]["statement"])
    for case in accepted("emission-receipt"):
        document = json.loads(case["input"]["receipt"])
        hold(split, document)
        stated = json.loads(base64.b64decode(document["envelope"]["payload"]))
        hold(of_split, stated)
        stated["predicate"]["split"].pop("receipts")
        assert not of_split.is_valid(stated)
    for case in accepted("proof"):
        if json.loads(case["input"]["proof"])["schema"] != receipts.FIRST_RECEIPT:
            hold(proof, json.loads(case["input"]["proof"]))
    for case in accepted("verify"):
        hold(inputs, case["input"]["inputs"])
    whole = json.loads(next(accepted("proof"))["input"]["proof"])
    assert not proof.is_valid(whole | {"colour": "red"})
    assert not proof.is_valid(whole | {"receipt": whole["receipt"] | {"colour": "red"}})
    assert not proof.is_valid(whole | {"result": whole["result"] | {"rank": 0}})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_generated_cases_fit(kind: str) -> None:
    case = against("case")
    for seed in range(20):
        hold(case, case_of(seed + 50_000, kind))


def objects(schema: Any) -> Iterator[Doc]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for inner in schema.values():
            yield from objects(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from objects(inner)


@pytest.mark.parametrize("name", [f"{name}.schema.json" for name in ("settlement", "emission", "cases", "receipt", "batch")])
def test_what_we_write_is_closed_and_whole(name: str) -> None:
    for schema in objects(PUBLISHED[name]):
        of_dsse = not {"sig", "payloadType"}.isdisjoint(schema["properties"])  # which says to ignore what one does not know
        assert schema["additionalProperties"] is of_dsse
        optional = {"why", "code", "inner", "tasks_seen", "warm", "warm_up", "receipts", "registry", "received", "votes", "flips"}
        assert set(schema["properties"]) - set(schema["required"]) <= optional


def test_a_field_too_many_a_field_too_few_a_number_as_text() -> None:
    settlement = against("settlement")
    whole = next(case["output"] for case in accepted("settle") if case["output"]["weights"])
    row = whole["weights"][0]
    few = {name: value for name, value in row.items() if name != "kept"}
    for wrong in (row | {"colour": "red"}, few, row | {"u16": "1"}, row | {"share": 0.5}, row | {"share": "0.50"}):
        assert not settlement.is_valid(whole | {"weights": [wrong]}), wrong
    assert not settlement.is_valid(whole | {"colour": "red"})


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("scheme", {"scheme": {"name": "s"}, "score": {"kind": "given"}, "reward": {"cap": 0.5}}),
        ("scheme", {"scheme": {"name": "s"}, "score": {"kind": "given"}, "reward": {"capp": "50%"}}),
        ("scheme", {"scheme": {"name": "s"}, "score": {"kind": "taste"}}),
        ("record", {"kind": "given", "epoch": 1}),
        ("subnet", {"competitions": []}),
    ],
)
def test_what_is_refused_for_its_form_does_not_fit(name: str, document: Doc) -> None:
    assert not against(name).is_valid(document)


def blocks(page: str) -> list[Any]:
    """The JSON blocks of a page."""
    text = (FOLDER.parent / "docs" / page).read_text(encoding="utf-8")
    return [json.loads(block.split("```")[0]) for block in text.split("```json\n")[1:]]


def test_the_examples_of_the_documentation_fit() -> None:
    shown = set()
    for block in [*blocks("formats.md"), *blocks("conformance.md")]:
        schema = {
            "assay.settlement/1": "settlement",
            "assay.emission/1": "emission",
            "assay.cases/1": "cases",
            "assay.registry/1": "registry",
        }.get(block.get("schema"))
        stated = {"assay:evidence/v2": "batch", "assay:receipt/v2": "receipt"}.get(block.get("predicateType"))
        name = schema or stated or ("record" if "kind" in block else "case")
        whole = against(name)
        hold(whole if name != "receipt" else whole.evolve(schema=whole.schema["$defs"]["statement"]), block)
        shown.add(block["kind"] if name == "record" else name)
    assert shown == {*KINDS, "case", "settlement", "emission", "cases", "registry", "batch", "receipt"}


def test_the_settlement_of_the_documentation_is_that_of_its_case() -> None:
    case, settlement, split = (block for block in blocks("formats.md") if not {"kind", "predicate", "netuid"} & block.keys())
    assert answer("settle", case) == settlement
    assert split["competitions"][0]["settlement"] == settlement["digest"]


def test_the_documentation_names_every_kind_and_every_field() -> None:
    page = (FOLDER.parent / "docs" / "conformance.md").read_text(encoding="utf-8")
    assert [kind for kind in CASES if f"\n| `{kind}` | " not in page] == []
    formats = (FOLDER.parent / "docs" / "formats.md").read_text(encoding="utf-8")
    names = {name for schema in objects(PUBLISHED["settlement.schema.json"]) for name in schema["properties"]}
    assert [name for name in sorted(names) if f"`{name}`" not in formats and f'"{name}"' not in formats] == []
