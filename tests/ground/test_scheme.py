"""Schemes: what is read, what is refused and how helpfully, and what the digest covers. SPEC 1, 7."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.exact import NANO
from assay.scheme import subnet
from assay.scheme.fields import instant
from assay.scheme.load import parse, presets, read, warnings
from assay.scheme.model import RubricScore, Scheme, TestsScore
from assay.scheme.reading import MAX_BYTES

TESTS = '[scheme]\nname = "t"\n[score]\nkind = "tests"\n'
RUBRIC = '[scheme]\nname = "r"\n[score]\nkind = "rubric"\n'
CHECKS = '[[score.checks]]\nid = "C1"\nweight = 6000\nunskippable = true\n[[score.checks]]\nid = "C2"\nweight = 4000\n'
PAYOUT = '[reward]\nkind = "payout"\n[payout]\ndeposit = "1000"\n'


def refused(text: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        parse(text, file="scheme.toml")
    return caught.value


def test_defaults_are_those_of_the_specification() -> None:
    scheme = parse(TESTS)
    assert isinstance(scheme.score, TestsScore)
    assert (scheme.score.trials, scheme.score.agent_timeout) == (1, "fail")
    consensus = scheme.consensus
    assert (consensus.min_validators, consensus.min_stake, consensus.combine) == (3, 3 * NANO // 10, "stake-mean")
    assert (consensus.outliers.method, consensus.outliers.threshold, consensus.outliers.mad_floor) == (
        "modified-z",
        35 * NANO // 10,
        NANO // 100,
    )
    reward, decay = scheme.reward, scheme.decay
    assert (reward.strategy, reward.cap, reward.excess, reward.encoding, reward.temperature, reward.top) == (
        "linear",
        NANO // 2,
        "redistribute",
        "round",
        NANO,
        1,
    )
    assert decay is not None
    assert (decay.curve, decay.clock, decay.grace_epochs, decay.rate, decay.max_burn) == (
        "linear",
        "participant",
        10,
        NANO // 20,
        8 * NANO // 10,
    )
    assert (decay.burn_uid, decay.reset, decay.improvement, decay.improvement_mode) == (0, "improvement", NANO // 50, "relative")


def test_method_z_has_its_own_threshold() -> None:
    assert parse(TESTS + '[consensus.outliers]\nmethod = "z"\n').consensus.outliers.threshold == 2 * NANO


@pytest.mark.parametrize("spelling", ['"50%"', '"0.5"', '"0.500"', '"50.0%"'])
def test_the_digest_does_not_see_spelling_or_defaults(spelling: str) -> None:
    assert parse(TESTS + f"[reward]\ncap = {spelling}\n").digest == parse(TESTS).digest


def test_the_digest_sees_every_rule() -> None:
    assert parse(TESTS + '[reward]\ncap = "49%"\n').digest != parse(TESTS).digest


@pytest.mark.parametrize(
    ("text", "line", "field", "says"),
    [
        (TESTS + "trails = 3\n", 5, "score.trails", "did you mean 'trials'"),
        (TESTS + "[consesus]\nmin_validators = 3\n", 5, "consesus", "did you mean 'consensus'"),
        (TESTS + "[consensus.outliers]\nmad_flor = '0'\n", 6, "consensus.outliers.mad_flor", "did you mean 'mad_floor'"),
        (TESTS + "[reward]\ncap = 0.5\n", 6, "reward.cap", "JSON float"),
        (TESTS + '[reward]\ncap = "150%"\n', 6, "reward.cap", "more than 1"),
        (TESTS + '[reward]\ncap = "-1"\n', 6, "reward.cap", "no sign"),
        (TESTS + '[reward]\ncap = "0.00000001%"\n', 6, "reward.cap", "finer than nanos"),
        (TESTS + '[reward]\ncap = "0"\n', 5, "reward", "cap is 0"),
        (TESTS + '[reward]\nstrategy = "liner"\n', 6, "reward.strategy", "'linear'"),
        (TESTS + '[reward]\nexcess = "drop"\nencoding = "exact-sum"\n', 5, "reward", "exact-sum"),
        (TESTS + '[reward]\nexcess = "drop"\nencoding = "max-upscale"\n', 5, "reward", "round"),
        (TESTS + '[reward]\ntemperature = "0.001"\n', 5, "reward", "temperature"),
        (TESTS + "[consensus]\nmin_validators = 0\n", 6, "consensus.min_validators", "greater than or equal to 1"),
        (TESTS + "[consensus]\nrecheck = 1\n", 6, "consensus.recheck", "it must be true or false"),
        (TESTS + '[consensus]\nmin_validator_stake = "9223372036854775808"\n', 6, "consensus.min_validator_stake", "too large"),
        (TESTS + '[payout]\ndeposit = "5"\n', None, "", 'kind = "payout"'),
        (TESTS + '[reward]\nkind = "payout"\n', None, "", "needs a section [payout]"),
        (TESTS + PAYOUT + "[decay]\nrate = '1%'\n", None, "", "do not decay"),
        (TESTS + PAYOUT + "split = [5000, 4000]\n", 7, "payout", "sums to 9000"),
        (TESTS + PAYOUT + "threshold_bps = 0\n", 9, "payout.threshold_bps", "greater than or equal"),
        (
            TESTS + PAYOUT + "tiers = [{reach_bps = 5000, release_bps = 1}, {reach_bps = 6000, release_bps = 1}]\n",
            7,
            "payout",
            "fall",
        ),
        (RUBRIC, 3, "score.checks", "missing"),
        (RUBRIC + '[[score.checks]]\nid = "C1"\nweight = 9999\n', 3, "score", "sum to 9999"),
        (RUBRIC + CHECKS.replace("C2", "C1"), 3, "score", "two checks are called 'C1'"),
        (RUBRIC + CHECKS.replace("unskippable = true", "unskippable = true\nskippable = true"), 5, "score.checks[0]", "both"),
        (RUBRIC + CHECKS.replace('id = "C2"', 'di = "C2"'), 10, "score.checks[1].di", "did you mean 'id'"),
        (
            '[scheme]\nname = "x"\n[score]\nkind = "points"\n[score.repositories]\n"a/b" = "5"\n"nope" = "1"\n',
            7,
            "score.repositories",
            "nope",
        ),
        ('[scheme]\nname = "x"\n[score]\nkind = "workflow"\nweights = {success = "0.6"}\n', 5, "score.weights", "sum to 1"),
        ('[scheme]\nname = "x"\n[score]\nkind = "test"\n', 4, "score.kind", "use one of given, points, rubric, tests, workflow"),
        ('[scheme]\nname = "x"\n', None, "score", "missing"),
        ('[scheme]\nname = ""\n[score]\nkind = "given"\n', 2, "scheme.name", "at least 1 character"),
        ("name = [[[\n", 2, "", "is not TOML"),
        ("a" + "[" * 5000, 1, "", "is not TOML"),
    ],
)
def test_a_refusal_names_line_field_and_what_to_do(text: str, line: int | None, field: str, says: str) -> None:
    error = refused(text)
    assert says in str(error)
    assert error.file == "scheme.toml"
    assert field in error.field
    if line is not None:
        assert error.line == line


def test_the_two_spellings_of_a_check_are_one() -> None:
    other = CHECKS.replace("unskippable = true", "skippable = false")
    assert parse(RUBRIC + CHECKS).digest == parse(RUBRIC + other).digest


def test_every_preset_is_read_and_teaches() -> None:
    by_name = presets()
    assert set(by_name) == {"agonaut", "benchmark", "bounty-challenge", "cswon", "platform", "term-challenge"}
    for name, text in by_name.items():
        assert text.count("#") >= 5, f"{name} says too little"
        if name != "platform":
            assert isinstance(parse(text), Scheme)


def test_warnings_say_what_is_probably_not_meant() -> None:
    assert warnings(parse(TESTS)) == []
    assert "cannot flag anyone among 5 validators" in warnings(parse(TESTS + '[consensus.outliers]\nmethod = "z"\n'))[0]
    assert "full marks for nothing" in warnings(parse(RUBRIC + CHECKS.replace("unskippable = true\n", "")))[0]
    hourly = '[epoch]\nevery = "1h"\nstart = "2026-11-02T10:00:00Z"\n'
    assert "the season can lag for ever" in warnings(parse(f'{TESTS}{hourly}grace = "60m"\n'))[0]
    assert warnings(parse(f'{TESTS}{hourly}grace = "59m"\n')) == warnings(parse(TESTS + hourly)) == []
    assert "epoch.tempo = 5 blocks" in warnings(parse(f'{TESTS}[epoch]\ntempo = 5\ngrace = "1m"\n'))[0]
    assert warnings(parse(f'{TESTS}[epoch]\ntempo = 5\ngrace = "59s"\n')) == []
    assert "nothing ever decays" in warnings(parse(TESTS + '[decay]\nrate = "0"\n'))[0]
    assert "can fail any task for everybody" in warnings(parse(f'{TESTS}passed_by = "all"\n'))[0]


@pytest.mark.parametrize(
    ("threshold", "least", "blind"), [("2", 5, 5), ("2", 6, None), ("3.5", 13, 13), ("3.5", 14, None), ("1", 1, None)]
)
def test_the_warning_of_z_says_among_how_many_nobody_can_be_flagged(threshold: str, least: int, blind: int | None) -> None:
    rules = f'[consensus]\nmin_validators = {least}\n[consensus.outliers]\nmethod = "z"\nthreshold = "{threshold}"\n'
    messages = warnings(parse(TESTS + rules))
    assert len(messages) == (blind is not None)
    assert all(f"among {blind} validators or fewer" in message for message in messages)


def test_a_bounty_beside_the_scheme_brings_checks_and_payout(tmp_path: Path) -> None:
    (tmp_path / "scheme.toml").write_text(RUBRIC + '[reward]\nkind = "payout"\n')
    (tmp_path / "bounty.toml").write_text('problem = "p"\n' + CHECKS.replace("score.", "") + '[payout]\ndeposit = "7"\n')
    scheme = read(tmp_path / "scheme.toml")
    assert scheme.payout is not None
    assert scheme.payout.deposit == 7
    assert isinstance(scheme.score, RubricScore)
    assert [check.skippable for check in scheme.score.checks] == [False, True]


def test_a_fault_in_the_bounty_is_found_in_the_bounty(tmp_path: Path) -> None:
    (tmp_path / "scheme.toml").write_text(RUBRIC + '[reward]\nkind = "payout"\n')
    (tmp_path / "bounty.toml").write_text(CHECKS.replace("score.", "") + '[payout]\ndeposit = "7"\nfee = 3\n')
    with pytest.raises(BadInput, match="did you mean 'fee_bps'") as caught:
        read(tmp_path / "scheme.toml")
    assert (caught.value.file, caught.value.line, caught.value.field) == (tmp_path / "bounty.toml", 10, "payout.fee")
    (tmp_path / "scheme.toml").write_text(RUBRIC + CHECKS + PAYOUT)
    with pytest.raises(BadInput, match="keep it in one of the two"):
        read(tmp_path / "scheme.toml")


@pytest.mark.parametrize(("content", "says"), [(b"\xff\xfe", "is not UTF-8"), (b"#" * (MAX_BYTES + 1), "larger than")])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "scheme.toml").write_bytes(content)
    with pytest.raises(BadInput, match=says):
        read(tmp_path / "scheme.toml")


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="assay init"):
        read(tmp_path / "scheme.toml")
    (tmp_path / "scheme.toml").mkdir()
    with pytest.raises(BadInput, match="cannot be read"):
        read(tmp_path / "scheme.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TESTS + "trials = " + "9" * 5000 + "\n", "scheme.toml: has an integer of thousands of digits"),
        (TESTS + "trials = 0x" + "f" * 5000 + "\n", "scheme.toml:5: score.trials: an integer of 20000 bits: "),
        (TESTS.replace('name = "t"', "name" + ".a" * 1000 + " = 1"), "scheme.toml:1: scheme.name: is an object; it must be text"),
        (TESTS + "[reward]\ncap" + ".a" * 1000 + " = 1\n", "scheme.toml:5: reward.cap: an object is not a decimal string"),
        (
            TESTS + "[reward]\ncap = 0x" + "f" * 5000 + "\n",
            "scheme.toml:6: reward.cap: a JSON integer (an integer of 20000 bits)",
        ),
        (TESTS + "[reward]\nkind" + ".a" * 1000 + " = 1\n", "scheme.toml:5: reward.kind: is an object; use one of"),
        (
            TESTS + PAYOUT + "scoring_deadline" + ".a" * 1000 + " = 1\n",
            "scheme.toml:7: payout.scoring_deadline: an object is not a",
        ),
    ],
    ids=["digits", "bits", "deep name", "deep cap", "bits of cap", "deep kind", "deep time"],
)
def test_values_that_cannot_be_shown_whole_are_refused_all_the_same(text: str, message: str) -> None:
    assert str(refused(text)).startswith(message)


def test_the_line_is_found_however_long_the_rows_are() -> None:
    """A pattern that tries all ways to divide the blanks of such a row would not end."""
    assert refused(f'{TESTS}agent_timeout = """\n[{" " * 200_000}\n"""\n').where == "scheme.toml:5: score.agent_timeout"


def test_a_byte_order_mark_is_nothing_and_a_path_with_a_zero_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "scheme.toml"
    file.write_bytes(b"\xef\xbb\xbf" + TESTS.encode())
    assert read(file).name == "t"
    with pytest.raises(BadInput, match="cannot be read"):
        read(tmp_path / "a\0b")


@pytest.mark.parametrize("time", ["09:00:00+05:60", "09:00:00+24:00", "24:00:00Z", "23:59:60Z", "09:60:00Z"])
def test_times_that_rfc_3339_does_not_have(time: str) -> None:
    """Whatever the Python: some read an offset of 99 minutes, newer ones 24:00 too. Parquet and JSON lines agree."""
    with pytest.raises(BadInput, match="is not a time"):
        instant(f"2026-11-02T{time}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scheme = 3\n", "scheme.toml:1: scheme: is 3; it must be a section with fields of its own"),
        (RUBRIC + "checks = 5\n", "scheme.toml:5: score.checks: is 5; it must be a list"),
        (RUBRIC + "checks = []\n", "scheme.toml:5: score.checks: is empty; put at least one in"),
        (
            RUBRIC + "checks = [" + '{id="a",weight=1},' * 1001 + "]\n",
            "scheme.toml:5: score.checks: has more than 1000 entries; remove some",
        ),
        (RUBRIC + "checks = [5]\n", "scheme.toml:5: score.checks[0]: is 5; it must be a section with fields of its own"),
    ],
)
def test_what_a_field_must_be_is_said_in_the_words_of_the_file(text: str, message: str) -> None:
    assert str(refused(text)) == message


def test_one_folder_twice_in_a_subnet_is_refused_however_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("".join(f'[[competitions]]\npath = "{path}"\nshare = "0.5"\n' for path in ("a", "./b/../a/")))
    with pytest.raises(BadInput, match="'a' is listed twice"):
        subnet.read(file)


@pytest.mark.parametrize(("assign", "count"), [(2, 1), (3, 0)])
def test_drawing_fewer_than_a_quorum_needs_is_warned_of(assign: int, count: int) -> None:
    messages = warnings(parse(f"{TESTS}[consensus]\nassign = {assign}\n"))
    assert len(messages) == count
    assert all("nobody can have an agreed score" in message for message in messages)


HANDING_IN = (
    '[submission]\nper_epoch = 3\nreveal = 1\ncopies = "flag"\n[release]\nlogs = "after-epoch"\n'
    '[epoch]\nevery = "72m"\nstart = "2026-11-02T10:00:00+01:00"\ngrace = "10m"\n'
)


def test_the_rules_of_handing_in_are_absent_by_default() -> None:
    scheme = parse(TESTS)
    assert (scheme.submission, scheme.release, scheme.epoch) == (None, None, None)
    assert {"submission", "release", "epoch"}.isdisjoint(scheme.document())


def test_the_rules_of_handing_in_are_read_and_are_part_of_the_digest() -> None:
    scheme = parse(TESTS + HANDING_IN)
    assert scheme.submission is not None
    assert (scheme.submission.per_epoch, scheme.submission.reveal, scheme.submission.copies) == (3, 1, "flag")
    assert scheme.release is not None
    assert scheme.release.logs == "after-epoch"
    assert scheme.epoch is not None
    assert (scheme.epoch.every, scheme.epoch.start, scheme.epoch.grace) == (4320, instant("2026-11-02T09:00:00Z"), 600)
    assert scheme.document()["epoch"] == {"every": "4320s", "grace": "600s", "start": "2026-11-02T09:00:00Z"}
    assert scheme.digest not in (parse(TESTS).digest, parse(TESTS + HANDING_IN.replace("72m", "71m")).digest)
    assert Scheme.model_validate(scheme.document()) == scheme
    assert parse(TESTS + HANDING_IN.replace("72m", "4320s")).digest == scheme.digest


def test_the_published_schema_knows_every_section() -> None:
    assert [*Scheme.model_json_schema()["properties"]] == [*Scheme.model_fields]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[epoch]\n", 'scheme.toml:5: epoch: needs either every = "72m" with a start, or the tempo of a chain'),
        ('[epoch]\nevery = "72m"\ntempo = 360\nstart = "2026-11-02T09:00:00Z"\n', "scheme.toml:5: epoch: needs either every"),
        ('[epoch]\nevery = "72m"\n', "scheme.toml:5: epoch: every and start go together; add the one that is missing"),
        ('[epoch]\ntempo = 360\nstart = "2026-11-02T09:00:00Z"\n', "scheme.toml:5: epoch: every and start go together"),
        ('[epoch]\nevery = "72 m"\n', "scheme.toml:6: epoch.every: '72 m' is not a duration; write a whole number with its unit"),
        ("[epoch]\nevery = 72\n", "scheme.toml:6: epoch.every: 72 is not a duration"),
        ('[epoch]\nevery = "0s"\n', "scheme.toml:6: epoch.every: '0s' is not a duration"),
        ("[submission]\nper_epoch = 0\n", "scheme.toml:6: submission.per_epoch"),
        ('[submission]\ncopies = "zero"\n', "scheme.toml:6: submission.copies: is 'zero'; use one of 'flag' or 'hold'"),
        ('[release]\nlogs = "all"\n', "scheme.toml:6: release.logs: is 'all'; use one of 'own', 'after-epoch' or 'never'"),
        ("[submission]\nreveals = 1\n", "did you mean 'reveal'"),
    ],
)
def test_rules_of_handing_in_that_make_no_sense_are_refused(text: str, message: str) -> None:
    assert message in str(refused(TESTS + text))
