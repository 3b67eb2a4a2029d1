"""The second verifier under Node: every conformance case, and the same verdict as Assay on every change of a bundle. SPEC 6."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

import assay
import ledger_kit
from assay.errors import AssayError
from assay.exact import canonical, digest
from assay.rules.duel import Contest, Side
from assay.scheme.load import parse
from depth import depth
from verifier_kit import CONFORMANCE, ROOT, VERIFIER, Change, changes, node, run

KEY = str(ledger_kit.KEY)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of a small competition, exported, with a receipt and a participant's proof."""
    return ledger_kit.two_epochs(tmp_path_factory)


def test_every_conformance_case_passes() -> None:
    found = run("conformance", CONFORMANCE)
    assert found.returncode == 0, found.stdout[:4000] + found.stderr
    counted = re.fullmatch(r"(\d+) cases in \d+ files: (\d+) right, 0 wrong, 0 unsupported\n", found.stdout)
    assert counted
    assert counted[1] == counted[2]
    cases = sum(
        len(json.loads(path.read_text(encoding="utf-8"))["cases"])
        for path in CONFORMANCE.glob("*.json")
        if ".schema." not in path.name
    )
    assert int(counted[1]) == cases


def test_it_answers_the_runner_of_assay() -> None:
    command = f"{node()} {VERIFIER / 'bin' / 'assay-verify.js'} --cases"
    done = subprocess.run(
        [
            shutil.which("assay") or str(ROOT / ".venv/bin/assay"),
            "conformance",
            "run",
            str(CONFORMANCE / "cap.json"),
            "--with",
            command,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all pass" in done.stdout


def test_a_case_that_is_wrong_is_named(tmp_path: Path) -> None:
    cases = json.loads((CONFORMANCE / "cap.json").read_text(encoding="utf-8"))
    cases["cases"][0]["output"]["burn"] = "1/7"
    (tmp_path / "cap.json").write_text(json.dumps(cases), encoding="utf-8")
    found = run("conformance", tmp_path)
    assert found.returncode == 1
    assert f"FAILED cap {cases['cases'][0]['name']}" in found.stdout
    assert "1 wrong" in found.stdout


@pytest.mark.parametrize("epoch", [3, 4])
def test_a_bundle_is_verified_as_assay_verifies_it(two: Path, epoch: int) -> None:
    found = run(two / f"epoch-{epoch}", "--key", KEY, "--json")
    assert found.returncode == 0, found.stdout + found.stderr
    report = json.loads(found.stdout)
    verified = assay.verify(two / f"epoch-{epoch}", key=KEY)
    assert report["recomputed"]
    assert verified.recomputed
    assert [row["stage"] for row in report["stages"]] == [check.stage for check in verified.checked]


def test_an_archive_a_receipt_and_a_proof(two: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "epoch-4.tar", "w") as archive:
        archive.add(two / "epoch-4", arcname="epoch-4")
    for what in (tmp_path / "epoch-4.tar", two / "4.receipt", two / "4.proof"):
        assert run(what, "--key", KEY).returncode == 0, what
    key_file = tmp_path / "ledger.toml"
    key_file.write_text(f'origin = "x"\nkey = "{KEY}"\n', encoding="utf-8")
    assert run(two / "epoch-4", "--key", key_file, "--checkpoint", two / "3.checkpoint").returncode == 0


def test_a_difference_is_named_with_both_values(two: Path, tmp_path: Path) -> None:
    place = tmp_path / "changed"
    shutil.copytree(two / "epoch-3", place)
    settlement = json.loads((place / "settlement.json").read_text(encoding="utf-8"))
    settlement["weights"][1]["u16"] += 1
    (place / "settlement.json").write_text(json.dumps(settlement), encoding="utf-8")
    found = run(place, "--key", KEY, "--json")
    assert found.returncode == 1
    report = json.loads(found.stdout)
    now = settlement["weights"][1]["u16"]
    assert (report["stage"], report["file"], report["expected"], report["found"]) == (
        "settlement",
        "weights[1].u16",
        str(now - 1),
        str(now),
    )
    assert settlement["weights"][1]["participant"] in report["what"]


def test_wrong_commands_end_with_2(two: Path, tmp_path: Path) -> None:
    for words in ([tmp_path / "nothing"], [two / "epoch-3", "--kee", KEY], [two / "epoch-3", "--key"], ["a", "b"]):
        found = run(*words)
        assert (found.returncode, found.stdout) == (2, ""), words
        assert found.stderr.startswith("error: ")


def test_what_is_no_evidence_of_assay_is_refused_with_a_sentence(tmp_path: Path) -> None:
    for name, text in {
        "deep": "[" * 100_000,
        "list": "[]",
        "empty": "",
        "nul": "\x00",
        "fork": '{"schema":"assay.fork/1"}',
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        found = run(tmp_path / name)
        assert found.returncode == 1, name
        assert "at " not in found.stderr.split(":")[0], found.stderr


def explained(bundle: Path, participant: str) -> str:
    found = run("explain", bundle, participant, "--key", KEY)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_it_explains_the_numbers_of_the_settlement(two: Path) -> None:
    settlement = json.loads((two / "epoch-4" / "settlement.json").read_text(encoding="utf-8"))
    for row in settlement["weights"]:
        text = explained(two / "epoch-4", row["participant"])
        for value in (row["score"], row["strategy"], row["share"], str(row["u16"]), str(row["chain_u16"])):
            assert value in text, (row["participant"], value)
    assert "There is no participant" in explained(two / "epoch-4", "nobody")


def of_assay(bundle: Path, change: Change) -> tuple[bool, str]:
    """Whether Assay verifies the bundle with one file changed."""
    place = bundle / change.path
    before = place.read_bytes()
    place.write_bytes(change.data)
    try:
        assay.verify(bundle, key=KEY)
    except AssayError as error:
        return False, str(error)
    finally:
        place.write_bytes(before)
    return True, ""


@pytest.mark.parametrize("way", ["bulk", pytest.param("records", marks=pytest.mark.full)])
def test_every_changed_field_is_red_in_both_verifiers(two: Path, tmp_path: Path, way: str) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(two / "epoch-4", bundle)
    every = changes(bundle)
    assert len(every) > 1000
    step = depth(len(every) // 40, 1)
    some = every[::step] if way == "bulk" else every[step // 2 :: step]
    lines = "".join(f"{one}\n" for one in ['{"path": null}', *(change.line() for change in some)])
    done = subprocess.run(
        [node(), str(Path(__file__).parent / "changed.mjs"), str(bundle), KEY, way],
        input=lines,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    unchanged, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert unchanged["verified"], unchanged
    assert len(answers) == len(some)
    wrong = []
    for change, answer in zip(some, answers, strict=True):
        verified, why = of_assay(bundle, change)
        if verified or answer["verified"]:
            wrong.append((change.path, change.where, verified, why, answer))
    assert wrong == []


def test_it_imports_nothing_but_itself_and_node() -> None:
    for path in [*VERIFIER.glob("lib/*.js"), *VERIFIER.glob("page/*.js"), *VERIFIER.glob("bin/*.js")]:
        text = path.read_text(encoding="utf-8")
        named = re.findall(r'(?:from |import\()"([^"]+)"', text)
        allowed = re.compile(r"(\.\./|\./)[\w./-]+\.js" + (r"|node:[\w/]+" if path.parent.name == "bin" else ""))
        assert [name for name in named if not allowed.fullmatch(name)] == [], path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path


def test_the_page_is_small() -> None:
    """All there is, compressed as web servers send it: the code of hotkeys and post-quantum witnesses too."""
    every = [VERIFIER / "index.html", *VERIFIER.glob("page/*"), *VERIFIER.glob("lib/*.js"), *VERIFIER.glob("vendor/*.js")]
    assert sum(len(gzip.compress(path.read_bytes())) for path in every) <= 150_000


def loaded_first() -> list[Path]:
    """What a browser loads before anything is dropped on the page: the page, its worker, and all that they import at once."""
    found: list[Path] = []
    waiting = [VERIFIER / name for name in ("index.html", "page/style.css", "page/page.js", "page/worker.js")]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.append(path)
        if path.suffix == ".js":
            text = path.read_text(encoding="utf-8")
            waiting += [(path.parent / name).resolve() for name in re.findall(r'^import .* from "([^"]+)";$', text, re.MULTILINE)]
    return found


def test_a_first_visit_loads_little_and_the_folder_is_small() -> None:
    """In bytes as they are, without compression; code of hotkeys and the like is loaded when it is wanted."""
    first = loaded_first()
    assert VERIFIER / "lib" / "bundle.js" in first
    assert sum(path.stat().st_size for path in first) <= 200_000
    offered = [VERIFIER / "index.html", *VERIFIER.glob("page/*"), *VERIFIER.glob("lib/*.js"), *VERIFIER.glob("vendor/*.js")]
    assert sum(path.stat().st_size for path in offered) <= 400_000


def test_vendored_files_are_those_that_were_looked_at() -> None:
    pinned = json.loads((VERIFIER / "vendor" / "digests.json").read_text(encoding="utf-8"))
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (VERIFIER / "vendor").glob("*.js")}
    assert found == pinned


@pytest.mark.full
def test_vendored_files_are_made_of_the_pinned_packages() -> None:
    subprocess.run(
        ["bash", "tools/npm-ci", "verifier/vendor", "what the verifier's vendored files are made of"],
        cwd=ROOT,
        check=True,
        timeout=600,
    )
    done = subprocess.run(
        [node(), "verifier/vendor/make.mjs", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_duel_is_followed_step_by_step(tmp_path: Path) -> None:
    scheme = parse('[scheme]\nname = "small"\n[score]\nkind = "tests"\ntrials = 4\n[duel]\nmargin = "10%"\n')
    sides, tasks = (Side("ann", "first"), Side("bob", "second")), tuple(f"t{number}" for number in range(10))
    contest = Contest(scheme, 4, "v1", *sides, (3, "sha256:" + "5c" * 32), tasks, "sha256:" + "0" * 64)
    ahead = {pair: at % 5 > 0 for at, pair in enumerate(contest.along)}
    behind = {pair: at % 4 == 0 for at, pair in enumerate(contest.along)}
    duel = contest.fought(ahead, behind)
    file = tmp_path / "duel.json"

    def checked(document: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        file.write_bytes(canonical(document))
        return run(file)

    good = checked(duel)
    assert good.returncode == 0, good.stderr
    assert f"ann is better than bob: each of {len(duel['path'])} steps of 40 was computed again" in good.stdout
    assert "–  evidence" in good.stdout
    for change, why in (
        ({"winner": "king"}, "winner differs"),
        ({"path": [duel["path"][0] | {"king_wealth": "1"}, *duel["path"][1:]]}, r"path\[0\] differs"),
        ({"path": [*duel["path"][1::-1], *duel["path"][2:]]}, "the receipt gives another order"),
        ({"path": duel["path"][:-1]}, "a pair is missing in the path"),
        ({"alpha": "0.5"}, r"path\[[0-9]+\] differs"),
        ({"winner": None, "by": None}, "the duel is not decided yet"),
    ):
        changed = {name: value for name, value in (duel | change).items() if name != "digest"}
        found = checked(changed | {"digest": digest(changed)})
        assert found.returncode == 1
        assert re.search(why, found.stderr), found.stderr
    assert "the digest is of another document" in checked(duel | {"epoch": 5}).stderr
    assert checked(contest.fought(behind, ahead)).stdout.startswith("✓  duel        bob stays before ann")
