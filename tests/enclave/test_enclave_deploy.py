"""What is deployed: images by digest, packages by hash, and the compose hash that dstack would log."""

import json
import re
import tomllib
from hashlib import sha256
from pathlib import Path

import dstack_sdk
import pytest

from assay.enclave import dstack
from assay.errors import BadInput
from cli_kit import output, refused

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "enclave"
COMPOSE = (DEPLOY / "docker-compose.yml").read_text(encoding="utf-8")
FILLED = COMPOSE.replace("0" * 64, "ab" * 32)


def test_every_image_is_named_by_its_digest() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    bases = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", bases[0])
    assert len(dstack.check_images(FILLED)) == 1


def test_every_package_that_builds_is_named_by_its_hash() -> None:
    text = (DEPLOY / "build.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert {row.split("==")[0] for row in rows} >= {"uv", "hatchling"}
    for row in rows:
        assert re.match(r"[a-z0-9-]+==[0-9.]+ ", row)
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", row)
    version = re.search(r"^UV_VERSION=(\S+)", (ROOT / "tools" / "setup").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    assert f"uv=={version[1]} " in text


def test_every_package_that_is_installed_has_a_wheel_and_a_hash_in_the_lock() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    known = {package["name"]: package for package in lock["package"]}
    wanted = {"assay"} | {
        dependency["name"] for extra in ("llm", "tee") for dependency in known["assay"]["optional-dependencies"][extra]
    }
    seen: set[str] = set()
    while wanted:
        name = wanted.pop()
        seen.add(name)
        wanted |= {dependency["name"] for dependency in known[name].get("dependencies", [])} - seen
    assert {"dcap-qvl", "dstack-sdk", "openai", "cryptography"} <= seen
    for name in seen - {"assay"}:
        assert known[name]["wheels"], name
        assert all(wheel["hash"].startswith("sha256:") for wheel in known[name]["wheels"])


def test_the_compose_hash_is_the_one_that_dstacks_sdk_computes(tmp_path: Path) -> None:
    (tmp_path / "docker-compose.yml").write_text(FILLED, encoding="utf-8")
    file = tmp_path / "app-compose.json"
    printed = output("enclave", "compose-hash", tmp_path / "docker-compose.yml", "-o", file).strip()
    content = json.loads(file.read_text(encoding="utf-8"))
    assert printed == sha256(file.read_bytes()).hexdigest() == dstack_sdk.get_compose_hash(dict(content))
    assert output("enclave", "compose-hash", file).strip() == printed
    assert content["docker_compose_file"] == FILLED
    assert content["allowed_envs"] == ["ASSAY_LLM_API_KEY"]
    assert content["name"] == "assay-enclave"
    other = output("enclave", "compose-hash", tmp_path / "docker-compose.yml", "--name", "other").strip()
    assert other != printed


def test_another_spelling_of_the_same_content_is_another_hash(tmp_path: Path) -> None:
    compose = dstack.app_compose(FILLED, "assay-enclave")
    spaced = tmp_path / "app-compose.json"
    spaced.write_text(json.dumps(json.loads(compose), indent=2), encoding="utf-8")
    assert dstack.compose_hash(dstack.read_compose(spaced)) != dstack.compose_hash(compose)


def test_the_place_to_fill_is_refused() -> None:
    message = refused("enclave", "compose-hash", DEPLOY / "docker-compose.yml")
    assert "is a placeholder; put the digest of the image that you built there" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("services:\n  a:\n    image: python:3.11\n", "is not pinned"),
        ("services:\n  a:\n    image: ${IMAGE}\n", "is not pinned"),
        (f"services:\n  a:\n    image: python@sha256:{'ab' * 31}\n", "is not pinned"),
        (f"services:\n  a:\n    image: python@sha256:{'ab' * 32}\n  b:\n    image: other\n", "is not pinned"),
        (f"services:\n  a:\n    image: python@sha256:{'ab' * 32}\n  b: {{image: other}}\n", "in the middle of a line"),
        ("services:\n  a: {image: other}\n", "in the middle of a line"),
        ("services:\n  a:\n    build: .\n", "builds an image"),
        ("services: {}\n", "names no image"),
        ("", "names no image"),
    ],
)
def test_images_that_are_not_pinned_are_refused(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "docker-compose.yml"
    file.write_text(text, encoding="utf-8")
    assert words in refused("enclave", "compose-hash", file)
    app = tmp_path / "app-compose.json"
    app.write_text(json.dumps({"docker_compose_file": text}), encoding="utf-8")
    assert words in refused("enclave", "compose-hash", app)


def test_quotes_and_comments_beside_an_image_are_read() -> None:
    pinned = f"python@sha256:{'ab' * 32}"
    for line in (f'image: "{pinned}"', f"image: '{pinned}'  # the base", f"- image: {pinned}", f'"image": {pinned}'):
        assert dstack.check_images(f"services:\n  {line}\n") == [pinned]


def test_files_that_are_none(tmp_path: Path) -> None:
    for content in ("{", "{}", '{"docker_compose_file": 3}'):
        (tmp_path / "a.json").write_text(content, encoding="utf-8")
        with pytest.raises(BadInput):
            dstack.read_compose(tmp_path / "a.json")


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "dstack_sdk.get_compose_hash", None)
    with pytest.raises(BadInput, match=r"pip install 'assay\[tee\]'"):
        dstack.app_compose(FILLED, "x")
