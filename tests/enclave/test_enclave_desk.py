"""The desk: what the enclave takes, what it turns away and by which code, and that the disk has it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import seal_kit as kit
from assay.enclave import sealing
from assay.enclave.messages import Rejected, RejectionCode
from assay.enclave.sealing import OpenedSolution, SealedFile
from assay.enclave.service.intake import Deadlines, Intake, sealed_limit
from assay.enclave.service.state import TAKEN_STATEMENT, EnclaveState, locked
from assay.errors import BadInput
from assay.exact import canonical
from assay.judge.rubric.solution import Solution
from assay.scheme.bounty import read_bounty

BEFORE = datetime(2029, 12, 31, 23, 59, 59, tzinfo=UTC)
BETWEEN = datetime(2030, 1, 1, 12, tzinfo=UTC)
AFTER = datetime(2030, 1, 2, 0, 0, 0, 1, tzinfo=UTC)
SECRET_TEXT = "the secret of sorting"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return kit.bounty_folder(tmp_path / "bounty")


def opened(place: Path, check: Callable[[OpenedSolution], None] = lambda unsealed: None) -> Intake:
    """The desk of a folder, as after a restart."""
    bounty = read_bounty(place)
    identity = kit.identity(bounty)
    return Intake(place, bounty, identity, EnclaveState.load(place, identity), Deadlines.of(bounty), check)


def turned_away(code: RejectionCode, act: Callable[[], object]) -> Rejected:
    with pytest.raises(Rejected) as caught:
        act()
    assert caught.value.code == code
    assert SECRET_TEXT not in str(caught.value)
    return caught.value


def hand(desk: Intake, participant: str, what: Solution) -> tuple[bytes, SealedFile]:
    signed, sealed = kit.handed(desk.bounty, participant, what, desk.identity.seal.public)
    return signed.envelope, sealed


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted((place / "enclave").rglob("*")) if path.is_file()}


def test_a_commitment_and_then_the_solution_are_taken(place: Path) -> None:
    desk = opened(place)
    envelope, sealed = hand(desk, kit.P1, kit.solution(SECRET_TEXT))
    taken = TAKEN_STATEMENT.read(desk.commit(envelope, BEFORE))
    assert taken.is_by(desk.identity.signer.public)
    assert taken.predicate == {
        "what": "commitment",
        "bounty": desk.bounty.digest,
        "participant": kit.P1,
        "at": "2029-12-31T23:59:59Z",
    }
    received = TAKEN_STATEMENT.read(desk.submit(sealed.file, BETWEEN))
    assert (received.predicate["what"], received.predicate["at"]) == ("submission", "2030-01-01T12:00:00Z")
    again = opened(place)
    assert again.state.commitments == desk.state.commitments
    assert again.state.submissions == desk.state.submissions
    (unsealed,) = again.opened.values()
    assert unsealed.solution == kit.solution(SECRET_TEXT)
    assert not any(SECRET_TEXT.encode() in data or unsealed.salt.hex().encode() in data for data in files(place).values())


def test_the_same_once_more_is_answered_as_before_even_late(place: Path) -> None:
    desk = opened(place)
    envelope, sealed = hand(desk, kit.P1, kit.solution())
    first = desk.commit(envelope, BEFORE), desk.submit(sealed.file, BETWEEN)
    kept = files(place)
    for again in (desk, opened(place)):
        assert (again.commit(envelope, AFTER), again.submit(sealed.file, AFTER)) == first
    assert files(place) == kept


def test_what_comes_late_is_turned_away(place: Path) -> None:
    desk = opened(place)
    envelope, sealed = hand(desk, kit.P1, kit.solution(SECRET_TEXT))
    until = desk.times
    error = turned_away(RejectionCode.LATE, lambda: desk.commit(envelope, until.commitments + timedelta(microseconds=1)))
    assert "commitments were accepted until 2030-01-01T00:00:00Z, and it is 2030-01-01T00:00:00.000001Z here" in str(error)
    desk.commit(envelope, until.commitments)
    turned_away(RejectionCode.LATE, lambda: desk.submit(sealed.file, until.solutions + timedelta(microseconds=1)))
    assert desk.opened == {}
    desk.submit(sealed.file, until.solutions)


def test_a_second_commitment_is_turned_away_whatever_it_is(place: Path) -> None:
    desk = opened(place)
    desk.commit(hand(desk, kit.P1, kit.solution())[0], BEFORE)
    for what in (kit.solution(), kit.solution("Another.")):
        envelope = hand(desk, kit.P1, what)[0]
        turned_away(RejectionCode.SECOND_COMMITMENT, partial(desk.commit, envelope, BEFORE))
    turned_away(RejectionCode.SECOND_COMMITMENT, lambda: desk.commit(hand(desk, kit.P1, kit.solution("Late."))[0], AFTER))
    desk.commit(hand(desk, kit.P2, kit.solution())[0], BEFORE)


def test_one_key_commits_once_however_it_is_spelt(place: Path) -> None:
    spelt = f"ed25519:{kit.P1}"
    with (place / "participants.csv").open("a") as file:
        file.write(f"{spelt},again\n")
    desk = opened(place)
    desk.commit(hand(desk, kit.P1, kit.solution())[0], BEFORE)
    secret = sealing.new_secret(desk.bounty.digest, spelt, kit.solution().digest)
    envelope = sealing.sign_commitment(secret, kit.PEOPLE[kit.P1]).envelope
    turned_away(RejectionCode.SECOND_COMMITMENT, lambda: desk.commit(envelope, BEFORE))
    sealed = sealing.seal_solution(desk.bounty, secret, kit.solution(), desk.identity.seal.public)
    turned_away(RejectionCode.NO_COMMITMENT, lambda: desk.submit(sealed.file, BEFORE))


def test_a_stranger_is_turned_away(place: Path) -> None:
    desk = opened(place)
    envelope, sealed = hand(desk, kit.P4, kit.solution())
    table = place / "participants.csv"
    rows = table.read_text()
    table.write_text("".join(line for line in rows.splitlines(keepends=True) if kit.P4 not in line))
    turned_away(RejectionCode.UNKNOWN_PARTICIPANT, lambda: desk.commit(envelope, BEFORE))
    turned_away(RejectionCode.UNKNOWN_PARTICIPANT, lambda: desk.submit(sealed.file, BEFORE))
    table.write_text(rows)
    desk.commit(envelope, BEFORE)


def test_a_participant_that_is_a_name_is_told_so(place: Path) -> None:
    with (place / "participants.csv").open("a") as file:
        file.write("miner-7,Miner\n")
    desk = opened(place)
    _, sealed = hand(desk, kit.P1, kit.solution())
    error = turned_away(
        RejectionCode.NO_KEY, lambda: desk.submit(sealed.model_copy(update={"participant": "miner-7"}).file, BEFORE)
    )
    assert "'miner-7' cannot commit, since nobody can sign for it" in str(error)


def test_what_is_for_another_bounty_is_turned_away(place: Path, tmp_path: Path) -> None:
    desk = opened(place)
    other = read_bounty(kit.bounty_folder(tmp_path / "other", tokens=999))
    signed, sealed = kit.handed(other, kit.P1, kit.solution(SECRET_TEXT), desk.identity.seal.public)
    turned_away(RejectionCode.OTHER_BOUNTY, lambda: desk.commit(signed.envelope, BEFORE))
    turned_away(RejectionCode.OTHER_BOUNTY, lambda: desk.submit(sealed.file, BEFORE))
    desk.commit(hand(desk, kit.P1, kit.solution(SECRET_TEXT))[0], BEFORE)
    lying = sealed.model_copy(update={"bounty": desk.bounty.digest})
    turned_away(RejectionCode.NOT_OPENED, lambda: desk.submit(lying.file, BEFORE))


def test_a_solution_without_its_commitment_is_turned_away(place: Path) -> None:
    desk = opened(place)
    _, sealed = hand(desk, kit.P1, kit.solution(SECRET_TEXT))
    turned_away(RejectionCode.NO_COMMITMENT, lambda: desk.submit(sealed.file, BEFORE))
    desk.commit(hand(desk, kit.P1, kit.solution(SECRET_TEXT))[0], BEFORE)  # with another salt
    turned_away(RejectionCode.NOT_COMMITTED, lambda: desk.submit(sealed.file, BEFORE))


def test_another_participants_solution_is_of_no_use(place: Path) -> None:
    desk = opened(place)
    envelope, sealed = hand(desk, kit.P1, kit.solution(SECRET_TEXT))
    desk.commit(envelope, BEFORE)
    desk.commit(hand(desk, kit.P2, kit.solution())[0], BEFORE)
    turned_away(RejectionCode.NOT_OPENED, lambda: desk.submit(sealed.model_copy(update={"participant": kit.P2}).file, BEFORE))


def test_a_second_other_solution_is_turned_away(place: Path) -> None:
    desk = opened(place)
    envelope, sealed = hand(desk, kit.P1, kit.solution())
    desk.commit(envelope, BEFORE)
    desk.submit(sealed.file, BEFORE)
    secret = sealing.new_secret(desk.bounty.digest, kit.P1, kit.solution(SECRET_TEXT).digest)
    other = sealing.seal_solution(desk.bounty, secret, kit.solution(SECRET_TEXT), desk.identity.seal.public)
    turned_away(RejectionCode.SECOND_SOLUTION, lambda: desk.submit(other.file, BEFORE))
    (kept,) = desk.opened.values()
    assert kept.solution == kit.solution()


def test_a_solution_that_is_too_large_is_refused_for_good(place: Path) -> None:
    large = kit.solution(SECRET_TEXT + "x" * 1000)
    desk = opened(place)
    secret, signed = kit.committed(desk.bounty, kit.P1, large)
    desk.commit(signed.envelope, BEFORE)
    sealed = kit.sealed_anyway(desk.bounty, secret, large.data, desk.identity.seal.public)
    for intake in (desk, opened(place)):
        error = turned_away(RejectionCode.TOO_LARGE, partial(intake.submit, sealed.file, BEFORE))
        assert "larger than the bounty's 1000 tokens" in str(error)
        assert intake.opened == {}
    assert [submission.refused for submission in opened(place).state.submissions.values()] == [True]


def test_what_the_judge_would_refuse_is_refused_for_good(place: Path) -> None:
    def check(unsealed: OpenedSolution) -> None:
        raise BadInput(f"too large as it is shown: {unsealed.solution.files}")

    desk = opened(place, check)
    envelope, sealed = hand(desk, kit.P1, kit.solution(SECRET_TEXT))
    desk.commit(envelope, BEFORE)
    turned_away(RejectionCode.TOO_LARGE, lambda: desk.submit(sealed.file, BEFORE))
    assert [submission.refused for submission in desk.state.submissions.values()] == [True]


def test_what_is_no_solution_is_refused_for_good(place: Path) -> None:
    desk = opened(place)
    secret = sealing.new_secret(desk.bounty.digest, kit.P1, kit.digest_of(SECRET_TEXT.encode()))
    desk.commit(sealing.sign_commitment(secret, kit.PEOPLE[kit.P1]).envelope, BEFORE)
    sealed = kit.sealed_anyway(desk.bounty, secret, SECRET_TEXT.encode(), desk.identity.seal.public)
    turned_away(RejectionCode.NO_SOLUTION, lambda: desk.submit(sealed.file, BEFORE))
    assert [submission.refused for submission in opened(place).state.submissions.values()] == [True]


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[" * 5000, b'{"schema":"assay.sealed/1","schema":1}'])
def test_what_is_malformed_is_turned_away(place: Path, data: bytes) -> None:
    desk = opened(place)
    turned_away(RejectionCode.MALFORMED, lambda: desk.commit(data, BEFORE))
    turned_away(RejectionCode.MALFORMED, lambda: desk.submit(data, BEFORE))


def test_what_is_no_solution_by_its_head_is_turned_away(place: Path) -> None:
    desk = opened(place)
    sealed = sealing.seal_bytes("problem", b"text", desk.identity.seal.public, bounty=desk.bounty.digest)
    turned_away(RejectionCode.MALFORMED, lambda: desk.submit(sealed.file, BEFORE))


def test_what_is_larger_than_can_be_right_is_not_even_read(place: Path) -> None:
    desk = opened(place)
    turned_away(RejectionCode.TOO_LARGE, lambda: desk.commit(b"x" * (2**20 + 1), BEFORE))
    turned_away(RejectionCode.TOO_LARGE, lambda: desk.submit(b"x" * (sealed_limit(desk.bounty) + 1), BEFORE))
    largest = kit.solution('"' * 979)  # JSON needs two bytes for each
    envelope, sealed = hand(desk, kit.P1, largest)
    assert len(sealed.file) < sealed_limit(desk.bounty)
    desk.commit(envelope, BEFORE)
    desk.submit(sealed.file, BEFORE)


def test_where_a_commitment_stands(place: Path) -> None:
    desk = opened(place)
    envelope, sealed = hand(desk, kit.P1, kit.solution())
    desk.commit(envelope, BEFORE)
    digest = sealing.read_commitment(envelope).digest
    assert desk.find(kit.P1) == desk.find(digest)
    assert desk.find(kit.P1)[1] is None
    desk.submit(sealed.file, BEFORE)
    assert desk.find(digest)[1] is not None
    turned_away(RejectionCode.UNKNOWN, lambda: desk.find(kit.P2))


def test_what_is_on_the_disk_can_be_taken_away_but_not_changed_or_added(place: Path) -> None:
    desk = opened(place)
    for participant in (kit.P1, kit.P2):
        envelope, sealed = hand(desk, participant, kit.solution())
        desk.commit(envelope, BEFORE)
        desk.submit(sealed.file, BEFORE)
    whole = files(place)
    first, second = sorted(path for path in whole if "commitments" in path)

    def changed(path: str, data: bytes) -> None:
        (place / path).write_bytes(data)
        with pytest.raises(BadInput, match=r"was changed after the enclave wrote it|is not signed by this enclave"):
            opened(place)
        (place / path).write_bytes(whole[path])

    changed(first, whole[second])
    changed(first, b"{}")
    changed(first, b"")
    for kind, key in (("commitments", "commitment"), ("submissions", "sealed")):
        path, other = sorted(path for path in whole if kind in path)
        mine, theirs = json.loads(whole[path]), json.loads(whole[other])
        changed(path, canonical(mine | {"taken": theirs["taken"]}))
        changed(path, canonical(theirs | {"taken": mine["taken"]}))
        changed(path, canonical(mine | {key: theirs[key]}))
        changed(path, canonical(mine | {"more": 1}))
    (place / "enclave/judgements/0.json").write_bytes(whole[first])
    with pytest.raises(BadInput, match="was changed after the enclave wrote it"):
        opened(place)
    (place / "enclave/judgements/0.json").unlink()
    assert len(opened(place).state.commitments) == 2
    bounty = read_bounty(place)
    with pytest.raises(BadInput, match=r"is not signed by this enclave, ed25519:.*another app or another dstack wrote it"):
        EnclaveState.load(place, kit.identity(bounty, secret=b"another app's"))


def test_an_enclave_needs_its_deadlines(tmp_path: Path) -> None:
    for missing, field in (
        ("submissions_until", r"bounty\.submissions_until"),
        ("scoring_deadline", r"payout\.scoring_deadline"),
    ):
        place = kit.bounty_folder(tmp_path / missing)
        text = (place / "bounty.toml").read_text()
        lines = [line for line in text.splitlines() if not line.startswith((missing, "commitments_until"))]
        (place / "bounty.toml").write_text("\n".join(lines))
        with pytest.raises(BadInput, match=rf"{field}: is missing, and an enclave needs it"):
            Deadlines.of(read_bounty(place))
    place = kit.bounty_folder(tmp_path / "no-commitments")
    text = (place / "bounty.toml").read_text()
    (place / "bounty.toml").write_text(text.replace(f"commitments_until = {kit.COMMIT_UNTIL}\n", ""))
    times = Deadlines.of(read_bounty(place))
    assert times.commitments == times.solutions


def test_one_service_at_a_time(place: Path) -> None:
    with locked(place), pytest.raises(BadInput, match="is being served already"), locked(place):
        pass
    with locked(place):
        pass


def test_a_folder_that_cannot_be_written_is_said(place: Path) -> None:
    (place / "enclave").write_text("")
    with pytest.raises(BadInput, match="cannot be made"):
        opened(place)
    with pytest.raises(BadInput, match="cannot be made"), locked(place):
        pass
