"""Packages of somebody else: examples/latency built as a wheel, installed beside Assay's, and used as a stranger would use it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "latency"
UV = Path(sys.executable).with_name("uv")
SCHEME = '[scheme]\nname = "services"\n[score]\nkind = "latency"\nrounds = 3\n[consensus]\nmin_validators = 1\n'


def command(*words: object, folder: Path, code: int | None = 0) -> str:
    """What a command prints, both streams; fails if it ends with another code."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "ASSAY_KEYS": str(folder / "keys"),
        "COLUMNS": "500",
        "LC_ALL": "C.UTF-8",
    }
    env |= {name: os.environ[name] for name in ("UV_CACHE_DIR",) if name in os.environ}
    env |= {"UV_CACHE_DIR": env.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv"))}
    done = subprocess.run([str(word) for word in words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    assert code is None or done.returncode == code, printed
    return printed


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheels of Assay and of the package; their dependencies are those of this one."""
    if not UV.exists():
        pytest.skip("uv is not beside this Python: tools/setup makes the environment with it")
    place = tmp_path_factory.mktemp("plugin")
    source = Path(shutil.copytree(PACKAGE, place / "source"))
    for folder in (source, ROOT):
        command(UV, "build", "--wheel", "--offline", "--quiet", "-o", place / "dist", folder, folder=place)
    command(UV, "venv", "--quiet", "--offline", "--python", sys.executable, place / "venv", folder=place)
    python = place / "venv" / "bin" / "python"
    wheels = sorted((place / "dist").glob("*.whl"))
    assert [wheel.name.split("-")[0] for wheel in wheels] == ["assay", "assay_latency"]
    command(UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, *wheels, folder=place)
    site = command(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=place).strip()
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert site in command(python, "-c", "import assay; print(assay.__file__)", folder=place)
    return place / "venv" / "bin" / "assay"


@pytest.fixture
def services() -> Iterator[str]:
    """A service that answers at once, and, on /slow, after a while."""

    class PingHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(0.3 if self.path == "/slow" else 0)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"here")

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), PingHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def competition(place: Path, services: str, validator: str) -> Path:
    folder = place / "services"
    folder.mkdir()
    (folder / "scheme.toml").write_text(SCHEME)
    who = ("quick", "slow")
    rows = "".join(f"{name},{at + 1},{services}/{name},2026-01-01T00:00:00Z\n" for at, name in enumerate(who))
    (folder / "participants.csv").write_text(f"key,uid,submission,submitted_at\n{rows}")
    (folder / "validators.csv").write_text(f"key,stake\n{validator},1\n")
    return folder


@pytest.mark.slow
def test_a_package_adds_a_kind_and_a_publisher(installed: Path, services: str, tmp_path: Path) -> None:
    def assay(*words: object, code: int = 0, program: Path = installed) -> str:
        return command(program, *words, folder=tmp_path, code=code)

    assay("keys", "new", "val-1")
    assay("keys", "new", "log")
    key = json.loads(assay("keys", "show", "val-1", "--json"))["key"]
    folder = competition(tmp_path, services, key)

    shapes = json.loads(assay("scheme", "schema"))["properties"]["score"]["oneOf"]
    assert [shape["properties"]["kind"]["const"] for shape in shapes if "properties" in shape] == ["latency"]
    assert "--timeout" in assay("run", folder, "--help")
    assert "--timeout" not in assay("run", "--help")
    assert "No such option: --timout" in assay("run", folder, "--validator", key, "--timout", 9, code=2)
    assert "says nothing to the judge of the kind 'latency'" in assay("run", folder, "--validator", key, "--task", "t", code=2)
    assert "there is no field 'rouds' here; did you mean 'rounds'?" in _wrong(assay, folder, "rounds", "rouds")

    assay("ledger", "init", folder, "--origin", "example.org/services", "--key", "log")
    printed = assay("run", folder, "--sign", "val-1", "--timeout", 60)
    assert "6 rounds judged (6 answered)." in printed
    assert re.search(r"1 +quick .*\n2 +slow ", printed)
    assay("settle", folder)
    assert re.search(r"answered after [0-9]+ µs", assay("explain", folder, "quick"))

    (folder / "publish.toml").write_text('[targets.here]\nkind = "file"\npath = "scores.json"\n')
    assay("publish", folder, "--to", "here", "--yes")
    assert list(json.loads((folder / "scores.json").read_text())["scores"]) == ["quick", "slow"]
    assert "here" in assay("publish", folder, "--to", "here")

    assay("export", "epoch", folder, "1", "-o", "epoch-1")
    assert "computed again to the bit" in assay("verify", "epoch-1")
    assert "answered after" in assay("explain", "epoch-1", "slow")
    _without_the_package(assay, Path(sys.executable).with_name("assay"), folder)


def _wrong(assay: object, folder: Path, right: str, wrong: str) -> str:
    """What `assay scheme check` says while a word of the scheme is another."""
    assert callable(assay)
    (folder / "scheme.toml").write_text(SCHEME.replace(right, wrong))
    printed = str(assay("scheme", "check", folder, code=2))
    (folder / "scheme.toml").write_text(SCHEME)
    return printed


def _without_the_package(assay: object, program: Path, folder: Path) -> None:
    """Whoever has Assay alone is told in one line what is missing: nothing is wrong, and nothing can be said."""
    assert callable(assay)
    printed = assay("verify", "epoch-1", code=2, program=program)
    assert printed == (
        "error: epoch-1/inputs.json: scheme.score.kind: the competition is of the kind 'latency', which no package here has: its "
        "settlement cannot be computed again; install the package whose entry point in assay.kinds is called so\n"
    )
    printed = assay("settle", folder, code=2, program=program)
    assert "score.kind: is missing or unknown; use one of given, points, rubric, tests, workflow" in printed


def test_the_package_is_small() -> None:
    source = PACKAGE / "src" / "assay_latency"
    lines = {path.name: len(path.read_text().splitlines()) for path in source.glob("*.py")}
    assert lines["__init__.py"] + lines["judge.py"] <= 150, lines
    assert lines["publisher.py"] <= 50


def test_the_pages_show_the_package_itself() -> None:
    source, page = PACKAGE / "src" / "assay_latency", (ROOT / "docs" / "judging.md").read_text(encoding="utf-8")
    for name in ("__init__.py", "judge.py"):
        assert f"```python\n{(source / name).read_text().rstrip()}\n```\n" in page
    entries = re.search(r"\[project\.entry-points.*?(?=\n\n\[tool)", (PACKAGE / "pyproject.toml").read_text(), re.DOTALL)
    assert entries is not None
    assert f"```toml\n{entries[0]}\n```\n" in page
    publishing = (ROOT / "docs" / "publishing.md").read_text(encoding="utf-8")
    assert f"```python\n{(source / 'publisher.py').read_text().rstrip()}\n```\n" in publishing
