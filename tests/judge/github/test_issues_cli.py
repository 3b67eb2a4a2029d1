"""Issues from the command line: link, run, show; what it says and how it ends."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cli_kit
import github_kit as kit
from assay.ledger import keys
from cli_kit import output, refused, run
from github_kit import FaultyGithub, GithubFault, github_competition, issue, label, records, status

ISSUES = [
    issue(1, 50, label("valid", 1), label("valid", 3, off=True)),
    issue(2, 50, label("valid", 1, by=kit.STRANGER), label("invalid", 2)),
    issue(3, 51, label("duplicate", 2)),
    issue(4, kit.KESTREL, label("valid", 2)),
]


@pytest.fixture
def server() -> Iterator[FaultyGithub]:
    with kit.serving(kit.facts(ISSUES, stars=[{"by": 50, "at": kit.at(2)}])) as faulty:
        yield faulty


@pytest.fixture
def place(server: FaultyGithub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    for name in kit.PEOPLE:
        keys.save(name, kit.key_of(name))
    return github_competition(tmp_path / "c", server.url)


def test_a_statement_is_made_published_and_found(place: Path, server: FaultyGithub) -> None:
    linked = run("issues", "link", "--competition", place, "--key", "ann", "--login", "ann")
    assert linked.stdout == kit.statement("ann")
    assert "Publish it as ann, in a gist or in a comment on an issue" in linked.stderr
    server.world.facts["gists"][0]["files"] = {"notes.txt": "my notes", "link.md": f"Me:\n\n{linked.stdout}"}
    assert "9 records judged" in output("run", place, "--validator", "val-1", "--quiet")


def test_a_participant_with_a_name_says_who_he_is(place: Path) -> None:
    file = place / "participants.csv"
    file.write_text(file.read_text(encoding="utf-8") + "robin,9,\n", encoding="utf-8")
    keys.save("robin", kit.key_of("robin"))
    assert "no participant has the key" in refused("issues", "link", "--competition", place, "--key", "robin", "--login", "ann")
    words = ("issues", "link", "--competition", place, "--key", "robin", "--login", "ann", "--participant")
    assert output(*words, "robin").count("ASSAY ACCOUNT") == 2
    assert "there is no participant 'zed'" in refused(*words, "zed")


@pytest.mark.parametrize(
    ("login", "why"),
    [
        ("nobody", "there is nothing there (404)"),
        ("@ann", "is not the name of an account"),
        ("../ann", "is not the name of an account"),
        ("robot", "is not a person's account (Bot)"),
    ],
)
def test_an_account_that_cannot_be_linked(place: Path, server: FaultyGithub, login: str, why: str) -> None:
    server.world.facts["accounts"].append({"id": 88, "login": "robot", "type": "Bot"})
    assert why in refused("issues", "link", "--competition", place, "--key", "ann", "--login", login)


def test_ids_are_looked_up(place: Path, server: FaultyGithub) -> None:
    assert output("issues", "id", place, "kestrel") == "90\n"
    assert output("issues", "id", place, kit.REPOSITORY) == "700\n"
    assert "there is nothing there (404)" in refused("issues", "id", place, "acme/nothing")
    assert "is not the name of a repository" in refused("issues", "id", place, "acme/..%2f/x")
    server.faults.append(GithubFault("", status(429, retry_after="1"), times=1))
    done = run("issues", "id", place, "kestrel")
    assert (done.stdout, done.stderr) == ("90\n", "GitHub was asked too much (429); again in 1.00 s\n")


def test_a_run_says_what_it_counted(place: Path) -> None:
    done = run("run", place, "--validator", "val-1", columns=200)
    assert done.stderr.splitlines()[0] == f"counted  {kit.public_of('ann')}  acme/widget  1  1 valid, 0 invalid  [1/9]"
    assert "9 records judged (9 counted)." in done.stdout
    row = next(line for line in done.stdout.splitlines() if "#1" in line)
    assert row.split()[1:] == ["acme/widget", "1", "1", "1", "yes", "invalid", "#2,", "undecided", "#1"]
    assert "acme/widget: labels that do not count, set by eve (1)." in done.stdout
    assert "bounty-challenge 1.0.0 · epoch 3" in done.stdout
    assert "Nothing is missing: every record has its evidence." in output("run", place, "--validator", "val-1")


def test_a_run_that_leaves_something_out_ends_with_1(place: Path, server: FaultyGithub) -> None:
    server.faults.append(GithubFault("/stargazers", status(403, "no")))
    done = run("run", place, "--validator", "val-1", "--attempts", "1", code=1)
    assert "Errors, which are nobody's fails" in done.stdout
    assert "GitHub answered 403" in " ".join(done.stdout.split())
    server.faults = [GithubFault("/gists", status(403, "no"), after=1)]
    done = run("run", place, "--validator", "val-1", "--attempts", "1", code=1, columns=200)
    assert "Nothing is missing" not in done.stdout
    assert "GitHub answered 403" in done.stdout
    server.faults = [GithubFault("", status(401))]
    assert "GitHub refuses the token" in refused("run", place, "--validator", "val-1")
    server.faults = [GithubFault("", status(403, "no"))]
    assert "GitHub cannot be read" in refused("run", place, "--validator", "val-1", code=1)


def test_options_of_other_judges_are_refused(place: Path) -> None:
    for option in ("--task=x", "--model=x", "--engine=x"):
        assert (
            "says nothing to the judge of the kind 'points'" in run("run", place, "--validator", "val-1", option, code=2).stderr
        )


def test_show_everybody(place: Path) -> None:
    assert "no validator has read issues here yet" in refused("issues", "show", place)
    run("run", place, "--validator", "val-1")
    board = output("issues", "show", place)
    assert cli_kit.narrow(board)
    assert " revoked  star  issues" in board
    assert re.search(r"acme/wi… +1 +1 +1 +yes +invalid #2, undecided", board)
    assert "duplicate #3" in board
    run("run", place, "--validator", "val-2")
    assert "2 validators have read issues here; choose one with --validator: val-1, val-2" in refused("issues", "show", place)
    assert "there is no validator who has read issues here 'val-9'" in refused("issues", "show", place, "--validator", "val-9")
    assert output("issues", "show", place, "--validator", "val-1") == board


def test_show_one(place: Path, server: FaultyGithub) -> None:
    run("run", place, "--validator", "val-1")
    board = output("issues", "show", place, "ann", columns=120)
    rows = [" ".join(line.split()) for line in board.splitlines()]
    assert rows[0].endswith("in acme/widget")
    assert "Account ann (50), has starred it since 2026-11-02T01:00:00Z." in rows
    assert "#1 1 valid +valid kestrel 2026-11-02T00:10:00Z https://github.com/acme/widget/issues/1" in rows
    assert "#1 3 valid revoked −valid kestrel 2026-11-02T02:10:00Z https://github.com/acme/widget/issues/1" in rows
    assert "#2 2 invalid +invalid kestrel 2026-11-02T01:10:00Z https://github.com/acme/widget/issues/2" in rows
    assert "#2 +valid eve 2026-11-02T00:10:00Z not a maintainer" in rows
    assert rows[-3:] == ["1 1 0 0 0 no", "2 0 1 0 0 yes", "3 0 0 1 0 yes"]
    assert cli_kit.narrow(output("issues", "show", place, "ann"))
    server.repository["issues"][0]["gone"] = "deleted"
    server.world.now = server.world.now.fromisoformat(kit.at(5, 6))
    run("run", place, "--validator", "val-1")
    again = output("issues", "show", place, "ann", columns=120)
    assert "https://github.com/acme/widget/issues/1 (gone)" in again
    assert "is different now" not in again  # what an issue counted is kept, though it is gone
    assert "nothing (duplicate)" in output("issues", "show", place, "ben")


def test_show_as_json(place: Path) -> None:
    run("run", place, "--validator", "val-1")
    document = json.loads(output("issues", "show", place, "ann", "--json"))
    assert document["validator"] == "val-1"
    (count,) = document["counts"]
    assert [row["number"] for row in count["issues"]] == [1, 2]
    assert [row["valid"] for row in count["records"]] == [1, 0, 0]
    assert count["differs"] == []
    assert len(json.loads(output("issues", "show", place, "--json"))["counts"]) == 3


def test_show_says_where_github_tells_another_history_now(place: Path, server: FaultyGithub) -> None:
    run("run", place, "--validator", "val-1")
    server.repository["issues"][0]["events"].pop(0)
    server.world.now = server.world.now.fromisoformat(kit.at(5, 6))
    done = output("run", place, "--validator", "val-1", "--quiet", columns=200)
    assert f"GitHub's history of {kit.public_of('ann')} in epoch 1 is different now; the record stays." in " ".join(done.split())
    assert "GitHub's history of epoch 1 is different now; the record stays." in output("issues", "show", place, "ann")
    assert json.loads(output("issues", "show", place, "ann", "--json"))["counts"][0]["differs"] == [1, 3]


def test_show_several_repositories_and_no_other_kind(place: Path, server: FaultyGithub) -> None:
    scheme, rules = place / "scheme.toml", place / "issues.toml"
    for file, old, new in (
        (scheme, "[consensus]", f'"{kit.OTHER}" = "5"\n[consensus]'),
        (rules, "[repositories]", f'[repositories]\n"{kit.OTHER}" = {kit.OTHER_ID}'),
    ):
        cli_kit.rewrite(file, old, new)
    server.world.facts["repositories"][1]["issues"].append(issue(1, 51, *(label("valid", 1),)))
    server.world.facts["repositories"][1]["issues"] += [issue(number, 51, label("invalid", 2)) for number in range(2, 20)]
    run("run", place, "--validator", "val-1")
    board = output("issues", "show", place, "ben", columns=120)
    assert "\n\nben" not in board
    assert board.index("in acme/widget") < board.index("in acme/gadget")
    assert "valid #1, invalid #2 #3 #4 #5 #6 #7 #8 #9 #10 #11 #12 #13 and 6 more" in output("issues", "show", place, columns=300)
    cli_kit.rewrite(scheme, 'kind = "points"', 'kind = "given"')
    cli_kit.rewrite(scheme, "[score.repositories]", "[score.x]")
    refused("issues", "show", place)
    scheme.write_text('[scheme]\nname = "x"\n[score]\nkind = "given"\n', encoding="utf-8")
    assert "only competitions of the kind" in refused("issues", "show", place)


def test_without_what_was_read_the_records_are_shown(place: Path) -> None:
    run("run", place, "--validator", "val-1")
    (path,) = (place / "issues" / "val-1").glob("*.json")
    text = path.read_text(encoding="utf-8")
    path.unlink()
    (place / "issues" / "val-1" / "other.json").write_text(text.replace(kit.REPOSITORY, kit.OTHER), encoding="utf-8")
    assert "The issues that were read are not stored here, only the records." in output("issues", "show", place, "ann")


def test_what_cannot_be_shown(place: Path) -> None:
    run("run", place, "--validator", "val-1")
    assert "there is no participant 'zed'" in refused("issues", "show", place, "zed")
    (place / "evidence" / "run-val-1.jsonl").write_text("", encoding="utf-8")
    assert "there is no evidence of 'val-1'" in refused("issues", "show", place, "ann")


def test_a_run_is_signed_into_the_ledger_epoch_by_epoch(place: Path, server: FaultyGithub) -> None:
    keys.save("log", kit.key_of("log"))
    keys.save("val", kit.key_of("val"))
    validator = kit.public_of("val")
    (place / "validators.csv").write_text(f"key,stake,name\n{validator},100,val\n", encoding="utf-8")
    run("ledger", "init", place, "--origin", "example.org/c", "--key", "log")
    server.world.now = server.world.now.fromisoformat(kit.at(2, 6))
    assert "3 records signed and added to the ledger." in output("run", place, "--sign", "val", "--quiet")
    assert "epoch 1" in output("settle", place)
    server.world.now = server.world.now.fromisoformat(kit.at(4, 6))
    done = output("run", place, "--sign", "val", "--quiet")
    assert "6 records judged (6 counted)." in done
    assert "6 records signed and added to the ledger." in done
    assert "epoch 2" in output("settle", place)  # the next one, though epoch 3 has evidence as well
    third = output("settle", place)
    assert "epoch 3" in third
    assert "0.05" not in third
    explained = output("explain", place, "ann")
    assert "1 valid" in explained or "0 valid" in explained
    assert {record["epoch"] for record in records(place, validator)} == {1, 2, 3}
    (place / "evidence" / f"run-{validator}.jsonl").unlink()
    assert "0 records judged" not in output("run", place, "--sign", "val", "--quiet")
    assert records(place, validator) == []  # what is settled is not judged again
