"""Taking part from another machine with the command line alone: register, hand in, commit, look, be invited."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import ledger_kit
from assay.kind import Kind
from assay.ledger import keys
from assay.serve.client import Client
from cli_kit import output, refused, run
from judge_kit import bubblewrap
from service_kit import Running, running

AGENT = Path(__file__).parents[2] / "examples/term-challenge/agents/hopeful"
SCHEME = '[scheme]\nname = "small"\n[score]\nkind = "tests"\n'


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    bubblewrap()
    monkeypatch.setenv("ASSAY_KEYS", str(tmp_path / "keys"))
    for name in ("me", "you"):
        keys.save(name, keys.new())
    with running(ledger_kit.ledger_folder(tmp_path / "small")) as started:
        yield started


def folder_of(service: Running) -> Path:
    return service.site.competition("small").folder


def at(service: Running, key: str = "me") -> list[str]:
    return ["--url", f"{service.address}/small/", "--key", key]


def test_an_invited_key_hands_in_and_sees_how_far_it_is(service: Running) -> None:
    assert "needs an invitation" in refused("register", *at(service))
    assert "register first" in refused("submit", *at(service), AGENT)
    code = output("invite", folder_of(service)).strip()
    assert code not in (folder_of(service) / "ledger.db").read_bytes().decode("latin-1")
    assert "You are the participant" in output("register", *at(service), "--code", code, "--name", "Mine")
    assert "was used" in refused("register", *at(service, "you"), "--code", code)
    assert "handed in nothing yet" in " ".join(output("submissions", *at(service)).split())
    answer = json.loads(output("submit", *at(service), AGENT, "--json"))
    assert answer["epoch"] == 1
    assert f"{answer['submission']}" in (folder_of(service) / "participants.csv").read_text()
    assert json.loads(output("submit", *at(service), AGENT, "--json")) == answer
    shown = output("submissions", *at(service))
    assert "received" in shown
    assert "Mine" in service.ask("GET", "/small/", headers={"Accept": "text/html"}).body.decode()


def test_registering_again_says_that_nothing_changed(service: Running) -> None:
    output("invite", folder_of(service), "--everybody", "--uses", "9")
    assert "was registered before" not in " ".join(output("register", *at(service)).split())
    printed = " ".join(output("register", *at(service)).split())
    assert "was registered before" in printed
    assert "Only the operator" not in printed
    assert "From the next settled epoch on your name is Late." in " ".join(
        output("register", *at(service), "--name", "Late").split()
    )
    assert "can change an address" in " ".join(output("register", *at(service), "--address", f"0x{'1' * 40}").split())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", ["", "v1", "v1/small", "small", "small/", "small/live.html", "small/epoch-3/participant-x.html"])
def test_the_address_of_any_page_will_do(service: Running, path: str) -> None:
    output("invite", folder_of(service), "--everybody")
    printed = " ".join(output("register", "--url", f"{service.address}/{path}", "--key", "me").split())
    assert f"The board: {service.address}/small/" in printed


def test_what_is_no_agent_or_too_large_is_refused_in_one_sentence(
    service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output("invite", folder_of(service), "--everybody")
    output("register", *at(service))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/readme.txt").write_text("no agent")
    assert "agent.toml: no such file; write name" in refused("submit", *at(service), tmp_path / "mine")
    monkeypatch.setattr(Kind, "archive_bytes", 100)  # of the kind, as the service says it: nothing larger is sent
    monkeypatch.setattr(Client, "send", None)
    assert "when it is packed, and the service takes 100; leave out what" in refused("submit", *at(service), AGENT)
    (tmp_path / "sealed").write_bytes(bytes(101))
    assert "has 101 bytes as it is, and the service takes 100; the bounty limits" in refused(
        "submit", *at(service), tmp_path / "sealed", "--sealed"
    )


def test_https_to_a_service_without_tls_says_what_to_write(service: Running) -> None:
    address = service.address.replace("http://", "https://")
    printed = " ".join(run("register", "--url", f"{address}/small", "--key", "me", code=1).stderr.split())
    assert f"if it has no TLS, write {service.address}" in printed


def test_a_name_of_the_registry_gets_a_key_by_its_invitation(service: Running) -> None:
    code = output("invite", folder_of(service), "--participant", "m1").strip()
    assert "You are the participant m1." in output("register", *at(service), "--code", code)
    assert "no participant 'nobody'" in refused("invite", folder_of(service), "--participant", "nobody")
    assert "lets in one key" in refused("invite", folder_of(service), "--participant", "m1", "--uses", "2")


def test_whoever_comes_registers_where_everybody_is_invited(service: Running) -> None:
    assert "1 key may register without a code" in " ".join(output("invite", folder_of(service), "--everybody").split())
    assert "You are the participant" in output("register", *at(service))
    assert "was used" in refused("register", *at(service, "you"))


def test_what_was_committed_to_is_handed_in_later(service: Running) -> None:
    folder = folder_of(service)
    (folder / "scheme.toml").write_text(f"{SCHEME}[submission]\nreveal = 1\nper_epoch = 2\n")
    output("register", *at(service), "--code", output("invite", folder).strip())
    assert "nobody committed to this archive before" in refused("submit", *at(service), AGENT)
    assert "Hand it in from epoch 2 on" in " ".join(output("submit", *at(service), AGENT, "--commit").split())
    assert "from epoch 2 on" in refused("submit", *at(service), AGENT)
    assert "Committed in epoch 1" in " ".join(output("submissions", *at(service)).split())
    ledger_kit.add(folder, ledger_kit.records(epoch=1))
    ledger_kit.add(folder, ledger_kit.records(epoch=2))
    assert "accepted in epoch 2" in " ".join(output("submit", *at(service), AGENT).split())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["submit", "--url", "http://127.0.0.1:1/small", "x"], "name the key that you registered"),
        (["submit", "--url", "http://127.0.0.1:1/small", "--key", "me", "a", "b"], "only what is handed in is named"),
        (["submit", "a", "b"], "name the folder, the participant and what is handed in"),
        (["submit", "a", "b", "c", "--key", "me"], "name the folder, the participant and what is handed in"),
        (["submit", "--url", "ftp://x/small", "--key", "me", "x"], "not the address of a service"),
    ],
)
def test_wrong_words_are_refused(service: Running, words: list[str], message: str) -> None:
    assert message in refused(*words)


def test_a_service_that_is_not_there_is_named(service: Running) -> None:
    printed = run("register", "--url", "http://127.0.0.1:1/small", "--key", "me", code=1).stderr
    assert "http://127.0.0.1:1 does not answer" in " ".join(printed.split())
