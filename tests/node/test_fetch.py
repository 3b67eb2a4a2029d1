"""`assay pull`: a validator's folder becomes what the operator's is for judging, and nothing unchecked ever gets into it."""

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import judge_kit
import ledger_kit
import node_kit
from assay.errors import BadInput
from assay.folder.files import write_text
from assay.judge import tree
from assay.judge.rubric.solution import read_solution
from assay.judge.terminal.competition import submit_agent
from assay.judge.workflow.planner import load_planner
from assay.kind import find
from assay.ledger import intake
from assay.node import fetch
from assay.serve.client import Client
from cli_kit import output, refused, run
from ledger_kit import V1, VALIDATORS
from node_kit import KEY, RIGHT, WRONG
from service_kit import Running, listing, running

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setenv("ASSAY_KEYS", node_kit.keys_in(tmp_path / "keys"))
    season = lambda place: node_kit.operator(place, tasks=("t1", "t2"), agents={"m1": RIGHT, "m2": WRONG})  # noqa: E731
    with running(ledger_kit.once(tmp_path / "desk" / "small", ("fetch",), season)) as started:
        yield started


def desk(service: Running) -> Path:
    return service.site.competition("small").folder


def address(service: Running) -> tuple[str, ...]:
    return "--url", f"{service.address}/small", "--key", KEY


def pulled(service: Running, folder: Path) -> Any:
    return json.loads(output("pull", folder, *address(service), "--json"))


