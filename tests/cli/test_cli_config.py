"""Options from a file and from variables: which one wins, what is refused with its line, and what `config check` finds."""

import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ledger_kit
from assay.cli.configuration import SECRETS, VARIABLES, options_of, variable_of
from assay.ledger import keys
from cli_kit import command, commands, from_preset, output, refused, run

ROOT = Path(__file__).parents[2]
INTERNAL = {"ASSAY_SERVE", "ASSAY_PACKAGE", "ASSAY_INSTRUCTION", "ASSAY_CHECK_VARIABLE", "ASSAY_ATTEMPT"}
"""Variables that Assay sets for its own processes and for agents."""


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Variables are as they were after each test: a command sets those of its file."""
    before = os.environ.copy()
    for name in [name for name in os.environ if name in VARIABLES or name.startswith("ASSAY_")]:
        del os.environ[name]
    yield
    os.environ.clear()
    os.environ.update(before)


def written(place: Path, text: str) -> Path:
    file = place / "assay.toml"
    file.write_text(text, encoding="utf-8")
    return file


def shown(*words: str | Path) -> dict[str, tuple[Any, str]]:
    """Name → value and source, as `config show --json` has them."""
    rows = json.loads(output(*words, "--json"))["values"]
    return {row["name"]: (row["value"], row["from"]) for row in rows}


def wrong(*words: str | Path) -> list[str]:
    """What `config check` finds."""
    result = run(*words, "--json", code=2)
    return list(json.loads(result.stdout)["wrong"])


def test_a_variable_overrides_the_file_and_the_file_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, '[serve]\nplace = "season"\nport = 8470\n\n[node.validator]\nkey = "val-1"\ntask = ["a", "b"]\n')
    rows = shown("--config", file, "config", "show", "serve")
    assert rows["place"] == (str(tmp_path / "season"), f"{file}:2")
    assert rows["port"] == (8470, f"{file}:3")
    assert rows["host"] == ("127.0.0.1", "default")
    os.environ["ASSAY_SERVE_PORT"] = "8471"
    os.environ["ASSAY_CONFIG"] = str(file)
    assert shown("config", "show", "serve")["port"] == (8471, "ASSAY_SERVE_PORT")
    rows = shown("config", "show", "node", "validator")
    assert rows["task"] == (["a", "b"], f"{file}:7")
    assert rows["sandbox"] == ("bubblewrap", "default")


def test_a_command_runs_with_the_arguments_of_the_file(tmp_path: Path) -> None:
    from_preset(tmp_path / "season")
    file = written(tmp_path, '[settle]\nfolder = "season"\njson = true\n')
    settled = json.loads(output("--config", file, "settle"))
    assert settled == json.loads(output("settle", tmp_path / "season", "--json"))
    other = from_preset(tmp_path / "other", "benchmark")
    assert json.loads(output("--config", file, "settle", other))["digest"] != settled["digest"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[settle]\nfoldr = 'a'\n", ":2: settle.foldr: `assay settle` has no option 'foldr'; did you mean 'folder'?"),
        ("[settle]\nfolder = 3\n", ":2: settle.folder: is 3; it must be text in quotes"),
        ("[settle]\nfolder = 'a'\njson = 'yes'\n", ":3: settle.json: is 'yes'; it must be true or false"),
        ("settle = 3\n", ":1: settle: is 3, and no table; write [settle] above its options"),
        ("[environment]\nASSAY_KEY = 'a'\n", ":2: environment.ASSAY_KEY: is no variable of Assay; did you mean 'ASSAY_KEYS'?"),
        (
            "[environment]\nASSAY_PASSPHRASE = 'a'\n",
            "is a secret, which a configuration file must not hold; write ASSAY_PASSPHRASE_FILE",
        ),
        ("[settle\n", ":1: is not TOML"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    assert message in refused("--config", file, "settle", tmp_path)
    assert any(message in line for line in wrong("--config", file, "config", "check"))


def test_a_value_out_of_range_names_its_line_or_variable(tmp_path: Path) -> None:
    file = written(tmp_path, "[serve]\nplace = 'x'\nport = 70000\n")
    assert refused("--config", file, "serve").startswith(f"{file}:3: ")
    os.environ["ASSAY_SERVE_PORT"] = "many"
    assert refused("serve", tmp_path).startswith("ASSAY_SERVE_PORT: ")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file" in refused("--config", tmp_path / "none.toml", "settle", tmp_path)


def test_a_file_in_the_working_folder_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "[serve]\nport = 9\n")
    monkeypatch.chdir(tmp_path)
    assert shown("config", "show", "serve")["port"] == (8400, "default")


def test_options_of_kinds_can_be_set_and_are_checked(tmp_path: Path) -> None:
    start = f"[run]\nfolder = '{from_preset(tmp_path / 'season')}'\nvalidator = 'elm'\n"
    assert "`assay run` has no option 'tsks'; did you mean 'tasks'?" in refused(
        "--config", written(tmp_path, f"{start}tsks = 'x'"), "run"
    )
    rows = shown("--config", written(tmp_path, f"{start}tasks = 'x'"), "config", "show", "run")
    assert rows["tasks"] == (str(tmp_path / "x"), f"{tmp_path / 'assay.toml'}:4")


def test_secrets_come_from_files_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("tell nobody\n", encoding="utf-8")
    file = written(tmp_path, '[environment]\nASSAY_KEYS = "keys"\nASSAY_PASSPHRASE_FILE = "secret"\n')
    output("--config", file, "keys", "new", "one")
    assert "ENCRYPTED" in (tmp_path / "keys" / "one.key").read_text(encoding="utf-8")
    assert os.environ["ASSAY_PASSPHRASE"] == "tell nobody"
    text = output("--config", file, "config", "show")
    assert "tell nobody" not in text
    assert re.search(r"ASSAY_PASSPHRASE +\(not shown\) +ASSAY_PASSPHRASE_FILE", text)


def test_a_secret_of_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("one\n", encoding="utf-8")
    os.environ |= {"GITHUB_TOKEN_FILE": str(tmp_path / "secret"), "ASSAY_LLM_API_KEY_FILE": str(tmp_path / "secret")}
    os.environ["GITHUB_TOKEN"] = "two"
    output("scheme", "list")
    assert (os.environ["GITHUB_TOKEN"], os.environ["ASSAY_LLM_API_KEY"]) == ("two", "one")


def test_every_variable_that_is_read_is_known() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r'"(ASSAY_[A-Z_]+)"', text))
    assert named - INTERNAL - {"ASSAY_CONFIG"} <= set(VARIABLES)
    assert set(SECRETS) <= set(VARIABLES)


def test_no_two_options_share_a_variable() -> None:
    seen = [variable_of(path, param) for path in commands() for param in options_of(command(path).params).values()]
    assert len(seen) == len(set(seen))
    assert not set(seen) & {*VARIABLES, *INTERNAL, *(f"{name}_FILE" for name in SECRETS)}


def test_a_competition_that_is_right_can_start(tmp_path: Path) -> None:
    os.environ["ASSAY_KEYS"] = str(tmp_path / "keys")
    keys.save("small-log", ledger_kit.SIGNER)
    place = ledger_kit.ledger_folder(tmp_path / "small")
    file = written(tmp_path, '[serve]\nplace = "small"\nport = 0\n')
    before = {path: path.stat().st_mtime_ns for path in place.iterdir()}
    assert output("--config", file, "config", "check") == "Nothing is wrong with: assay serve\n"
    assert {path: path.stat().st_mtime_ns for path in place.iterdir()} == before
    assert output("config", "check", "serve", place, "--port", "0") == "Nothing is wrong with: assay serve\n"


def test_what_would_stop_a_service_is_found(tmp_path: Path) -> None:
    os.environ["ASSAY_KEYS"] = str(tmp_path / "keys")
    place = ledger_kit.ledger_folder(tmp_path / "small")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.settimeout(0.1)
        port = taken.getsockname()[1]
        text = f'[serve]\nplace = "small"\nport = {port}\nproxy = ["nobody"]\n[publish]\nfolder = "small"\nto = "mainnet"\n'
        lines = wrong("--config", written(tmp_path, text), "config", "check")
    assert len([line for line in lines if "publish.toml" in line]) == 1
    assert len([line for line in lines if "'nobody' is not an address" in line]) == 1
    (place / "ledger.db").unlink()
    (place / "scheme.toml").write_text("[scheme]\n", encoding="utf-8")
    lines = wrong("config", "check", "serve", place, "--port", "0")
    assert any("ledger.db" in line for line in lines)
    assert any("scheme.toml" in line for line in lines)


def test_an_address_in_use_is_found(tmp_path: Path) -> None:
    place = from_preset(tmp_path / "season")
    with socket.create_server(("127.0.0.1", 0)) as taken:  # a stranger: it hears, and ends the connection
        threading.Thread(target=_hear, args=(taken,), daemon=True).start()
        (line,) = wrong("config", "check", "serve", place, "--port", str(taken.getsockname()[1]))
    assert "cannot be used (Address already in use)" in line


def _hear(taken: socket.socket) -> None:
    taken.accept()[0].close()


@pytest.mark.parametrize("path", [("node", "operator"), ("publish",), ("serve",), ("settle",)])
def test_options_with_several_values_are_checked(tmp_path: Path, path: tuple[str, ...]) -> None:
    place, params = from_preset(tmp_path / "season"), options_of(command(path).params)
    words = ["--port", "0"] if "port" in params else []
    words += ["--to", "10.0.0.1"] if "to" in params else []
    for name in (name for name, param in params.items() if param.multiple):
        words += [f"--{name}", "10.0.0.1", f"--{name}", "10.0.0.2"]
    result = run("config", "check", *path, place, *words, "--json", code=2 if "to" in params else 0)
    document = json.loads(result.stdout)
    assert document["checked"] == [" ".join(path)]
    assert any("so there is nowhere to publish to" in line for line in document["wrong"]) == ("to" in params)


def test_what_would_stop_an_operator_is_found(tmp_path: Path) -> None:
    os.environ["ASSAY_KEYS"] = str(tmp_path / "keys")
    place, page = from_preset(tmp_path / "season"), tmp_path / "gone" / "status.html"
    (place / "publish.toml").write_text("[targets\n", encoding="utf-8")
    text = f'[node.operator]\nplace = "season"\nport = 0\non-alarm = "nosuchprog"\nwebhook = "ftp://x"\npage = "{page}"\n'
    file = written(tmp_path, text)
    lines = wrong("--config", file, "config", "check")
    parts = (
        "ledger.toml: no such file",
        "publish.toml:1: is not TOML",
        "can be run: 'nosuchprog'",
        "--webhook is not",
        f"{page}: cannot",
    )
    assert [part for part in parts if not any(part in line for line in lines)] == []
    assert len(lines) == len(parts), lines
    (place / "publish.toml").unlink()
    written(tmp_path, '[node.operator]\nplace = "season"\nport = 0\n')
    (line,) = wrong("--config", file, "config", "check")
    assert line == refused("--config", file, "node", "operator", "--once")


def test_an_operator_needs_a_ledger_and_a_key_of_each_place(tmp_path: Path) -> None:
    os.environ["ASSAY_KEYS"] = str(tmp_path / "keys")
    for name in ("one", "two"):
        ledger_kit.ledger_folder(tmp_path / name)
    rows = "".join(f'[[competitions]]\npath = "{name}"\nshare = "0.5"\n' for name in ("one", "two"))
    (tmp_path / "subnet.toml").write_text(rows, encoding="utf-8")
    words = ("config", "check", "node", "operator", tmp_path / "subnet.toml", "--port", "0")
    assert any("subnet.ledger.toml: no such file" in line for line in wrong(*words))
    check = ("config", "check", "node", "operator", tmp_path / "one", "--port", "0")
    assert wrong(*check) == [refused("node", "operator", tmp_path / "one", "--once")]
    assert "does not say which key signs" in wrong(*check)[0]
    keys.save("small-log", ledger_kit.SIGNER)
    assert output(*check, "--key", "small-log") == "Nothing is wrong with: assay node operator\n"


def test_a_key_that_others_can_read_is_found(tmp_path: Path) -> None:
    os.environ["ASSAY_KEYS"] = str(tmp_path / "keys")
    keys.save("val-1", ledger_kit.SIGNER).chmod(0o644)
    words = ("config", "check", "node", "validator", tmp_path / "copy", "--key", "val-1", "--url")
    assert [line.partition("; ")[0] for line in wrong(*words, "http://127.0.0.1:1/a")] == [
        f"{tmp_path / 'keys' / 'val-1.key'}: can be read by others (mode 0644)"
    ]
    assert "is not the address of a service" in wrong(*words, "nowhere")[0]


def test_commands_that_are_none(tmp_path: Path) -> None:
    assert "there is no command `assay srve`; did you mean 'serve'?" in refused("config", "show", "srve")
    assert "is several commands; name one: validator" in refused("config", "show", "node")
    assert wrong("config", "check", "serve") == ["assay serve: Missing argument 'DIR|SUBNET.toml'; assay serve --help"]
    lines = wrong("--config", written(tmp_path, "[srve]\nport = 3\n"), "config", "check")
    assert lines == [f"{tmp_path / 'assay.toml'}:1: srve: is no command of Assay, and not [environment]; did you mean 'serve'?"]
