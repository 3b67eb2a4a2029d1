"""What is deployed: Assay accepts each command line in compose, units and image, with the files that stand beside them."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
import yaml

from assay.cli import app
from assay.cli.config import parsed
from assay.cli.configuration import SECRETS, VARIABLES
from assay.node import status, working
from cli_kit import run

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
OURS = {name: service for name, service in COMPOSE["services"].items() if name != "database"}
CONFIGS = {
    "/etc/assay/assay.toml": "assay.toml",
    "/etc/assay/validator.toml": "validator.toml",
    "/etc/assay/%i.toml": "validator.toml",
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "ASSAY_CONFIG"):
        monkeypatch.setenv(name, "")


def accepted(words: list[str], config: str = "") -> Any:
    """The context of a command line; the repository has the file that its configuration begins as. Raises BadParameter."""
    if words[0] == "--config":
        config, words = words[1], words[2:]
    root: Any = typer.main.get_command(app)
    start = ["--config", str(DEPLOY / CONFIGS[config])] if config else []
    context = root.make_context("assay", [*start, *words])
    members, path = root.commands, list[str]()
    for word in words:
        path.append(word)
        members = getattr(members[word], "commands", None)
        if members is None:
            break
    return parsed(context, path, words[len(path) :])


def unit(file: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(file.read_text(encoding="utf-8").replace("\\\n", ""))
    return parser["Service"]


@pytest.mark.parametrize("name", sorted(OURS))
def test_compose_starts_commands_that_there_are(name: str) -> None:
    accepted(OURS[name]["command"])
    probe = OURS[name]["healthcheck"]["test"]
    assert probe[:3] == ["CMD", "python", "-c"]
    compile(probe[3], "<probe>", "exec")
    assert name != "operator" or "/healthz" in probe[3]


def test_compose_asks_whether_a_validator_works_and_not_whether_an_alarm_stands(tmp_path: Path) -> None:
    asked = OURS["validator-1"]["healthcheck"]["test"][3].replace("/var/lib/assay/copy", str(tmp_path))

    def exit_code() -> int:
        return subprocess.run([sys.executable, "-c", asked], check=False).returncode

    assert exit_code() == 1, "no node works there"
    with working(tmp_path, "v1"):
        status.note(tmp_path, missing=["m1 t2 1: it errs"])
        assert exit_code() == 0
    assert exit_code() == 1


def test_compose_has_secrets_as_files_and_listens_on_loopback() -> None:
    for name, service in OURS.items():
        assert not set(service["environment"]) & {*SECRETS, "PGPASSWORD"}
        for variable, path in service["environment"].items():
            assert path.removeprefix("/run/secrets/") in service["secrets"], (name, variable)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert service["cap_drop"] == ["ALL"]
    assert set(COMPOSE["secrets"]) == {secret for service in COMPOSE["services"].values() for secret in service["secrets"]}
    assert {"operator", "validator-1", "validator-2"} == set(OURS)


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_a_unit_starts_commands_that_there_are(file: Path) -> None:
    service = unit(file)
    config = dict(word.split("=", 1) for word in [service["Environment"]]).get("ASSAY_CONFIG", "")
    for line in filter(None, (service.get("ExecStartPre"), service["ExecStart"])):
        program, *words = shlex.split(line.removeprefix("-"))
        assert program == "/opt/assay/bin/assay"
        accepted(words, config)


@pytest.mark.parametrize("name", ["assay-operator", "assay-validator@"])
def test_a_node_is_told_once_to_stop_and_starts_while_a_database_is_away(name: str) -> None:
    (file,) = (file for file in UNITS if file.stem == name)
    service = unit(file)
    assert service["KillMode"] == "mixed"
    assert service["ExecStartPre"].startswith("-"), "a check that fails does not keep the node from telling somebody"


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.stem)
def test_systemd_finds_nothing_wrong(file: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there")
    copy = tmp_path / file.name
    copy.write_text(file.read_text(encoding="utf-8").replace("/opt/assay/bin/assay", "/bin/true"), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert [line for line in (done.stdout + done.stderr).splitlines() if file.stem in line] == []


@pytest.mark.parametrize("name", ["assay.toml", "validator.toml"])
def test_the_files_to_begin_with_are_read_whole(name: str, tmp_path: Path) -> None:
    """What is wrong is only that nothing is there yet: no name and no type in them is refused."""
    text = (DEPLOY / name).read_text(encoding="utf-8").replace("/var/lib/assay", str(tmp_path))
    (tmp_path / name).write_text(
        re.sub("^# (?=ASSAY_[A-Z_]+ = )", "", text, flags=re.MULTILINE).replace("/etc/assay", str(tmp_path))
    )
    (tmp_path / "passphrase").write_text("x")
    (tmp_path / "model-key").write_text("x")
    done = run("--config", tmp_path / name, "config", "check", columns=10_000, code=2)
    assert done.stderr.count("error: ") >= 1
    assert all("no such file" in line or "set ASSAY_SCRATCH" in line for line in done.stderr.splitlines()), done.stderr
    assert tomllib.loads(text)["environment"]


def _steps() -> Iterator[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def test_the_image_runs_as_somebody_else_from_a_base_with_a_digest() -> None:
    steps = list(_steps())
    (base,) = [rest for word, rest in steps if word == "ARG" and rest.startswith("BASE=")]
    assert base.removeprefix("BASE=") in (DEPLOY / "enclave" / "Dockerfile").read_text(encoding="utf-8")
    assert [rest for word, rest in steps if word == "USER"] == ["assay"]
    last = [rest for word, rest in steps if word in ("ENTRYPOINT", "CMD")]
    assert last == ['["tini", "--", "assay"]', '["--help"]']
    (extras,) = [rest for word, rest in steps if word == "ARG" and rest.startswith("EXTRAS=")]
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras.partition("=")[2].strip('"').split()) == set(known) - {"all", "inspect", "tee", "workflow"}
    assert any("bubblewrap" in rest and "tini" in rest for word, rest in steps if word == "RUN")


def test_what_the_image_copies_is_sent_to_the_builder() -> None:
    sent = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for word, rest in _steps():
        if word == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert f"!{source}" in sent
                assert (ROOT / source).exists()


def test_a_command_line_that_is_wrong_is_refused() -> None:
    with pytest.raises(Exception, match="No such option: --prot"):
        accepted(["node", "operator", "x", "--prot", "3"])
    with pytest.raises(typer.BadParameter):
        accepted(["node", "validator"])
