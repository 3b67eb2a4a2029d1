"""Cases of decay and of its two clocks. SPEC 4, Decay."""

from __future__ import annotations

from typing import Any

from .case import CaseDraft, File, case, refused

Doc = dict[str, Any]


def decayed(name: str, last: int | None, epoch: int, stale: int, kept: str, **rules: Any) -> CaseDraft:
    return case(name, {"decay": rules, "last": last, "epoch": epoch}, {"stale": stale, "kept": kept})


FAST: Doc = {"grace_epochs": 0}
EXP: Doc = {"curve": "exponential", "grace_epochs": 0, "max_burn": "100%"}
DECAY = [
    *(
        decayed(f"decay epoch {epoch} keeps {note}", 0, epoch, max(0, epoch - 10), kept)
        for epoch, note, kept in (
            (0, "all", "1"),
            (1, "all", "1"),
            (10, "all", "1"),
            (11, "95 %", "0.95"),
            (12, "90 %", "0.9"),
            (25, "25 %", "0.25"),
            (26, "20 %", "0.2"),
            (1000, "20 %", "0.2"),
        )
    ),
    decayed("it is the distance that counts", 100, 112, 2, "0.9"),
    decayed("no reset yet", None, 40, 0, "1"),
    decayed("no curve", 0, 1000, 0, "1", curve="none"),
    decayed("no grace", 3, 4, 1, "0.95", **FAST),
    decayed("a rate of 100 %, B_max 80 %", 3, 4, 1, "0.2", rate="100%", **FAST),
    decayed("everything may burn", 0, 20, 20, "0", max_burn="100%", **FAST),
    decayed("a rate of a third, nine digits", 0, 2, 2, "0.333333334", rate="0.333333333", **FAST),
    decayed("a rate of 0", 0, 50, 50, "1", rate="0", **FAST),
    decayed("exponential, one epoch", 0, 1, 1, "0.95", **EXP),
    decayed("exponential, two epochs", 0, 2, 2, "0.9025", **EXP),
    decayed("exponential, seven epochs: the tenth digit decides", 0, 7, 7, "0.69833729609375"[:11], **EXP),
    decayed("exponential, thirty epochs", 0, 30, 30, "0.214638764", **EXP),
    decayed("exponential up to B_max", 0, 60, 60, "0.2", curve="exponential", grace_epochs=0),
    decayed("exponential, 10 % an epoch", 0, 3, 3, "0.729", **EXP, rate="10%"),
    decayed("exponential, ten million epochs", 0, 10_000_000, 10_000_000, "0", **EXP),
    decayed("exponential, a nano an epoch over ten million", 0, 10_000_000, 10_000_000, "0.990049834", **EXP, rate="0.000000001"),
    decayed("exponential, a tie goes to the even nano", 0, 10, 10, "0.000976562", **EXP, rate="0.5"),
    decayed("exponential, a rate of 100 %", 0, 1, 1, "0", **EXP, rate="100%"),
    decayed("exponential in the grace", 0, 10, 0, "1", curve="exponential"),
    decayed("the epoch of the reset itself", 7, 7, 0, "1", **FAST),
    refused("a reset after the epoch", {"decay": {}, "last": 8, "epoch": 7}, "the last reset is not later than the epoch"),
    refused("a rate above 1", {"decay": {"rate": "101%"}, "last": 0, "epoch": 7}, "a share is at most 1"),
    refused("an unknown curve", {"decay": {"curve": "sudden"}, "last": 0, "epoch": 7}, "there is no such curve"),
]


def before(
    record: str | None, last: int | None, submission: str | None, *own: tuple[str, str, str, int], task_set: str | None = None
) -> Doc:
    rows = [dict(zip(("participant", "submission", "best", "last"), fields, strict=True)) for fields in own]
    return {"task_set": task_set, "record": record, "last": last, "submission": submission, "participants": rows}


def row(epoch: int, score: str, submission: str = "", task_set: str = "") -> Doc:
    return {"epoch": epoch, "top_score": score, "submission": submission, "task_set": task_set}


def ticks(
    name: str,
    agreed: list[tuple[str, str, str] | tuple[str, str, str, int]],
    expect: Doc,
    *,
    previous: Doc | None = None,
    **more: Any,
) -> CaseDraft:
    rules = more.pop("decay", {})
    names = ("participant", "submission", "score", "last_reset_epoch")
    rows = [dict(zip(names, fields, strict=False)) for fields in agreed]
    given = {"decay": rules, "epoch": 10, **more, "previous": previous, "agreed": rows}
    return case(name, given, expect)


