"""The pages of tasks, validators, epochs, of what is judged now, and of where to start: the settlement's numbers."""

import html
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ledger_kit
import small_folder
from assay.exact import NANO, half_even, nanos
from assay.folder.registry import read_tasks
from assay.judge.terminal.record import (
    CommandResult,
    Digests,
    TrialOutcome,
    TrialReason,
    TrialRecord,
    write_record,
)
from assay.ledger import bundle, settling
from assay.serve import draw, report
from assay.serve.epoch import epoch
from assay.serve.live import Finished, Judging, LiveState, live
from assay.serve.pages import live_page, names, page, start_page
from assay.serve.season import Link, Season, read
from assay.serve.start import start
from assay.serve.task import task, tasks
from assay.serve.validators import validators
from assay.uncertainty import separation
from cli_kit import command, refused
from test_pages_bounty import paid
from test_report import PageElements, standing_alone

EXAMPLES = Path(__file__).parents[2] / "examples"
HOSTILE = "<script>alert(1)</script>"
NOW = datetime(2026, 11, 2, 10, tzinfo=UTC)


@pytest.fixture(scope="module")
def season() -> Season:
    return read(EXAMPLES / "season")


def words(season: Season, name: str) -> str:
    return PageElements(page(season, name).decode()).words


def kept(
    folder: Path,
    outcome: TrialOutcome,
    seconds: str,
    *,
    validator: str = "v1",
    submission: str = "s1",
    trial: int = 1,
    epoch: int = 3,
) -> None:
    """A kept trial of m1 on t1, as a run writes it."""
    place = folder / "trials" / validator / f"m1@{submission}" / "t1" / str(trial)
    place.mkdir(parents=True)
    ran = CommandResult(exit_code=0, wall_seconds=seconds, cpu_seconds="1", peak_memory=1)
    record = TrialRecord(
        validator=validator,
        participant="m1",
        submission=submission,
        task="t1",
        trial=trial,
        outcome=outcome,
        reason=TrialReason.PASSED,
        mode="separate",
        sandbox="bubblewrap",
        agent_name="a",
        agent_version="1",
        agent=ran,
        tests=ran.model_copy(update={"wall_seconds": "2.5"}),
        digests=Digests(task="sha256:t", agent=submission),
        started_at=NOW,
        finished_at=NOW,
        epoch=epoch,
    )
    write_record(place, record)


# Tasks


def test_the_tasks_of_a_season_add_up_to_its_scores(season: Season) -> None:
    """What counts of each task, summed over the tasks, is what the settlement says of each validator that counts."""
    table = season.tasks
    assert set(table.names) == set(read_tasks(EXAMPLES / "season" / "tasks.txt", 1).ids)
    for key in season.document["ranking"]:
        passed = sum(table.counted[name][key][0] for name in table.names)
        runs = sum(table.counted[name][key][1] for name in table.names)
        votes = [vote["work"] for vote in season.agreed[key]["validators"] if not vote["excluded"]]
        assert (passed, runs) == (sum(work["passed"] for work in votes), sum(work["trials"] for work in votes))
    for row in tasks(season)["rows"]:
        text = words(season, row["href"])
        assert f"{row['passed']} of {row['runs']}" in text
        assert row["r"] in text
        written = json.loads(page(season, row["href"].replace(".html", ".json")))
        assert sum(person["passed"] or 0 for person in written["participants"]) == row["passed"]
        assert (written["agreement"]["same"], written["agreement"]["pairs"]) == (row["same"], row["pairs"])


def test_the_overview_has_the_hardest_task_first_and_every_task_once(season: Season) -> None:
    rows = tasks(season)["rows"]
    assert [row["share"] for row in rows] == sorted(row["share"] for row in rows)
    text = page(season, "tasks.html").decode()
    assert [html.unescape(name) for name in re.findall(r'<a href="(task-[^"]*)">', text)] == [row["href"] for row in rows]
    assert {row["href"] for row in rows} <= {*names(season)}
    assert "1 task is passed by everybody" in PageElements(text).words
    assert {each["task"] for each in json.loads(page(season, "tasks.json"))} == set(season.tasks.names)


def test_a_task_s_separation_is_that_of_the_scores_that_count(season: Season) -> None:
    table, ranking = season.tasks, season.document["ranking"]
    rates = [
        [half_even(table.counted[name][key][0] * NANO, table.counted[name][key][1]) for name in table.names] for key in ranking
    ]
    separations = dict(zip(table.names, separation(rates), strict=True))
    assert table.separations == separations
    for name, value in separations.items():
        view = task(season, name)["separates"]
        assert (view["r"] == "–") == (value is None)
        assert len(view["dots"]) == len(ranking)
    assert nanos(season.agreed[ranking[0]]["score"]) > nanos(season.agreed[ranking[-1]]["score"])


