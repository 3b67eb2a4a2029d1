"""Bounties: what is read, what is refused and where it stands, and what the digest covers. SPEC 2.3, 5, 7."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.exact import digest
from assay.scheme.advice import advice
from assay.scheme.bounty import PROBLEM_BYTES, ModelChoice, read_bounty
from bounty_kit import BOUNTY, SCHEME, make_bounty

NOW = datetime(2026, 11, 1, tzinfo=UTC)
ENCLAVE = f'[enclave]\ncompose_hash = "{"ab" * 32}"\n'
SEALED = f'problem = {{ sealed = "problem.sealed", digest = "sha256:{"0" * 64}" }}'
INLINE = 'problem = "Write a haiku about integers."'
NAME = 'name = "haiku"\n'


def refused(folder: Path, *edits: tuple[str, str], bounty: str = BOUNTY, scheme: str = SCHEME) -> BadInput:
    with pytest.raises(BadInput) as caught:
        read_bounty(make_bounty(folder, *edits, bounty=bounty, scheme=scheme))
    return caught.value


def test_a_bounty_says_what_is_asked_and_has_defaults(tmp_path: Path) -> None:
    bounty = read_bounty(make_bounty(tmp_path))
    assert (bounty.problem, bounty.terms.name, bounty.terms.title) == ("Write a haiku about integers.", "haiku", "")
    assert bounty.problem_digest == f"sha256:{sha256(b'Write a haiku about integers.').hexdigest()}"
    assert (bounty.judge.model, bounty.judge.fallback) == (
        ModelChoice(name="deepseek-ai/DeepSeek-V3"),
        ModelChoice(name="Qwen/Qwen2.5-72B-Instruct"),
    )
    assert [(check.id, check.weight, check.skippable) for check in bounty.rules.checks] == [
        ("C1", 6000, False),
        ("C2", 4000, True),
    ]
    assert bounty.enclave is None
    assert bounty.sealed is None
    assert bounty.scheme.payout is not None
    assert bounty.scheme.payout.deposit == 1001


def test_a_problem_may_be_a_file_beside_it_or_sealed(tmp_path: Path) -> None:
    (tmp_path / "problem.md").write_bytes(b"Write a haiku about integers.")
    beside = read_bounty(make_bounty(tmp_path, (INLINE, 'problem = { file = "problem.md" }')))
    assert beside.digest == read_bounty(make_bounty(tmp_path / "b")).digest  # where the text stands says nothing
    sealed = read_bounty(make_bounty(tmp_path / "c", (INLINE, SEALED)))
    assert (sealed.problem, sealed.sealed) == (None, tmp_path / "c" / "problem.sealed")
    assert sealed.problem_digest == f"sha256:{'0' * 64}"


def test_the_digest_is_of_all_of_it(tmp_path: Path) -> None:
    first = read_bounty(make_bounty(tmp_path / "0"))
    assert first.digest == digest(first.document())
    same = [("weight = 4000", "weight = 4000\nskippable = true"), (NAME, NAME + "[judge]\nsolution_tokens = 64000\n")]
    assert read_bounty(make_bounty(tmp_path / "same", *same)).digest == first.digest
    changes = [
        (INLINE, 'problem = "Write a haiku about fractions."'),
        (NAME, 'name = "other"\n'),
        (NAME, NAME + 'title = "A haiku"\n'),
        (NAME, NAME + f'sponsor = "x25519:{"1" * 64}"\n'),
        (NAME, NAME + "commitments_until = 2026-11-10T00:00:00Z\n"),
        (NAME, NAME + "submissions_until = 2026-11-10T00:00:00Z\n"),
        (NAME, NAME + '[judge]\nmodel = "other"\n'),
        (NAME, NAME + '[judge]\nfallback = "other"\n'),
        (NAME, NAME + "[judge]\nsolution_tokens = 64001\n"),
        (NAME, NAME + ENCLAVE),
        ("It rhymes", "It rhymes well"),
        ("6000\nunskippable = true", "6000"),
        ('deposit = "1001"', 'deposit = "1002"'),
        ("threshold_bps = 7000", "threshold_bps = 7001"),
        ("threshold_bps = 7000", "fee_bps = 1"),
    ]
    digests = {read_bounty(make_bounty(tmp_path / str(at), change)).digest for at, change in enumerate(changes, start=1)}
    for at, edit in enumerate(
        (("min_validators = 1", "min_validators = 2"), ('kind = "rubric"', 'kind = "rubric"\ninjection = "unjudged"'))
    ):
        digests.add(read_bounty(make_bounty(tmp_path / f"s{at}", scheme=SCHEME.replace(*edit))).digest)
    assert len(digests - {first.digest}) == len(changes) + 2


REFUSALS = [
    # what is changed; line, field and words of the refusal
    ([(INLINE, "")], None, "problem", "is missing"),
    ([(INLINE, 'problem = { file = "p", text = "q" }')], 1, "problem", "not exactly one of text, file and sealed"),
    ([(INLINE, "problem = {}")], 1, "problem", "not exactly one of text, file and sealed"),
    ([(INLINE, 'problem = { sealed = "p" }')], 1, "problem", "sealed and digest go together"),
    ([(INLINE, 'problem = { file = "../p" }')], 1, "problem.file", "pattern"),
    ([(INLINE, 'problem = { file = "a/b" }')], 1, "problem.file", "pattern"),
    ([(INLINE, f'problem = {{ sealed = "p", digest = "sha256:{"0" * 63}" }}')], 1, "problem.digest", "pattern"),
    ([(INLINE, 'problem = " \\n "')], 1, "problem", "is empty"),
    ([(INLINE, f'problem = "{"é" * (PROBLEM_BYTES // 2 + 1)}"')], 1, "problem", "is larger than 64000 bytes"),
    ([(INLINE, 'problem = "p"\nproblme = 1')], 2, "problme", "did you mean 'problem'"),
    ([("[bounty]\n" + NAME, "")], None, "bounty", "is missing"),
    ([(NAME, 'name = ""\n')], 4, "bounty.name", "at least 1"),
    ([(NAME, 'name = "a\\u001bb"\n')], 4, "bounty.name", "cannot be printed"),
    ([(NAME, NAME + 'titel = "x"\n')], 5, "bounty.titel", "did you mean 'title'"),
    ([(NAME, NAME + 'sponsor = "x25519:00"\n')], 5, "bounty.sponsor", "pattern"),
    ([(NAME, NAME + 'commitments_until = "soon"\n')], 5, "bounty.commitments_until", "is not a time"),
    ([(NAME, NAME + "submissions_until = 2026-11-10\n")], 5, "bounty.submissions_until", "time with a time zone"),
    (
        [(NAME, NAME + "commitments_until = 2026-11-11T00:00:00Z\nsubmissions_until = 2026-11-10T00:00:00Z\n")],
        5,
        "bounty.commitments_until",
        "is after bounty.submissions_until; commitments come first",
    ),
    (
        [
            (NAME, NAME + "commitments_until = 2026-11-11T00:00:00Z\n"),
            ('deposit = "1001"', 'deposit = "1001"\nscoring_deadline = 2026-11-10T00:00:00Z'),
        ],
        5,
        "bounty.commitments_until",
        "is after payout.scoring_deadline",
    ),
    ([(NAME, NAME + '[judge]\nmodel = "a b"\n')], 6, "judge.model.name", "pattern"),
    ([(NAME, NAME + '[judge]\nmodel = "a\\u001b"\n')], 6, "judge.model.name", "cannot be printed"),
    ([(NAME, NAME + "[judge]\nsolution_tokens = 99\n")], 6, "judge.solution_tokens", "greater than or equal to 100"),
    ([(NAME, NAME + "[judge]\ntemperature = 1\n")], 6, "judge.temperature", "there is no field"),
    ([(NAME, NAME + "[enclave]\n")], 5, "enclave", "any program could judge"),
    ([(NAME, NAME + '[enclave]\ncompose_hash = "AB"\n')], 6, "enclave.compose_hash", "is not a measurement"),
    ([("6000", "5999")], 6, "checks", "sum to 9999; they must sum to 10000"),
    ([('id = "C2"', 'id = "C1"')], 6, "checks", "two checks are called 'C1'"),
    ([("weight = 4000", "weight = 0")], 15, "checks[1].weight", "greater than or equal to 1"),
    ([("weight = 4000", "wieght = 4000")], 15, "checks[1].wieght", "did you mean 'weight'"),
    ([("weight = 4000", "weight = 4000\nskippable = 1")], 16, "checks[1].skippable", "it must be true or false"),
    ([('deposit = "1001"', "deposit = 1001.5")], 18, "payout.deposit", "float"),
    ([('deposit = "1001"\n', "")], 17, "payout.deposit", "is missing"),
    ([("threshold_bps = 7000", "threshold_bps = 0")], 19, "payout.threshold_bps", "greater than or equal to 1"),
    ([("threshold_bps = 7000", "split = [1, 2]")], 17, "payout", "split sums to 3"),
    ([("threshold_bps = 7000", "fee_bps = 10001")], 19, "payout.fee_bps", "less than or equal"),
]


@pytest.mark.parametrize(("edits", "line", "field", "says"), REFUSALS)
def test_what_is_wrong_is_found_in_its_file_line_and_field(
    tmp_path: Path, edits: list[tuple[str, str]], line: int | None, field: str, says: str
) -> None:
    error = refused(tmp_path, *edits)
    assert says in str(error)
    assert (error.file, error.line, error.field) == (tmp_path / "bounty.toml", line, field)


def test_a_bounty_without_checks_is_refused(tmp_path: Path) -> None:
    bare = BOUNTY[: BOUNTY.index("[[checks]]")] + BOUNTY[BOUNTY.index("[payout]") :]
    error = refused(tmp_path, bounty=bare)
    assert (error.file, error.field, error.what) == (tmp_path / "bounty.toml", "checks", "is missing")
    error = refused(tmp_path, bounty=bare.replace(INLINE, INLINE + "\nchecks = []"))
    assert (error.file, error.line, error.field, error.what) == (tmp_path / "bounty.toml", 2, "checks", "is empty")


def test_what_is_wrong_in_the_scheme_is_found_in_the_scheme(tmp_path: Path) -> None:
    error = refused(tmp_path, scheme=SCHEME.replace("min_validators = 1", "min_validators = 0"))
    assert (error.file, error.line, error.field) == (tmp_path / "scheme.toml", 6, "consensus.min_validators")
    error = refused(tmp_path, scheme=SCHEME + '[payout]\ndeposit = "1"\n')
    assert (error.file, error.line, error.field) == (tmp_path / "bounty.toml", 17, "payout")
    bare = BOUNTY[: BOUNTY.index("[payout]")]
    error = refused(tmp_path, scheme=SCHEME + '[payout]\ndeposit = "1"\nfee_bps = -1\n', bounty=bare)
    assert (error.file, error.line, error.field) == (tmp_path / "scheme.toml", 12, "payout.fee_bps")
    error = refused(tmp_path, scheme=SCHEME.replace('"rubric"', '"given"').replace('"payout"', '"weights"'))
    assert (error.file, error.field) == (tmp_path / "scheme.toml", "score.kind")
    (tmp_path / "scheme.toml").write_text(SCHEME)
    (tmp_path / "bounty.toml").unlink()
    with pytest.raises(BadInput, match=r"scheme.toml:3: score.checks: is missing"):
        read_bounty(tmp_path)
    (tmp_path / "scheme.toml").write_text(SCHEME + '[[score.checks]]\nid = "C1"\nweight = 10000\n[payout]\ndeposit = "1"\n')
    with pytest.raises(BadInput, match=r"bounty.toml: no such file"):
        read_bounty(tmp_path)


def test_a_problem_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    place = make_bounty(tmp_path, (INLINE, 'problem = { file = "problem.md" }'))
    for write, says in (
        (lambda file: None, "problem.md: cannot be read (No such file"),
        (lambda file: file.write_bytes(b"\xff"), "problem.md: is not UTF-8"),
        (lambda file: file.write_bytes(b"x" * (PROBLEM_BYTES + 1)), "problem.md: is larger than 64000 bytes"),
        (lambda file: file.write_bytes(b"\n"), "problem.md: is empty"),
    ):
        write(place / "problem.md")
        with pytest.raises(BadInput) as caught:
            read_bounty(place)
        assert says in str(caught.value)


def test_advice(tmp_path: Path) -> None:
    whole = [
        (NAME, NAME + f'sponsor = "x25519:{"1" * 64}"\nsubmissions_until = 2026-11-10T00:00:00Z\n'),
        ('deposit = "1001"', 'deposit = "1001"\nscoring_deadline = 2026-11-20T00:00:00Z'),
    ]
    assert advice(read_bounty(make_bounty(tmp_path / "whole", *whole)), NOW) == []

    def advised(*edits: tuple[str, str], now: datetime = NOW, scheme: str = SCHEME) -> str:
        return " | ".join(advice(read_bounty(make_bounty(tmp_path / "x", *edits, scheme=scheme)), now))

    bare = advised()
    for field in ("bounty.sponsor", "bounty.submissions_until", "payout.scoring_deadline"):
        assert f"{field} is missing" in bare
    assert "bounty.commitments_until" not in bare
    assert "bounty.submissions_until is past: 2026-11-10T00:00:00Z" in advised(*whole, now=NOW.replace(day=11))
    clock = '[epoch]\nevery = "7d"\nstart = "{}"\n[reward]'
    early, right = (SCHEME.replace("[reward]", clock.format(f"2026-11-{day}T00:00:00Z")) for day in ("02", "03"))
    assert "epoch 1 ends at 2026-11-09T00:00:00Z, and until 2026-11-10T00:00:00Z" in advised(*whole, scheme=early)
    assert advised(*whole, scheme=right) == ""
    assert "full marks for nothing" in advised(*whole, ("unskippable = true\n", ""))
    assert "payout.deposit is 0" in advised(*whole, ('"1001"', '"0"'))
    assert "judge.fallback is the same as judge.model" in advised((NAME, NAME + '[judge]\nmodel = "a"\nfallback = "a"\n'))
    assert "judge.solution_tokens is 100001" in advised((NAME, NAME + "[judge]\nsolution_tokens = 100001\n"))
    assert "no judge can read the problem" in advised((INLINE, SEALED))
    sealed = advised((INLINE, SEALED), (NAME, NAME + ENCLAVE))
    assert "the problem is sealed: tell the participants in another way what it asks for" in sealed
    assert "bounty.commitments_until is missing" in sealed
    assert "enclave: mrtd, rtmr0, rtmr1, rtmr2 not pinned" in sealed
    assert "these prove nothing" in advised((NAME, NAME + ENCLAVE + "development = true\n"))
    scheme = SCHEME.replace('kind = "payout"', "")
    (tmp_path / "y").mkdir()
    unpaid = make_bounty(tmp_path / "y", scheme=scheme, bounty=BOUNTY[: BOUNTY.index("[payout]")])
    assert "there is no [payout], so nothing is paid" in " | ".join(advice(read_bounty(unpaid), NOW))
