"""issues.toml, accounts.csv and the published statement: what is read, and every refusal with its place."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import github_kit as kit
from assay.errors import BadInput
from assay.exact import canonical
from assay.judge.github import accounts, rules
from assay.judge.github.accounts import AccountClaim, CommentLocation, GistLocation, find_claim, signed_block
from assay.judge.github.rules import Epochs
from assay.ledger import keys
from assay.ledger.keys import sign_envelope
from assay.scheme.load import read as read_scheme
from assay.scheme.model import PointsScore
from assay.scheme.reading import validate

API = "http://127.0.0.1:9"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return kit.github_competition(tmp_path / "c", API)


def read(place: Path) -> rules.IssueRules:
    score = read_scheme(place / "scheme.toml").score
    assert isinstance(score, PointsScore)
    return rules.read_rules(place, score)


def test_what_issues_toml_says(place: Path) -> None:
    issue_rules = read(place)
    assert (issue_rules.github.api, issue_rules.epochs.first, issue_rules.epochs.wait) == (API, 1, 300)
    assert [issue_rules.verdict(name) for name in ("valid", "CONFIRMED", "invalid", "duplicate", "bug")] == [
        "valid",
        "valid",
        "invalid",
        "duplicate",
        None,
    ]
    third = datetime(2026, 11, 2, 2, tzinfo=UTC)
    assert [issue_rules.decides(kit.MERLIN, third - timedelta(seconds=1)), issue_rules.decides(kit.MERLIN, third)] == [
        True,
        False,
    ]
    assert not issue_rules.decides(None, third)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("seconds = 3600", "seconds = 59", "epochs.seconds"),
        ("seconds = 3600", "second = 3600", "did you mean 'seconds'?"),
        ("begins = 2026-11-02T00:00:00Z", "begins = 2026-11-02T00:00:00", "is not a time with a time zone"),
        ('"Confirmed"', '"invalid"', "the label 'invalid' says valid and invalid; keep it in one list"),
        ("kestrel = 90", "kestrel = 91", "two maintainers have the id 91"),
        ("kestrel = 90", 'kestrel = "90"', "maintainers.kestrel"),
        ("kestrel = 90", "kestrel = { id = 90, from = 1 }", "there is no field 'from' here"),
        (API, "ftp://127.0.0.1", "is not an address of GitHub"),
        (f'"{API}"', "7", "github.api"),
        (API, "http://github.example.com", "http would show the token to everybody on the way"),
        (API, "https://me:secret@github.example.com", "is not an address of GitHub"),
        (API, "https://[::1", "is not an address"),
        (f'"{kit.REPOSITORY}" = 700', '"acme/other" = 700', "acme/widget of scheme.toml is missing"),
        (f'"{kit.REPOSITORY}" = 700', f'"{kit.REPOSITORY}" = 700\n"acme/other" = 3', "acme/other is not in the scheme's table"),
        (f'"{kit.REPOSITORY}" = 700', f'"{kit.REPOSITORY}" = 700\n"acme/other" = 700', "two repositories have the id 700"),
        (f'"{kit.REPOSITORY}" = 700', f'"{kit.REPOSITORY}" = 0', "repositories"),
    ],
)
def test_what_issues_toml_may_not_say(place: Path, old: str, new: str, why: str) -> None:
    path = place / "issues.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        read(place)
    assert why in str(refused.value)
    assert str(path) in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_competition_without_issues_toml(place: Path) -> None:
    (place / "issues.toml").unlink()
    with pytest.raises(BadInput, match="no such file, so it is not known whose labels decide"):
        read(place)


def test_epochs() -> None:
    begins = datetime(2026, 11, 2, tzinfo=UTC)
    epochs = validate(Epochs, {"first": 7, "begins": begins, "seconds": 100, "wait": 30})
    moments = {-1: None, 0: 7, 99: 7, 100: 8, 250: 9}
    assert {second: epochs.of(begins + timedelta(seconds=second)) for second in moments} == moments
    assert epochs.end(7) == begins + timedelta(seconds=100)
    over = {129: [], 130: [7], 229: [7], 230: [7, 8]}
    assert {second: list(epochs.over(begins + timedelta(seconds=second))) for second in over} == over
    assert list(epochs.over(begins - timedelta(days=9))) == []


def test_where_a_statement_may_be(place: Path) -> None:
    (place / "accounts.csv").write_text(
        "participant,url\n"
        f"{kit.public_of('ann')},https://gist.github.com/ann/{'0a' * 16}\n"
        f"{kit.public_of('ben')},https://github.com/acme/widget/issues/7#issuecomment-41\n"
        f"{kit.public_of('cyd')},https://ghe.example.com/gist/{'0b' * 16}\n",
        encoding="utf-8",
    )
    links = accounts.read_links(place, [kit.public_of(name) for name in kit.PEOPLE])
    assert [link.spot for link in links] == [GistLocation("0a" * 16), CommentLocation("acme/widget", 41), GistLocation("0b" * 16)]
    assert [link.key for link in links] == [kit.key_of(name).public for name in kit.PEOPLE]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (f"robin,https://gist.github.com/{'0a' * 16},", "'robin' is not a public key"),
        (f"nobody,https://gist.github.com/{'0a' * 16},", "there is no participant 'nobody'"),
        (f"{kit.public_of('ann')},https://github.com/acme/widget/issues/7,", "is neither a gist nor a comment"),
        (f"{kit.public_of('ann')},javascript:alert(1),", "is neither a gist nor a comment"),
        (f"{kit.public_of('ann')},https://gist.github.com/../../{'0a' * 16},", "is neither a gist nor a comment"),
        (
            f"{kit.public_of('ann')},https://gist.github.com/{'0a' * 16},{kit.public_of('ben')}",
            "is another key than the participant's own",
        ),
        (f"robin,https://gist.github.com/{'0a' * 16},nokey", "'nokey' is not a public key"),
    ],
)
def test_what_accounts_csv_may_not_say(place: Path, row: str, why: str) -> None:
    (place / "accounts.csv").write_text(f"participant,url,key\n{row}\n", encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        accounts.read_links(place, ["robin", *map(kit.public_of, kit.PEOPLE)])
    assert why in str(refused.value)
    assert f"{place / 'accounts.csv'}:2: " in str(refused.value)


def test_a_participant_has_one_account_and_may_be_called_by_a_name(place: Path) -> None:
    row = f"robin,https://gist.github.com/{'0a' * 16},{kit.public_of('ann')}\n"
    (place / "accounts.csv").write_text(f"participant,url,key\n{row}", encoding="utf-8")
    assert [read_link.key for read_link in accounts.read_links(place, ["robin"])] == [kit.key_of("ann").public]
    (place / "accounts.csv").write_text(f"participant,url,key\n{row}{row}", encoding="utf-8")
    with pytest.raises(BadInput, match="'robin' is there twice"):
        accounts.read_links(place, ["robin"])


def claim(text: str, name: str = "ann") -> AccountClaim:
    return find_claim(text, kit.COMPETITION, kit.public_of(name), kit.key_of(name).public)


def test_a_statement_is_found_among_other_text() -> None:
    right = kit.statement("ann")
    expected = AccountClaim(kit.COMPETITION, kit.public_of("ann"), 50, "ann")
    assert claim(right) == expected
    assert claim(f"Hello!\n\n```\n{right}```\nthat is me") == expected
    assert claim(kit.statement("ben") + kit.statement("ann", competition="other") + right) == expected
    assert claim(right.replace("\n", " \n")) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no statement in it"),
        ("-----BEGIN ASSAY ACCOUNT-----\n{}\n-----END ASSAY ACCOUNT-----\n", "it is not a DSSE envelope"),
        (kit.statement("ann").replace("payload", "payl0ad", 1), "it is not canonical base64"),
        (kit.statement("ann", signer="ben"), "it is not signed by the key"),
        (kit.statement("ben"), f"the statement is about '{kit.public_of('ben')[:57]}"),
        (kit.statement("ann", competition="other"), "in 'other'; publish one about"),
        ("-----BEGIN ASSAY ACCOUNT-----\n{" + "[" * 5000 + "}\n-----END ASSAY ACCOUNT-----\n", "it is not strict JSON"),
        ("-----BEGIN ASSAY ACCOUNT-----\n{\ud800}\n-----END ASSAY ACCOUNT-----\n", "it is not strict JSON"),
    ],
)
def test_a_statement_that_is_not_right(text: str, why: str) -> None:
    with pytest.raises(BadInput) as refused:
        claim(text)
    assert why in str(refused.value)


def test_a_changed_statement_is_refused_at_every_byte() -> None:
    text = kit.statement("ann")
    line = text.splitlines()[1]
    for place in range(0, len(line), 7):
        other = "A" if line[place] != "A" else "B"
        changed = text.replace(line, line[:place] + other + line[place + 1 :])
        try:
            accepted = claim(changed)
        except BadInput:
            continue
        assert accepted == claim(text)  # only the keyid, which nobody signs, may be another


def test_a_statement_has_one_spelling() -> None:
    document = AccountClaim(kit.COMPETITION, kit.public_of("ann"), 50, "ann").document()
    loose = {**document, "subject": [{**document["subject"][0], "digest": {"sha256": "0" * 64}}]}
    for payload in (json.dumps(document).encode(), canonical(loose)):
        text = kit.statement("ann")
        line = text.splitlines()[1]
        with pytest.raises(BadInput, match="the statement is not in its canonical form"):
            claim(text.replace(line, json.dumps(sign_envelope(payload, kit.key_of("ann")))))


def test_a_hotkey_links_too() -> None:
    pytest.importorskip("bittensor_core")
    signer = keys.read(b"11" * 32, kind="sr25519")
    from assay.ledger.keys import hotkey

    name = hotkey.address(signer.public.raw)
    text = signed_block(AccountClaim(kit.COMPETITION, name, 50, "ann"), signer)
    assert find_claim(text, kit.COMPETITION, name, signer.public).account == 50
    with pytest.raises(BadInput, match="it is not signed by the key"):
        find_claim(text, kit.COMPETITION, name, kit.key_of("ann").public)


def test_too_many_statements_are_not_all_looked_at() -> None:
    with pytest.raises(BadInput):
        claim(kit.statement("ben") * 100 + kit.statement("ann"))
    assert claim(kit.statement("ben") * 99 + kit.statement("ann")).account == 50