def test_a_task_names_the_validators_that_differ(season: Season) -> None:
    view = task(season, "decode-packet-capture")
    assert [row["name"] for row in view["agreement"]["differ"]] == ["Atlas Shell", "Borealis"]
    assert view["agreement"]["differ"][0]["failed"] == "Dogwood"
    assert (view["agreement"]["same"], view["agreement"]["pairs"]) == (3 + 3 + 6 + 6 + 3, 6 + 6 + 6 + 6 + 3)
    assert view["agreement"]["differ"][0]["passed"] == "Alder, Birch and Cedar"
    with pytest.raises(KeyError):
        task(season, "no-such-task")


def test_durations_come_from_kept_trials_of_what_is_handed_in_now(tmp_path: Path) -> None:
    folder = small_folder.make(tmp_path / "small", evidence=small_folder.lines(
        [small_folder.record(validator=validator, task=name) for validator in ("v1", "v2", "v3") for name in ("t1", "t2")]
    ))  # fmt: skip
    before = task(read(folder), "t1")["durations"]
    assert before["rows"] == []
    assert "durations" in before["why"]
    kept(folder, "pass", "12")
    kept(folder, "pass", "70", validator="v2")
    kept(folder, "timeout", "600", validator="v3")
    kept(folder, "error", "1", validator="v3", trial=2)
    kept(folder, "pass", "5000", validator="v4", submission="s0")
    kept(folder, "pass", "5000", validator="v4", epoch=4)  # an epoch that is still open
    durations = task(read(folder), "t1")["durations"]
    assert durations["count"] == 3
    assert [(row["outcome"], row["count"], row["numbers"]) for row in durations["rows"]] == [
        ("pass", 2, ["12 s", "41 s", "1 min 10 s"]),
        ("timeout", 1, ["10 min", "10 min", "10 min"]),
    ]
    assert "2.5 s" in words(read(folder), "task-t1.html")
    (folder / "tasks.txt").write_text(f"t1 sha256:{'ab' * 32} shared\nt2\n")
    facts = dict(task(read(folder), "t1")["facts"])
    assert facts["Pinned"] == f"sha256:{'ab' * 32}"
    assert "agent’s own box" in facts["Tests see"]


@pytest.mark.parametrize("kind", ["rubric", "points", "given", "workflow"])
def test_a_season_without_a_task_set_has_no_pages_of_tasks(kind: str, tmp_path: Path) -> None:
    season = read(small_folder.make(tmp_path / "small", kind, tasks_txt=None))
    assert not [name for name in names(season) if name.startswith("task")]
    assert "tasks.html" not in page(season, "index.html").decode()


def test_hostile_names_of_tasks_and_people_are_text(tmp_path: Path) -> None:
    people = f'key,uid,name,submission\nm1,1,"{HOSTILE}",s1\n../m2,2,{HOSTILE}&amp;,s2\n'
    evidence = small_folder.lines(
        [
            small_folder.record(validator=validator, participant=who, submission=submission, task=name)
            for validator in ("v1", "v2", "v3")
            for who, submission in (("m1", "s1"), ("../m2", "s2"))
            for name in ("../<i>", HOSTILE)
        ]
    )
    folder = small_folder.make(tmp_path / "s", participants_csv=people, evidence=evidence, tasks_txt=f"../<i>\n{HOSTILE}\n")
    season = read(folder)
    report.write_folder(season, tmp_path / "site")
    standing_alone(tmp_path / "site")
    task_pages = [name for name in names(season) if name.startswith("task-") and name.endswith(".html")]
    assert len(task_pages) == 2
    assert all(HOSTILE in words(season, name) for name in task_pages)
    assert task(season, HOSTILE)["command"] == f"assay tasks check 'tasks/{HOSTILE}'"  # a name in a command to paste is quoted
    assert not [path for path in tmp_path.iterdir() if path.name not in ("s", "site")]


