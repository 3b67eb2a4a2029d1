"""`assay registry pull`: a subnet becomes participants.csv, validators.csv and registry.json, and what rests on them says so."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("bittensor_core")
pytest.importorskip("websockets")

import bittensor_core

import assay
import ledger_kit
import small_folder
from assay.errors import BadInput
from assay.folder import csvs, registry
from assay.ledger import batch, bundle, intake, keys, settling
from assay.records import Participant, Pulled, Validator, record
from cli_kit import files_under, output, refused, run
from subtensor import Simulator

ALICE, BOB, CHARLIE, OWNER = (
    bittensor_core.Keypair.from_uri(uri).ss58_address for uri in ("//Alice", "//Bob", "//Charlie", "//Owner")
)
RAO = 10**9
WHEN = "2026-11-02T09:00:00Z"
DIGEST = "sha256:" + "0" * 64
SCHEME = small_folder.SCHEME + "[decay]\nburn_uid = 0\n"


@pytest.fixture
def chain(shared: Path) -> Iterator[Simulator]:
    """Subnet 5: the owner (uid 0), Alice and Bob, who have a permit, and Charlie, who has none."""
    with Simulator.with_subnet(5, "//Alice", "//Bob") as simulator:
        simulator.register(5, "//Charlie", alpha=7 * RAO)
        simulator.step(3)
        yield simulator


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return small_folder.make(tmp_path / "small", scheme_toml=SCHEME, participants_csv=None, validators_csv=None, evidence=None)


def pull(place: Path, chain: Simulator, *words: str, code: int = 0) -> Any:
    return run("registry", "pull", place, "--url", chain.url, "--netuid", "5", *words, columns=200, code=code)


def rows(place: Path, table: csvs.CsvFormat) -> list[dict[str, Any]]:
    return [dict(row.fields) for row in csvs.read(place / table.name, table)]


def pulled_json(place: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((place / "registry.json").read_bytes())
    return document


def test_a_subnet_becomes_a_registry(place: Path, chain: Simulator) -> None:
    text = pull(place, chain).stdout
    assert rows(place, csvs.PARTICIPANTS) == [{"key": ALICE, "uid": 1}, {"key": BOB, "uid": 2}, {"key": CHARLIE, "uid": 3}]
    assert rows(place, csvs.VALIDATORS) == [{"key": key, "stake": str(1000 * RAO)} for key in (OWNER, ALICE, BOB)]
    block = chain.chain.blocks[chain.chain.finalized]
    document = pulled_json(place)
    assert document == document | {
        "schema": "assay.registry/1",
        "chain": f"0x{chain.chain.genesis.hex()}",
        "netuid": 5,
        "mechanism": 0,
        "block": block.number,
        "hash": f"0x{block.hash.hex()}",
        "spec_version": 1218,
    }
    listed = {neuron["hotkey"]: neuron for neuron in document["neurons"]}
    assert list(listed) == [OWNER, ALICE, BOB, CHARLIE]
    assert listed[BOB] == {"uid": 2, "hotkey": BOB, "stake": str(1000 * RAO), "permit": True, "registered": 0}
    assert f"Subnet 5, mechanism 0, at block {block.number}" in text
    assert f"{ALICE}" in text
    assert "3 participants, 3 validators" in text


def test_a_permit_without_stake_judges_nothing(place: Path, chain: Simulator) -> None:
    now = chain.chain.head.number
    chain.register(5, "//Dave", alpha=0, permit=True)
    chain.step(3)
    pull(place, chain)
    dave = pulled_json(place)["neurons"][4]
    assert (dave["uid"], dave["stake"], dave["permit"], dave["registered"]) == (4, "0", True, now)
    assert [row["key"] for row in rows(place, csvs.VALIDATORS)] == [OWNER, ALICE, BOB]
    assert len(rows(place, csvs.PARTICIPANTS)) == 4


def test_nothing_is_written_in_a_dry_run(place: Path, chain: Simulator) -> None:
    before = files_under(place)
    text = pull(place, chain, "--dry-run").stdout
    assert files_under(place) == before
    assert "Nothing was written" in text
    document = json.loads(pull(place, chain, "--dry-run", "--json").stdout)
    assert document["written"] is False
    assert document["participants"]["changes"][0] == {"key": ALICE, "before": None, "now": "1", "change": "new"}
    assert document["registry"]["netuid"] == 5


def test_what_is_known_of_a_key_is_kept_and_uids_follow_the_chain(place: Path, chain: Simulator) -> None:
    (place / "participants.csv").write_text(
        "key,uid,name,submission,submitted_at,accepted_epoch,address\n"
        f"{ALICE},3,alice,s1,2026-11-02T09:00:00Z,2,\n"
        f'gone,9,"left, long ago",s2,,,0x{"ab" * 20}\n'
        f"waiting,,nobody yet,,,,\n"
    )
    (place / "validators.csv").write_text(f"key,stake,name\n{ALICE},5,Alice & Co\nv9,70,old one\n")
    document = json.loads(pull(place, chain, "--json").stdout)
    assert rows(place, csvs.PARTICIPANTS) == [
        {
            "key": ALICE,
            "uid": 1,
            "name": "alice",
            "submission": "s1",
            "submitted_at": "2026-11-02T09:00:00Z",
            "accepted_epoch": 2,
        },
        {"key": BOB, "uid": 2},
        {"key": CHARLIE, "uid": 3},
        {"key": "gone", "name": "left, long ago", "submission": "s2", "address": f"0x{'ab' * 20}"},
        {"key": "waiting", "name": "nobody yet"},
    ]
    assert rows(place, csvs.VALIDATORS)[1] == {"key": ALICE, "stake": str(1000 * RAO), "name": "Alice & Co"}
    changes = {
        change["key"]: (change["before"], change["now"], change["change"]) for change in document["participants"]["changes"]
    }
    assert changes == {
        BOB: (None, "2", "new"),
        CHARLIE: (None, "3", "new"),
        ALICE: ("3", "1", "moved"),
        "gone": ("9", None, "gone"),
    }
    judges = {change["key"]: change["change"] for change in document["validators"]["changes"]}
    assert judges == {OWNER: "new", BOB: "new", ALICE: "stake", "v9": "gone"}


def test_a_validator_that_is_dropped_keeps_its_name_and_counts_for_nothing(place: Path, chain: Simulator) -> None:
    (place / "validators.csv").write_text(f"key,stake,name\n{BOB},5,Bob's\nv9,70,old one\n")
    chain.set("ValidatorPermit", 5, value=[True, True, False, False])
    chain.step(3)
    text = pull(place, chain).stdout
    dropped = [{"key": BOB, "stake": "0", "name": "Bob's"}, {"key": "v9", "stake": "0", "name": "old one"}]
    assert rows(place, csvs.VALIDATORS)[2:] == dropped
    assert "3 participants, 2 validators" in text
    assert text.count("gone") == 2
    assert "Nothing changes of any validator." in pull(place, chain).stdout
    chain.set("ValidatorPermit", 5, value=[True, True, True, False])
    chain.step(3)
    document = json.loads(pull(place, chain, "--json").stdout)
    assert document["validators"]["changes"] == [{"key": BOB, "before": None, "now": str(1000 * RAO), "change": "new"}]
    assert {"key": BOB, "stake": str(1000 * RAO), "name": "Bob's"} in rows(place, csvs.VALIDATORS)


def test_a_subnet_pulls_one_block_for_all_its_competitions(
    place: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = small_folder.make(
        place.parent / "other", scheme_toml=SCHEME, participants_csv=None, validators_csv=None, evidence=None
    )
    subnet = place.parent / "subnet.toml"
    subnet.write_text('competitions = [{path = "small", share = "0.5"}, {path = "other", share = "0.5"}]\n')
    monkeypatch.setenv("SUBTENSOR", chain.url)
    (place.parent / "publish.toml").write_text(
        f'[targets.sim]\nkind = "bittensor"\nurl_env = "SUBTENSOR"\nnetuid = 5\nchain = "0x{chain.chain.genesis.hex()}"\n'
    )
    text = run("registry", "pull", subnet, "--to", "sim", columns=200).stdout
    assert text.count("Written to") == 2
    assert pulled_json(place) == pulled_json(other)
    chain.register(5, "//Dave")
    chain.step(3)
    document = json.loads(pull(place, chain, str(other), str(place), "--json").stdout)
    assert [Path(entry["folder"]).name for entry in document["folders"]] == ["small", "other"]
    assert document["folders"][0]["registry"]["block"] == pulled_json(place)["block"] == pulled_json(other)["block"]
    assert len(rows(other, csvs.PARTICIPANTS)) == 4
    chain.step(3)
    before = files_under(place.parent)
    (other / "participants.csv").write_text(f"key,uid\n{ALICE},1\n{ALICE},2\n")
    assert "the key occurs twice" in refused("registry", "pull", subnet, "--to", "sim")
    assert files_under(place) == {name.removeprefix("small/"): data for name, data in before.items() if name.startswith("small/")}


def test_the_shell_completes_the_targets_of_a_folder_and_of_a_subnet_file(place: Path) -> None:
    from assay.cli.registry import _targets

    (place / "publish.toml").write_text('[targets.sim]\nkind = "x"\n[targets.other]\nkind = "x"\n')
    (place / "subnet.toml").write_text("")
    for where in (place, place / "subnet.toml"):
        assert _targets(SimpleNamespace(params={"places": [str(where)]}), "s") == ["sim"]  # type: ignore[arg-type]


def test_a_key_is_the_same_in_another_spelling(place: Path, chain: Simulator) -> None:
    pull(place, chain)
    spelled = bittensor_core.ss58_encode(bytes(bittensor_core.Keypair.from_uri("//Bob").public_key), 0)
    for name, more in (("participants.csv", "key,uid,name\n"), ("validators.csv", "key,stake,name\n")):
        (place / name).write_text(more + f"{spelled},2,bob\n")
    pull(place, chain)
    assert {"key": spelled, "uid": 2, "name": "bob"} in rows(place, csvs.PARTICIPANTS)
    assert {"key": spelled, "stake": str(1000 * RAO), "name": "bob"} in rows(place, csvs.VALIDATORS)
    assert BOB not in (place / "participants.csv").read_text() + (place / "validators.csv").read_text()
    (place / "participants.csv").write_text(f"key,uid\n{spelled},2\n{BOB},3\n")
    assert "the key occurs twice" in refused("registry", "pull", place, "--url", chain.url, "--netuid", "5")


def test_a_uid_that_changed_hands_is_the_new_keys(place: Path, chain: Simulator) -> None:
    pull(place, chain)
    chain.register(5, "//Dave", uid=3)
    chain.step(3)
    pull(place, chain)
    dave = bittensor_core.Keypair.from_uri("//Dave").ss58_address
    uids = {row["key"]: row.get("uid") for row in rows(place, csvs.PARTICIPANTS)}
    assert uids == {ALICE: 1, BOB: 2, dave: 3, CHARLIE: None}
    assert "Nothing changes of any participant." in pull(place, chain).stdout


def test_a_block_can_be_said_if_it_is_final(place: Path, chain: Simulator) -> None:
    pull(place, chain, "--block", "3")
    assert pulled_json(place)["block"] == 3
    for block, why in (("8", "block 8 is not final yet"), ("99", "block 99 is not final yet"), ("x", "'x' is not a block")):
        words = ("registry", "pull", place, "--url", chain.url, "--netuid", "5", "--block", block)
        assert why in refused(*words)


def test_a_target_says_node_subnet_and_chain(place: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    genesis = f"0x{chain.chain.genesis.hex()}"
    monkeypatch.setenv("SUBTENSOR", chain.url)
    target = f'[targets.sim]\nkind = "bittensor"\nurl_env = "SUBTENSOR"\nnetuid = 5\nchain = "{genesis}"\n'
    (place / "publish.toml").write_text(target)
    run("registry", "pull", place, "--to", "sim")
    assert pulled_json(place)["chain"] == genesis
    for change, why in (
        ((genesis, "finney"), "is a node of the chain"),
        (("netuid = 5", "netuid = 0"), "is the root network"),
        (('"bittensor"', '"evm"'), "is of kind 'evm', not 'bittensor'"),
        (("SUBTENSOR", "NOTHING"), "the variable NOTHING is empty"),
        (('url_env = "SUBTENSOR"', 'url = "http://x"'), "publish.toml:3: targets.sim.url: is not the address of a node"),
        (('url_env = "SUBTENSOR"\n', ""), "one of url and url_env"),
        ((genesis, "mars"), "is not a chain; write the hash of its block 0"),
        (("netuid = 5", "netuid = 5000"), "targets.sim.netuid"),
    ):
        (place / "publish.toml").write_text(target.replace(*change))
        assert why in refused("registry", "pull", place, "--to", "sim")


def test_what_was_not_said_is_asked_for(place: Path) -> None:
    assert "give --url and --netuid" in run("registry", "pull", place, code=2).stderr.replace("\n", " ")
    assert "leave out" in run("registry", "pull", place, "--to", "x", "--netuid", "5", code=2).stderr
    for url in ("http://x", "wss://user:secret@ho℀st", "wss://[secret"):
        text = refused("registry", "pull", place, "--netuid", "5", "--url", url)
        assert "is not the address of a node" in text
        assert "secret" not in text


def test_a_subnet_that_is_not_there_is_refused(place: Path, chain: Simulator) -> None:
    before = files_under(place)
    words = ("registry", "pull", place, "--url", chain.url, "--netuid")
    assert "the chain has no subnet 6" in refused(*words, "6")
    assert "no mechanism 3" in refused(*words, "5", "--mechanism", "3")
    assert files_under(place) == before


def test_without_a_validator_nothing_is_written(place: Path, chain: Simulator) -> None:
    chain.set("ValidatorPermit", 5, value=[False] * 4)
    chain.set("StakeThreshold", value=10**18)
    chain.set("SubnetOwnerHotkey", 5, value=bytes(32))
    chain.step(3)
    before = files_under(place)
    assert "has no validator with a permit" in refused("registry", "pull", place, "--url", chain.url, "--netuid", "5")
    assert files_under(place) == before


def test_another_subnet_is_not_pulled_over_a_registry(place: Path, chain: Simulator) -> None:
    pull(place, chain)
    chain.subnet(6)
    chain.register(6, "//Eve", alpha=10**12, permit=True)
    chain.step(3)
    assert "the registry belongs to subnet 5, mechanism 0" in refused(
        "registry", "pull", place, "--url", chain.url, "--netuid", "6"
    )


def test_a_file_that_is_wrong_is_refused_before_anything_is_written(place: Path, chain: Simulator) -> None:
    words = ("registry", "pull", place, "--url", chain.url, "--netuid", "5")
    (place / "participants.csv").write_text(f"key,uid\n{ALICE},1\n{ALICE},2\n")
    before = files_under(place)
    assert "participants.csv:3: key: the key occurs twice" in refused(*words)
    (place / "participants.csv").write_text(f"key,uid,address\n{ALICE},1,0x12\n")
    assert "is not an EVM address" in refused(*words)
    (place / "participants.csv").write_text("key\n")
    (place / "registry.json").write_text("[]")
    assert "is not of the format assay.registry/1" in refused(*words)
    assert not (place / "validators.csv").exists()
    assert before.keys() == files_under(place).keys() - {"registry.json"}


def test_a_node_that_does_not_answer_is_said_without_a_traceback(place: Path, chain: Simulator) -> None:
    chain.fault("drop-before", times=None)
    message = refused("registry", "pull", place, "--url", f"{chain.url}/?key=secret", "--netuid", "5", code=1)
    assert "does not answer" in message
    assert "secret" not in message


def test_an_old_block_is_worth_a_word(place: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    then = chain.get("Timestamp.Now") // 1000
    monkeypatch.setattr(time, "time", lambda: then + 60)
    assert "minutes old" not in pull(place, chain).stderr
    monkeypatch.setattr(time, "time", lambda: then + 3600)
    assert "is 60 minutes old: does the node follow its chain?" in pull(place, chain).stderr
    assert "minutes old" not in pull(place, chain, "--block", "3").stderr


def test_a_connection_that_others_can_change_is_worth_a_word(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("registry", "pull", place, "--url", "ws://nowhere.invalid", "--netuid", "5")
    assert "is not encrypted on the way" in run(*words, code=1).stderr.replace("\n  ", " ")


def test_a_crash_between_the_files_is_seen_by_whoever_settles(
    place: Path, chain: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(place, chain)
    (place / "registry.json").unlink()  # as if this had been written by hand: the pull is the first one
    (place / "evidence/a.jsonl").write_text("")
    assay.open(place).settle(3)
    chain.register(5, "//Dave", uid=3)
    chain.step(3)
    replace, left = Path.replace, [1]

    def dying(self: Path, target: Path) -> Path:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", dying)
    pull(place, chain, code=130)
    monkeypatch.setattr(Path, "replace", replace)
    assert not list(place.glob(".*.tmp"))
    with pytest.raises(BadInput, match="are not those that were pulled"):
        assay.open(place).settle(3)
    pull(place, chain)
    assay.open(place).settle(3)


def test_the_digest_is_over_uids_and_stakes_alone() -> None:
    people = [Participant("b", 2), Participant("a", 10), Participant("waiting")]
    judges = [Validator("v", 2**63 - 1), Validator("u", 5, "name")]
    digest = registry.pulled_rows(people, judges)
    assert digest == registry.pulled_rows([Participant("a", 10, "named", "s1"), people[0]], judges[::-1])
    assert digest != registry.pulled_rows([Participant("b", 10), Participant("a", 2)], judges)
    assert digest != registry.pulled_rows(people, [judges[0], Validator("u", 6)])
    text = '{"participants":[["b",2],["a",10]],"validators":[["u","5"],["v","9223372036854775807"]]}'
    assert digest == f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_validators_sign_with_their_hotkeys_and_the_receipt_says_the_block(tmp_path: Path, chain: Simulator) -> None:
    """From the chain to a receipt that verifies: who judges is Alice and Bob by their hotkeys, and their stake is the chain's."""
    changes = {"scheme_toml": SCHEME, "participants_csv": f"key,submission\n{CHARLIE},s3\n"}
    place = ledger_kit.ledger_folder(tmp_path / "ours", **changes)
    pull(place, chain)
    terms = intake.intake_rules(place)
    with ledger_kit.opened(place) as ledger:
        for uri, key in (("//Alice", ALICE), ("//Bob", BOB), ("//Owner", OWNER)):
            pair = bittensor_core.Keypair.from_uri(uri)
            signer = keys.read(bittensor_core.serialized_keypair_to_keyfile_data(pair))
            seen = [small_folder.record(validator=key, participant=CHARLIE, submission="s3", task=task) for task in ("t1", "t2")]
            signed_batch = batch.make(
                [record(row) for row in seen],
                origin=ledger_kit.ORIGIN,
                competition=terms.competition,
                task_set=terms.task_set,
                signer=signer,
                validator=key,
            )
            intake.accept(ledger.store, signed_batch, terms)
        settled = settling.settle(ledger, ledger_kit.SIGNER)
        bundle.export(ledger, 3, tmp_path / "epoch-3")
    assert settled.settlement.weights[CHARLIE].uid == 3
    verified = assay.verify(tmp_path / "epoch-3", key=str(ledger_kit.KEY))
    assert verified.recomputed
    assert verified.receipt["registry"] == {
        name: value for name, value in pulled_json(place).items() if name not in ("schema", "neurons")
    }
    chain.register(5, "//Dave", uid=3)
    chain.step(3)
    pull(place, chain)
    with ledger_kit.opened(place) as ledger:  # the epoch that is settled stays as it is
        assert not settling.settle(ledger, ledger_kit.SIGNER, 3).new


