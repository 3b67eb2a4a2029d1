"""A duel is computed again from a bundle: every number in its document follows from evidence, scheme and receipt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
import small_folder
from assay.errors import BadInput, Refused
from assay.exact import canonical, digest
from assay.folder import registry
from assay.ledger import bundle, settling
from assay.ledger.verify import verify
from assay.rules.duel import Contest, Side
from assay.scheme.load import read as read_scheme
from cli_kit import output
from ledger_kit import KEY, SIGNER, V1

Json = dict[str, Any]
SCHEME = small_folder.SCHEME + 'trials = 3\n[consensus]\nmin_validators = 1\nmin_stake = "0%"\n[duel]\nalpha = "50%"\n'


def trials(epoch: int, who: str, submission: str, passes: int) -> list[Json]:
    return [
        small_folder.record(
            epoch=epoch,
            validator=V1,
            participant=who,
            submission=submission,
            task=f"t{at % 2 + 1}",
            trial=at // 2 + 1,
            outcome="pass" if at < passes else "fail",
        )
        for at in range(6)
    ]


def build(place: Path) -> Path:
    ledger_kit.ledger_folder(place, scheme_toml=SCHEME)
    others = [trial | {"validator": ledger_kit.V2} for trial in trials(3, "m1", "s1", 0)]  # accepted first, and not asked for
    ledger_kit.add(place, [*trials(3, "m2", "s2", 1), *others])
    settle(place, 3)
    error = small_folder.record(epoch=4, validator=V1, participant="m1", submission="s1", task="t1", trial=7, outcome="error")
    ledger_kit.add(place, [*trials(4, "m1", "s1", 5), error])
    settle(place, 4)
    return place


def settle(place: Path, epoch: int) -> None:
    with ledger_kit.opened(place) as ledger:
        settling.settle(ledger, SIGNER, epoch)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return ledger_kit.once(tmp_path / "small", ("duel",), build)


def receipt(place: Path, epoch: int) -> str:
    with ledger_kit.opened(place) as ledger, ledger.counted() as view:
        stored = view.receipt(epoch)
        assert stored is not None
        return stored.digest


def document(place: Path) -> Json:
    tasks = registry.read_tasks(place / "tasks.txt", 3)
    sides = Side("m1", "s1"), Side("m2", "s2")
    contest = Contest(read_scheme(place / "scheme.toml"), 4, V1, *sides, (3, receipt(place, 3)), tasks.ids, tasks.digest)
    passed = [
        {(trial["task"], trial["trial"]): trial["outcome"] == "pass" for trial in trials(4, "m", "s", count)} for count in (5, 1)
    ]
    return contest.fought(*passed)


@pytest.fixture
def exported(place: Path, tmp_path: Path) -> Path:
    with ledger_kit.opened(place) as ledger:
        return bundle.export(ledger, 4, tmp_path / "epoch-4")


def written(tmp_path: Path, duel: Json) -> Path:
    file = tmp_path / "duel.json"
    file.write_bytes(canonical(duel) + b"\n")
    return file


def test_a_duel_is_computed_again_from_the_bundle(place: Path, exported: Path, tmp_path: Path) -> None:
    duel = document(place)
    assert duel["winner"] == "challenger"
    assert 0 < len(duel["path"]) < 6
    file = written(tmp_path, duel)
    report = verify(exported, key=str(KEY), duel=file)
    assert (report.checked[-1].stage, report.checked[-1].done) == ("duel", True)
    assert report.checked[-1].what == f"m1 against m2: computed again to the bit: {duel['digest']}"
    assert "m1 against m2" in output("verify", exported, "--key", str(KEY), "--duel", file)


def changed(*path: Any, to: Any) -> Callable[[Json], None]:
    def change(duel: Json) -> None:
        place: Any = duel
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (changed("path", 0, "challenger", to=False), r"path\[0\]\.challenger differs"),
        (changed("path", 0, "king_wealth", to="1"), r"path\[0\]\.king_wealth differs"),
        (changed("path", 1, "task", to="t9"), r"path\[1\]\.task differs"),
        (changed("winner", to="king"), "winner differs"),
        (changed("winner", to=None), "it is not decided, so there is nothing to verify yet"),
        (changed("alpha", to="0.05"), "alpha differs"),
        (changed("pairs", to=5), "pairs differs"),
        (changed("challengers", to=2), "(path|winner|by|waits_for|digest)"),
        (changed("extra", to=1), "digest differs"),
        (changed("schema", to="assay.duel/2"), "it does not have the format assay.duel/1"),
        (changed("validator", to="nobody"), "there is no validator 'nobody'"),
        (changed("validator", to=7), "validator: "),
        (changed("king", "participant", to="m9"), "'m9' does not have that submission in the epoch"),
        (changed("king", "submission", to="s9"), "'m2' does not have that submission in the epoch"),
        (changed("receipt", "digest", to="sha256:" + "0" * 64), "its order is not drawn from the receipt of epoch 3"),
        (changed("receipt", "epoch", to=9), "its order is not drawn from the receipt of epoch 9"),
        (changed("epoch", to=3), "the receipt of epoch 3 is not the last one before epoch 3"),
        (changed("epoch", to=5), "the receipt of epoch 3 is not the last one before epoch 5"),
    ],
)
def test_a_changed_duel_is_refused(
    place: Path, exported: Path, tmp_path: Path, change: Callable[[Json], None], what: str
) -> None:
    duel = document(place)
    change(duel)
    duel["digest"] = digest({name: value for name, value in duel.items() if name != "digest"})
    with pytest.raises(Refused, match=what) as refused:
        verify(exported, key=str(KEY), duel=written(tmp_path, duel))
    assert refused.value.stage == "duel"


def test_a_submission_that_came_after_the_receipt_is_refused(tmp_path: Path) -> None:
    people = "key,uid,submission,accepted_epoch\nm1,1,s1,{}\nm2,2,s2,3\n"
    for accepted in (3, 4):
        place = ledger_kit.ledger_folder(
            tmp_path / f"a{accepted}" / "small", scheme_toml=SCHEME, participants_csv=people.format(accepted)
        )
        ledger_kit.add(place, trials(3, "m2", "s2", 1))
        settle(place, 3)
        ledger_kit.add(place, trials(4, "m1", "s1", 5))
        settle(place, 4)
        with ledger_kit.opened(place) as ledger:
            target = bundle.export(ledger, 4, tmp_path / f"epoch-{accepted}")
        file = written(tmp_path, document(place))
        if accepted == 3:
            verify(target, key=str(KEY), duel=file)
        else:
            with pytest.raises(Refused, match="the submission of 'm1' was accepted in epoch 4, after the receipt"):
                verify(target, key=str(KEY), duel=file)


def test_no_json_at_all_is_refused(exported: Path, tmp_path: Path) -> None:
    for text in ("", "[]", "{", '{"schema": "assay.duel/1", "schema": 1}'):
        (tmp_path / "duel.json").write_text(text)
        with pytest.raises(Refused) as refused:
            verify(exported, key=str(KEY), duel=tmp_path / "duel.json")
        assert refused.value.stage == "duel"


def test_without_a_bundle_the_duel_is_not_checked(place: Path, tmp_path: Path) -> None:
    file = written(tmp_path, document(place))
    for name, asked in (("epoch-4.receipt", ()), ("m1.proof", ("--for", "m1"))):
        (tmp_path / name).write_text(output("receipt", place, "4", *asked))
        last = verify(tmp_path / name, key=str(KEY), duel=file).checked
        assert ("duel", False) in {(row.stage, row.done) for row in last}


def test_a_scheme_without_duels_has_none(tmp_path: Path) -> None:
    place = ledger_kit.ledger_folder(tmp_path / "other", scheme_toml=SCHEME.partition("[duel]")[0])
    ledger_kit.add(place, [*trials(3, "m2", "s2", 1), *trials(3, "m1", "s1", 5)])
    settle(place, 3)
    with ledger_kit.opened(place) as ledger:
        target = bundle.export(ledger, 3, tmp_path / "epoch-3")
    duel = {"schema": "assay.duel/1", "winner": "king", "validator": V1, "epoch": 4, "challengers": 1}
    duel |= {"challenger": {"participant": "m1", "submission": "s1"}, "king": {"participant": "m2", "submission": "s2"}}
    duel |= {"receipt": {"epoch": 3, "digest": "sha256:" + "0" * 64}}
    with pytest.raises(Refused, match=r"the scheme has no section \[duel\]"):
        verify(target, key=str(KEY), duel=written(tmp_path, duel))


def test_a_subnet_has_no_duel(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "joint").mkdir()
    (tmp_path / "joint" / "emission.receipt").write_text("{}")
    with pytest.raises((BadInput, Refused), match="--duel"):
        verify(tmp_path / "joint", duel=tmp_path / "duel.json")