# Bounties


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of two settled epochs: the first validator saw m2 fail, and the third judged m2 only in epoch 4."""
    first, second, third = ledger_kit.VALIDATORS
    folder = ledger_kit.ledger_folder(tmp_path_factory.mktemp("settled") / "small")
    early = [record for record in ledger_kit.records(epoch=3) if (record["validator"], record["participant"]) != (third, "m2")]
    late = ledger_kit.records(epoch=4, validators=[third])
    outcomes = {(first, "m2"): "fail", (second, "m2"): "pass", (third, "m2"): "pass"}
    for number, records in ((3, early), (4, [record for record in late if record["participant"] == "m2"])):
        seen = [record | {"outcome": outcomes.get((record["validator"], record["participant"]), "pass")} for record in records]
        ledger_kit.add(folder, seen)
        with ledger_kit.opened(folder) as ledger:
            settling.settle(ledger, ledger_kit.SIGNER, number)
    return folder


def test_the_validators_page_names_who_was_late(settled: Path) -> None:
    view = validators(read(settled))
    assert [(row["name"], row["about"]) for row in view["late"]["rows"]] == [(read(settled).called[ledger_kit.V3], "m2")]
    assert view["late"]["rows"][0]["text"] == "2 records in epoch 4; others judged the same in epoch 3"
    assert {row["key"]: row["late"] for row in view["rows"]} == {ledger_kit.V1: 0, ledger_kit.V2: 0, ledger_kit.V3: 2}
    assert all(row["last"] == "2 Nov 2026, 10:00 UTC" for row in view["rows"])
    text = words(read(settled), "validators.html")
    assert "2 records in epoch 4; others judged the same in epoch 3" in text
    assert validators(read(settled, 3))["late"]["rows"] == []
    assert "Nobody was late up to epoch 3." in words(read(settled, 3), "validators.html")


def test_who_was_left_out_is_counted_in_each_epoch(settled: Path) -> None:
    season = read(settled)
    view = validators(season)["over_epochs"]
    assert view["epochs"] == [3, 4]
    for row, key in zip(view["rows"], season.validators, strict=True):
        votes = [vote for about in season.document["agreed"] for vote in about["validators"] if vote["validator"] == key]
        assert (row["cells"][-1]["out"], row["cells"][-1]["of"]) == (sum(vote["excluded"] for vote in votes), len(votes))
        assert row["sum"] == sum(cell["out"] for cell in row["cells"])
    assert view["any"]
    assert validators(read(EXAMPLES / "season"))["over_epochs"] is None


def test_many_validators_agree_with_all_others_as_their_pairs_do(season: Season, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one's agreement with all others is the sum of its pairs, which have a cell each where there are few."""
    pairs = validators(season)["agreement"]["rows"]
    monkeypatch.setattr("assay.serve.validators.PAIRS", 1)
    view = validators(season)
    assert view["agreement"] is None
    sums = {
        row["name"]: (sum(cell["same"] for cell in row["cells"] if cell), sum(cell["n"] for cell in row["cells"] if cell))
        for row in pairs
    }
    assert {row["name"]: (row["n"], row["of"]) for row in view["with_others"]} == sums
    assert [row["w"] for row in view["with_others"]] == sorted(row["w"] for row in view["with_others"])
    assert view["disagreed"]


def test_without_a_ledger_nobody_is_late(tmp_path: Path) -> None:
    evidence = [small_folder.record(validator=name, epoch=number) for name, number in (("v1", 3), ("v2", 4), ("v3", 4))]
    view = validators(read(small_folder.make(tmp_path / "small", evidence=small_folder.lines(evidence))))
    assert [row["late"] for row in view["rows"]] == [0, 0, 0]
    assert "Without a ledger no epoch is ever closed" in view["late"]["why"]


@pytest.mark.parametrize("kind", ["workflow", "points", "given"])
def test_evidence_of_one_epoch_is_never_late(kind: str, tmp_path: Path) -> None:
    folder = ledger_kit.ledger_folder(tmp_path / "small", kind, tasks_txt=None)
    ledger_kit.add(folder, ledger_kit.records(kind, epoch=3))
    with ledger_kit.opened(folder) as ledger:
        settling.settle(ledger, ledger_kit.SIGNER, 3)
    assert "A ledger refuses it when that epoch is closed" in validators(read(folder))["late"]["why"]


def test_an_epoch_shows_the_difference_that_verify_finds(settled: Path, tmp_path: Path) -> None:
    """The example on the page is what `assay verify` says of a bundle in which that number was changed."""
    season = read(settled)
    example = epoch(season)["example"]
    with ledger_kit.opened(settled) as ledger:
        bundle.export(ledger, 4, tmp_path / "epoch-4")
    file = tmp_path / "epoch-4" / "settlement.json"
    document = json.loads(file.read_text())
    expected, wrong = (int(example["same"] + example[name]) for name in ("expected", "found"))
    assert document["weights"][1]["u16"] == expected
    document["weights"][1]["u16"] = wrong
    file.write_text(json.dumps(document))
    message = refused("verify", tmp_path / "epoch-4", "--key", str(ledger_kit.KEY), code=1)
    assert f"{example['key']}: {example['where']} differs (expected {expected}, found {wrong})" in message
    assert message.startswith(next(name for name, state in example["stages"] if state == "no"))
    text = words(season, "epoch.html")
    assert "nothing was found here" in text
    assert f"assay verify epoch-4 \\ --key {ledger_kit.KEY}" in text
    assert "No witness has cosigned this checkpoint." in text