def test_a_pull_brings_all_that_a_run_needs_and_then_nothing(service: Running, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", desk(service)
    first = " ".join(output("pull", mine, *address(service)).split())
    assert "Epoch 1 is open. 2 submissions count." in first
    assert "2 tasks, the submissions of m1 and m2" in first
    assert f"assay run {mine} --validator {V1} --epoch 1" in first
    for name in ("scheme.toml", "participants.csv", "validators.csv", "tasks.txt"):
        assert (mine / name).read_bytes() == (theirs / name).read_bytes(), name
    for name in ("tasks", "agents"):
        assert tree.digest(mine / name) == tree.digest(theirs / name), name
    assert "database" not in (mine / "ledger.toml").read_text()
    assert [path.name for path in (mine / "node").iterdir() if not path.name.startswith(".")] == ["pulled.json"]
    before = listing(mine)
    assert "Nothing is new." in output("pull", mine, *address(service))
    assert listing(mine) == before


@pytest.mark.full
def test_a_run_by_hand_stands_between_a_pull_and_a_push(service: Running, tmp_path: Path) -> None:
    judge_kit.bubblewrap()
    mine = tmp_path / "mine"
    pulled(service, mine)
    done = run("run", mine, "--validator", "val-1", "--epoch", "1", "--quiet")
    assert "4 trials judged (2 fail, 2 pass)." in done.stdout
    assert "It counts once it is signed and sent" in done.stdout
    assert json.loads(output("push", mine, *address(service), "--json"))["new"] == 4
    assert len(node_kit.stored(desk(service))) == 4


def test_only_what_is_new_is_fetched_and_what_was_damaged_here(service: Running, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", desk(service)
    pulled(service, mine)
    node_kit.submit(theirs, "m2", RIGHT)
    again = pulled(service, mine)
    assert (again["tables"], again["tasks"], again["submissions"]) == (["participants.csv"], 0, ["m2"])
    (mine / "tasks" / "t2" / "instruction.md").write_text("Something else.\n")
    (mine / "node" / "pulled.json").unlink()
    (agent,) = [path for path in (mine / "agents").iterdir() if "hello" in (path / "run.sh").read_text()][:1]
    (agent / "run.sh").write_text("echo changed\n")
    mended = pulled(service, mine)
    assert (mended["tasks"], len(mended["submissions"]), mended["absent"]) == (2, 1, {})
    assert tree.digest(mine / "tasks") == tree.digest(theirs / "tasks")
    (mine / "tasks").rename(tmp_path / "gone")  # as a pull leaves it that is killed between two renames
    assert pulled(service, mine)["tasks"] == 2


def test_a_built_in_agent_needs_no_files_and_one_without_files_is_named(service: Running, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", desk(service)
    submit_agent(theirs, "m1", "oracle")
    tree.remove(theirs / "agents")
    first = pulled(service, mine)
    assert (first["submissions"], list(first["absent"])) == ([], ["m2"])
    assert "are not here" in first["absent"]["m2"]
    (theirs / "agents").mkdir()
    digest = node_kit.submit(theirs, "m1", "echo damaged\n")
    (agent,) = (theirs / "agents").iterdir()
    (agent / "run.sh").write_text("echo other\n")
    with Client(f"{service.address}/small", VALIDATORS[V1]) as client:
        damaged = fetch.pull(client, mine, VALIDATORS[V1].public, pauses=())
    assert (sorted(damaged.absent), digest in damaged.absent["m1"]) == (["m1", "m2"], False)
    assert "is not what" in damaged.absent["m1"]


def test_a_download_goes_on_where_it_broke_off(service: Running, tmp_path: Path) -> None:
    task_set = pulled(service, tmp_path / "mine")["tasks"] and fetch.task_set_of(tmp_path / "mine")
    target, path = tmp_path / "set.tar", f"tasks/{task_set}/content"
    part, note = tmp_path / "set.tar.part", tmp_path / "set.tar.etag"

    def status(code: int) -> int:
        text = service.ask("GET", "/metrics").body.decode()
        mark = f'route="/v1/{{segment}}/tasks/{{digest}}/content",status="{code}"}} '
        return int(float(text.partition(mark)[2].split("\n")[0] or 0))

    with Client(f"{service.address}/small", VALIDATORS[V1]) as client:
        tag = client.fetch(path, target)
        whole = target.read_bytes()
        assert (part.exists(), note.exists()) == (False, False)
        for size, left, code in ((len(whole) // 2, tag, 206), (len(whole), tag, 416), (len(whole) // 2, "other", 200)):
            before = status(code)
            part.write_bytes(whole[:size] if left == tag else b"x" * size)
            note.write_text(f'"{left}"')
            assert client.fetch(path, target) == tag
            assert (target.read_bytes() == whole, status(code) - before) == (True, 1), code
        part.write_bytes(b"")
        with pytest.raises(BadInput, match="there is no task set"):
            client.fetch(f"tasks/sha256:{'0' * 64}/content", target)


def test_what_is_not_as_its_digest_says_is_not_put_in_place(service: Running, tmp_path: Path) -> None:
    mine, cache = tmp_path / "mine", desk(service) / ".served"
    pulled(service, tmp_path / "other")  # so that the archives are made
    before = {path: path.read_bytes() for path in cache.iterdir()}
    for path, data in before.items():
        path.write_bytes(data.replace(b"hello", b"hallo"))
    assert "sent another file than it names" in refused("pull", mine, *address(service), code=1)
    assert not (mine / "tasks").exists()
    assert not (mine / "scheme.toml").exists()
    for path, data in before.items():
        if path.name.startswith("tasks-"):
            path.write_bytes(data)
    document = pulled(service, mine)
    assert (document["submissions"], list(document["absent"])) == (["m2"], ["m1"])
    assert "its digest is" in document["absent"]["m1"]
    assert len(list((mine / "agents").iterdir())) == 1


def test_other_folders_and_strangers_are_refused(service: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    assert "has the competition's ledger" in refused("pull", desk(service), *address(service))
    mine.mkdir()
    (mine / "scheme.toml").write_text((desk(service) / "scheme.toml").read_text().replace("small", "large"))
    assert "is of the competition 'large'" in refused("pull", mine, *address(service))
    (mine / "scheme.toml").unlink()
    stranger = tmp_path / "keys" / "stranger.key"
    stranger.write_bytes(b"66" * 32)
    stranger.chmod(0o600)
    assert "is not the key of a validator" in refused("pull", mine, *address(service)[:3], "stranger")
    monkeypatch.setattr(fetch, "digest", lambda _: "sha256:0")
    assert "other rules than those that it names" in refused("pull", mine, *address(service), code=1)
    assert not (mine / "participants.csv").exists()


def test_the_registry_has_what_the_ledger_knows(service: Running, tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", desk(service)
    file = theirs / "participants.csv"
    submission = file.read_text().splitlines()[1].split(",")[2]
    write_text(file, "key,uid\nm1,1\nm2,2\n")
    assert pulled(service, mine)["submissions"] == ["m1", "m2"]
    assert submission in (mine / "participants.csv").read_text()
    scheme = theirs / "scheme.toml"
    scheme.write_text(scheme.read_text() + "assign = 1\n")
    (theirs / "randomness.csv").write_text("".join(f"epoch,hex\n1,{'ab' * 32}\n2,{'cd' * 32}\n"))
    pulled(service, mine)
    assert "accepted_epoch" not in (mine / "participants.csv").read_text(), "it is the open epoch's"
    records = ledger_kit.records(epoch=1, validators=[V1], participant="m1", submission=submission)
    with ledger_kit.opened(theirs) as ledger:
        for batch in ledger_kit.batches(theirs, [row for row in records if row["participant"] == "m1"][:2]):
            intake.accept(ledger.store, batch, intake.intake_rules(theirs))
    node_kit.settle(theirs, 1)
    pulled(service, mine)
    rows = [line.split(",") for line in (mine / "participants.csv").read_text().splitlines()]
    assert dict(zip(rows[0], rows[1], strict=True))["accepted_epoch"] == "1"
    (theirs / "randomness.csv").unlink()
    write_text(scheme, scheme.read_text().replace("assign = 1\n", ""))
    assert "randomness.csv" in pulled(service, mine)["tables"]
    assert not (mine / "randomness.csv").exists()


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", data: bytes = b"") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(data)
    return info, data


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([entry("../out")], "has an entry '../out'"),
        ([entry("/out")], "has an entry '/out'"),
        ([entry("a/../../out")], "has an entry"),
        ([entry("a", tarfile.SYMTYPE, "../out")], "neither a file"),
        ([entry("a", tarfile.SYMTYPE, "/etc")], "neither a file"),
        ([entry("a", tarfile.LNKTYPE, "/etc/passwd")], "neither a file"),
        ([entry("a", tarfile.CHRTYPE)], "neither a file"),
        ([entry("a", tarfile.FIFOTYPE)], "neither a file"),
        ([entry("a", data=b"1"), entry("a", data=b"2")], "twice"),
        ([entry("d", tarfile.DIRTYPE), entry("a", tarfile.SYMTYPE, "d"), entry("a/b", tarfile.SYMTYPE, "x")], "twice"),
    ],
)
def test_a_hostile_archive_writes_nothing_outside(
    tmp_path: Path, entries: list[tuple[tarfile.TarInfo, bytes]], message: str
) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    with pytest.raises(BadInput, match=message):
        fetch._unpack(tmp_path / "a.tar", tmp_path / "in")
    (tmp_path / "a.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(BadInput, match="cannot be read"):
        fetch._unpack(tmp_path / "a.tar", tmp_path / "again")
    assert not (tmp_path / "out").exists()


def test_two_do_not_work_in_one_folder(service: Running, tmp_path: Path) -> None:
    from assay.node import working

    (tmp_path / "mine").mkdir()
    with working(tmp_path / "mine", V1):
        assert (
            "another pull, push or node works" in run("pull", tmp_path / "mine", *address(service), code=1, columns=10_000).stderr
        )


@pytest.mark.parametrize("name", ["rubric", "tests", "workflow"])
def test_each_kind_puts_a_submission_in_its_place(tmp_path: Path, name: str) -> None:
    kind, source, place = find(name), tmp_path / "source", tmp_path / "place"
    place.mkdir()
    if name == "rubric":
        source.mkdir()
        (tmp_path / "solution.md").write_text("An answer.\n")
        solution = read_solution(tmp_path / "solution.md")
        digest, file = solution.digest, source / f"{solution.digest[7:]}.json"
        file.write_bytes(solution.data)
    elif name == "tests":
        digest, file = judge_kit.make_agent(source, RIGHT).digest, source / "run.sh"
    else:
        shutil.copytree(EXAMPLES / "cswon" / "planners" / "clove", source)
        digest, file = load_planner(source).digest, source / "plan.py"
    assert not kind.has(place, digest)
    with pytest.raises(BadInput):
        kind.put(place, f"sha256:{'0' * 64}", source)
    kind.put(place, digest, source)
    assert kind.has(place, digest)
    file.write_bytes(file.read_bytes().replace(b"e", b"3"))
    with pytest.raises(BadInput):
        kind.put(place, digest, source)
    with pytest.raises(BadInput, match="cannot be fetched"):
        find("points").put(place, digest, source)