def own(**lasts: int) -> Doc:
    return {"participants": [{"participant": key, "last": last} for key, last in lasts.items()]}


def mark(record: str | None, last: int | None, submission: str | None) -> Doc:
    return {"record": record, "last": last, "submission": submission}


A = ("a", "s1", "0.8", 3)
HELD = before("0.8", 3, "s1", A)
CLOCK = [
    ticks("the first agreed epoch starts a clock", [("a", "s1", "0.8")], own(a=10) | mark("0.8", 10, "s1")),
    ticks("last_reset_epoch starts it earlier", [("a", "s1", "0.8", 4)], own(a=4) | mark("0.8", 10, "s1")),
    ticks("a settlement before overrides last_reset_epoch", [("b", "s2", "0.5", 4)], own(a=3, b=10), previous=HELD),
    ticks("the same submission is not new", [("a", "s1", "0.9")], own(a=3) | mark("0.8", 3, "s1"), previous=HELD),
    ticks("new and better resets", [("a", "s2", "0.800000001")], own(a=10) | mark("0.8", 3, "s1"), previous=HELD),
    ticks("new and only as good does not", [("a", "s2", "0.8")], own(a=3), previous=HELD),
    ticks("new and worse does not", [("a", "s2", "0.5")], own(a=3), previous=HELD),
    ticks("reset = update: being new is enough", [("a", "s2", "0.5")], own(a=10), previous=HELD, decay={"reset": "update"}),
    ticks(
        "reset = update: the same submission is not new", [("a", "s1", "0.9")], own(a=3), previous=HELD, decay={"reset": "update"}
    ),
    ticks(
        "the best is kept when a worse one comes",
        [("a", "s2", "0.5")],
        {"participants": [{"best": "0.8", "submission": "s2"}]},
        previous=HELD,
    ),
    ticks(
        "the same submission may raise the best",
        [("a", "s1", "0.9")],
        {"participants": [{"best": "0.9", "last": 3}]},
        previous=HELD,
    ),
    ticks("an empty submission is always new", [("a", "", "0.9")], own(a=10), previous=before("0.8", 3, "", ("a", "", "0.8", 3))),
    ticks("without an agreed score the clock goes on", [("b", "s2", "0.5")], own(a=3, b=10), previous=HELD),
    ticks("nobody agreed: everything is carried on", [], own(a=3) | mark("0.8", 3, "s1"), previous=HELD),
    ticks("nobody agreed, nothing before", [], {"participants": []} | mark(None, None, None)),
    ticks("a score of 0 sets no record", [("a", "s1", "0")], own(a=10) | mark(None, None, None)),
    ticks(
        "keys sort by UTF-8 bytes",
        [("z😀", "s1", "0.8"), ("z～", "s2", "0.7")],
        {"participants": [{"participant": "z～"}, {"participant": "z😀"}]},
    ),
    ticks(
        "relative: 2 % above the record resets",
        [("b", "s2", "0.816"), ("a", "s1", "0.8")],
        mark("0.816", 10, "s2"),
        previous=HELD,
    ),
    ticks(
        "relative: a nano less does not", [("b", "s2", "0.815999999"), ("a", "s1", "0.8")], mark("0.8", 3, "s1"), previous=HELD
    ),
    ticks(
        "absolute: 0.02 above the record resets",
        [("b", "s2", "0.82")],
        mark("0.82", 10, "s2"),
        previous=HELD,
        decay={"improvement_mode": "absolute"},
    ),
    ticks(
        "absolute: a nano less does not",
        [("b", "s2", "0.819999999")],
        mark("0.8", 3, "s1"),
        previous=HELD,
        decay={"improvement_mode": "absolute"},
    ),
    ticks(
        "no improvement asked: as good resets",
        [("b", "s2", "0.8")],
        mark("0.8", 10, "s2"),
        previous=HELD,
        decay={"improvement": "0"},
    ),
    ticks("reaching 1 for the first time counts", [("b", "s2", "1")], mark("1", 10, "s2"), previous=before("0.99", 3, "s1", A)),
    ticks("reaching 1 again does not", [("b", "s2", "1")], mark("1", 3, "s1"), previous=before("1", 3, "s1", A)),
    ticks(
        "the record is the score at the last reset, not the best since",
        [("b", "s2", "0.816")],
        mark("0.816", 10, "s2"),
        previous=before("0.8", 3, "s1", ("a", "s1", "0.81", 3)),
    ),
    ticks("the record's own submission cannot reset it", [("b", "s1", "0.9")], mark("0.8", 3, "s1"), previous=HELD),
    ticks(
        "a participant's old submission cannot reset it",
        [("b", "s2", "0.9")],
        mark("0.8", 3, "s1"),
        previous=before("0.8", 3, "s1", A, ("b", "s2", "0.7", 5)),
    ),
    ticks(
        "only the best of the new ones is asked",
        [("a", "s1", "0.95"), ("b", "s2", "0.81"), ("c", "s3", "0.81")],
        mark("0.8", 3, "s1"),
        previous=HELD,
    ),
    ticks("the best new one behind an old one", [("a", "s1", "0.95"), ("b", "s2", "0.9")], mark("0.9", 10, "s2"), previous=HELD),
    ticks("history tells the record", [("a", "s1", "0.5")], mark("0.8", 2, "h"), history=[row(2, "0.8", "h")]),
    ticks(
        "history: rows are steps, in ascending epoch",
        [("a", "s1", "0.5")],
        mark("0.82", 5, "h3"),
        history=[row(5, "0.82", "h3"), row(2, "0.8", "h1"), row(3, "0.81", "h2")],
    ),
    ticks("history: zero rows set nothing", [("a", "s1", "0.5")], mark("0.5", 10, "s1"), history=[row(2, "0", "h")]),
    ticks(
        "history from the epoch on does not count",
        [("a", "s1", "0.5")],
        mark("0.5", 10, "s1"),
        history=[row(10, "0.9", "h"), row(11, "0.9", "h")],
    ),
    ticks(
        "history: a row with an empty submission is new", [], mark("0.9", 4, ""), history=[row(2, "0.8", ""), row(4, "0.9", "")]
    ),
    ticks("history: the same submission is not", [], mark("0.8", 2, "h"), history=[row(2, "0.8", "h"), row(4, "0.9", "h")]),
    ticks(
        "history does not count after a settlement",
        [("a", "s1", "0.8")],
        mark("0.8", 3, "s1"),
        previous=HELD,
        history=[row(2, "0.99", "h")],
    ),
    ticks(
        "history: a new task set restarts",
        [],
        mark("0.5", 4, "h2"),
        history=[row(2, "0.8", "h1", "one"), row(4, "0.5", "h2", "two")],
    ),
    ticks(
        "history: an unknown task set does not",
        [],
        mark("0.8", 2, "h1"),
        history=[row(2, "0.8", "h1", "one"), row(4, "0.5", "h2")],
    ),
    ticks(
        "history: unknown, then another, does",
        [],
        mark("0.4", 5, "h3"),
        history=[row(2, "0.8", "h1", "one"), row(4, "0.5", "h2"), row(5, "0.4", "h3", "two")],
    ),
    ticks(
        "a new task set restarts both clocks",
        [("a", "s1", "0.4")],
        own(a=10) | mark("0.4", 10, "s1"),
        previous=before("0.8", 3, "s1", A, ("b", "s2", "0.7", 5), task_set="one"),
        task_set="two",
    ),
    ticks(
        "the same task set does not",
        [("a", "s1", "0.4")],
        own(a=3, b=5) | mark("0.8", 3, "s1"),
        previous=before("0.8", 3, "s1", A, ("b", "s2", "0.7", 5), task_set="one"),
        task_set="one",
    ),
    ticks(
        "a task set not known does not",
        [("a", "s1", "0.4")],
        own(a=3) | mark("0.8", 3, "s1"),
        previous=before("0.8", 3, "s1", A),
        task_set="two",
    ),
    ticks(
        "the clocks go whatever the curve",
        [("a", "s2", "0.9")],
        own(a=10) | mark("0.9", 10, "s2"),
        previous=HELD,
        decay={"curve": "none"},
    ),
]


FILES = [
    File("decay", "decay", "What a stale submission loses (SPEC 4, Decay).", DECAY),
    File("clock", "clock", "When a participant, and the competition, last improved (SPEC 4, Decay).", CLOCK),
]