def test_an_epoch_says_what_state_it_is_in(settled: Path, tmp_path: Path, season: Season) -> None:
    assert epoch(read(settled))["state"] == "checked"
    assert [link["e"] for link in epoch(read(settled))["chain"]] == [3, 4]
    open_one = ledger_kit.ledger_folder(tmp_path / "small")
    ledger_kit.add(open_one, ledger_kit.records(epoch=3))
    assert "Not settled yet, so no receipt" in words(read(open_one), "epoch.html")
    assert "No ledger, so no receipt" in words(season, "epoch.html")


def test_what_can_be_taken_home_is_as_large_as_it_says(settled: Path) -> None:
    season = read(settled)
    for file in epoch(season)["files"]:
        size = len(page(season, file["name"]))
        assert file["size"] in ("", draw.size(size))


def test_a_long_chain_is_drawn_around_the_epoch_shown(settled: Path) -> None:
    season = read(settled, 3)
    assert season.proof is not None
    links = [Link(number, number, f"sha256:{number:064x}") for number in range(500)]
    others = {number: f"../epoch-{number}/" for number in range(500)}
    for shown in (0, 250, 499):
        settlement = replace(season.settlement, inputs=replace(season.settlement.inputs, epoch=shown))
        proof = replace(season.proof, chain=tuple(links))
        chain = epoch(replace(season, settlement=settlement, proof=proof, others=others))["chain"]
        drawn = [link["e"] for link in chain]
        assert drawn == sorted(drawn)
        assert drawn[0] == 0
        assert [link["e"] for link in chain if link["now"]] == [shown]
        assert len(drawn) <= 42
        assert sum(link["skipped"] for link in chain) + len(drawn) == drawn[-1] + 1
        assert chain[-1]["href"] == f"../epoch-{drawn[-1]}/epoch.html"


# What is judged now


def judging(validator: str, task: str = "t1", *, done: int = 2, total: int = 8, began: float = 120, heard: float = 5) -> Judging:
    """What a validator judges of m1, so many seconds ago begun and last heard of."""
    return Judging(validator, "m1", "s1", task, done, total, NOW - timedelta(seconds=began), NOW - timedelta(seconds=heard))


def test_what_is_left_is_guessed_from_how_it_went(tmp_path: Path) -> None:
    season = read(small_folder.make(tmp_path / "small"))
    rows = {
        "going": (judging("v1", began=125, heard=5), "about 6 min"),  # 2 in 120 s, 6 left, heard 5 s ago
        "some time ago": (judging("v1", began=205, heard=85), "about 5 min"),  # the same, but 85 s of it are over
        "begun": (judging("v1", done=0), "not known yet"),
        "over": (judging("v1", done=8), "done"),
        "late": (judging("v1", done=7, began=92, heard=85), "any moment"),  # 7 in 7 s, the last one would be long done
        "unknown": (judging("v1", total=0, done=0), "not known"),
    }
    for heartbeat, expected in rows.values():
        (run,) = live(season, LiveState(4, (heartbeat,), None, ()), NOW)["runs"]
        assert run["eta"] == expected
        assert not run["silent"]


def test_a_validator_that_is_not_heard_of_is_silent_and_stands_last(tmp_path: Path) -> None:
    season = read(small_folder.make(tmp_path / "small"))
    state = LiveState(
        4,
        (judging("v1", heard=91), judging("v2", heard=89), judging("v2", "t2", done=3), judging("v2", "x")),
        3725,
        ("m2", "new"),
    )
    view = live(season, state, NOW)
    assert [(run["validator"], run["silent"]) for run in view["runs"]] == [("v2", False), ("v1", True)]
    assert view["runs"][0]["tasks"] == [
        {"name": "t1", "href": "task-t1.html"},
        {"name": "t2", "href": "task-t2.html"},
        {"name": "x", "href": None},
    ]
    assert (view["runs"][0]["done"], view["runs"][0]["ago"]) == (3, "5 s")
    assert view["lede"] == "1 validator judges 1 submission. 1 validator is silent. 2 submissions wait."
    assert (view["closes_in"], view["closes_at"]) == (3725, "11:02")
    assert view["waiting"] == [{"name": "m2", "href": "participant-m2.html", "why": ""}, {"name": "new", "href": None, "why": ""}]