@pytest.mark.full
def test_a_full_registry_is_read_back_as_a_settlement_reads_it(place: Path, shared: Path) -> None:
    with Simulator.with_subnet(5) as full:
        for number in range(255):
            full.register(5, f"//n{number}", alpha=number * RAO, permit=number >= 191)
        full.step(3)
        pull(place, full)
    assert len(rows(place, csvs.PARTICIPANTS)) == 255
    assert len(rows(place, csvs.VALIDATORS)) == 65
    (place / "evidence/a.jsonl").write_text("")
    assay.open(place).settle(3)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is not JSON"),
        ("[]", "is not of the format assay.registry/1"),
        ('{"schema": "assay.registry/2"}', "is not of the format assay.registry/1"),
        ({"hash": "0x12\x1b[2J"}, "registry.json: hash"),
        ({"hash": None}, "registry.json: hash"),
        ({"netuid": 70_000}, "registry.json: netuid"),
        ({"block": -1}, "registry.json: block"),
        ({"more": 1}, "registry.json: more"),
        ("x" * 20_000, "registry.json"),
        ({"neurons": None}, "registry.json: neurons.0"),
        ({"neurons": [{"uid": 1, "hotkey": "k", "stake": 5, "permit": True, "registered": 1}]}, "registry.json: neurons.0.stake"),
    ],
)
def test_a_registry_json_that_is_wrong_is_refused_by_its_field(place: Path, content: Any, why: str) -> None:
    pulled = Pulled(chain="0x" + "0" * 64, netuid=1, mechanism=0, block=1, hash="0x" + "1" * 64, spec_version=1, rows=DIGEST)
    whole = json.loads(registry.dump_pulled(pulled, ()))
    (place / "registry.json").write_text(content if isinstance(content, str) else json.dumps(whole | content))
    with pytest.raises(BadInput) as caught:
        registry.read_pulled(place / "registry.json")
    assert why in str(caught.value)
    assert str(caught.value).isprintable()


def test_help_has_an_example() -> None:
    assert "assay registry pull my-subnet --to mainnet" in output("registry", "pull", "--help")