def test_the_live_page_shows_what_came_last(tmp_path: Path) -> None:
    season = replace(read(small_folder.make(tmp_path / "small")), address="http://127.0.0.1:8400/small")
    last = live(season, LiveState(4, (), None, ()), NOW)["finished"]
    assert [(row["name"], row["outcome"]) for row in last] == [(name, "pass") for name in ("v1", "v2", "v3")]
    key = "<i>x</i>"
    came = Finished("v9", key, "t2", HOSTILE, NOW - timedelta(seconds=70))
    state = LiveState(4, (judging(key, HOSTILE),), None, (key,), (came,))
    markup = live_page(season.scheme, season, state, "events", NOW).decode()
    shown = PageElements(markup)
    assert (shown.words.count(key), shown.words.count(HOSTILE)) == (3, 2)
    assert "1 min 10 s ago" in shown.words
    assert shown.inline == []
    assert 'data-events="events"' in markup
    assert "Live" in shown.words
    nothing = PageElements(live_page(season.scheme, None, LiveState(1, (), None, ()), "events", NOW).decode())
    for sentence in ("Nothing is judged now.", "Nothing waits", "No result has come yet.", "when the operator settles it"):
        assert sentence in nothing.words
    assert nothing.inline == []


# Where to start


def commands_of(view: dict[str, object], *, served: bool) -> Iterator[list[str]]:
    """The words of every command of Assay on the page."""
    doors = view["doors"]
    assert isinstance(doors, list)
    for door in doors:
        for step in door["steps"]:
            for line in step["command"].replace("\\\n", " ").splitlines():
                words = shlex.split(line)
                assert words[0] == "assay" or (served and words[0] == "curl")
                if words[0] == "assay":
                    yield words[1:]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["tests", "rubric", "points", "given", "workflow", "bounty"])
def test_every_command_to_paste_is_one_that_assay_has(kind: str, tmp_path: Path) -> None:
    folder = paid(tmp_path / "b") if kind == "bounty" else small_folder.make(tmp_path / "small", kind, tasks_txt=None)
    view = start(folder)
    assert [door["who"] for door in view["doors"]].count("You pay for a solution") == 1
    assert len(view["doors"]) == 6
    served = start(folder, (), "https://assay.example.org/small")
    for words in [*commands_of(view, served=False), *commands_of(served, served=True)]:
        path = tuple(words[: 2 if words[0] in ("keys", "evidence", "bounty", "tasks", "import", "node") else 1])
        options = {option for parameter in command(path).params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("-")} <= options, words


def test_a_service_s_page_is_filled_in_with_its_address_and_the_log_s_key(settled: Path, tmp_path: Path) -> None:
    address = "https://assay.example.org/small"
    season = read(settled)
    markup = start_page(settled, season, address).decode()
    shown = PageElements(markup)
    assert f"assay submit --url {address} \\ --key my-key my-agent/" in shown.words
    assert f"assay node validator my-copy \\ --url {address} --key val-1" in shown.words
    assert f"assay verify epoch-4 \\ --key {ledger_kit.KEY}" in shown.words
    assert "curl https://assay.example.org/v1/small/epochs/4/bundle | tar -x assay verify" in shown.words
    assert f"assay submissions --url {address}" in shown.words
    assert "--validator val-1 --epoch 5" in shown.words
    proof = PageElements(page(replace(season, address=address), "epoch.html").decode())
    assert "curl https://assay.example.org/v1/small/epochs/4/bundle | tar -x assay verify epoch-4" in proof.words
    assert {"https://assay.example.org/v1/small/epochs/4/bundle", f"{address}/log/checkpoint"} <= set(proof.links)
    assert "curl" not in PageElements(page(season, "epoch.html").decode()).words
    assert shown.inline == []
    assert page(replace(season, address=address), "start.html").decode() == markup
    offline = page(season, "start.html").decode()
    assert "--url" not in offline
    assert "assay node" not in offline
    assert "live.html" not in offline
    empty = PageElements(start_page(ledger_kit.ledger_folder(tmp_path / "empty"), None, address).decode())
    assert f"assay register --url {address}" in empty.words
    assert str(ledger_kit.KEY) in empty.words
    assert [link for link in empty.links if not link.startswith("#")] == [
        "index.html",
        "live.html",
        "start.html",
        "start.json",
    ]
    unproven = start(small_folder.make(tmp_path / "none"))
    assert "There is no ledger, so there is no receipt." in str(unproven)
