"""How a watch stands as a web page: one file without scripts, that a browser loads anew by itself."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from assay.errors import printable
from assay.publish.history import Tried
from assay.publish.watch.watching import Report
from assay.scheme.times import instant_text

__all__ = ["page"]

LINES = 30
"""Of what was tried, the last so many."""
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="{seconds}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>
body {{ font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }}
body {{ color: #1b1f24; background: #fff }}
table {{ border-collapse: collapse; margin: 1rem 0; width: 100% }}
th, td {{ text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #d8dee4; vertical-align: top }}
td {{ overflow-wrap: anywhere }}
th {{ font-weight: 600; white-space: nowrap }}
.alarm {{ border-left: .4rem solid #b42318; background: #fef3f2; padding: .6rem 1rem; margin: 1rem 0 }}
.fine {{ border-left: .4rem solid #1a7f37; background: #f0fbf3; padding: .6rem 1rem; margin: 1rem 0 }}
.wait {{ border-left: .4rem solid #9a6700; background: #fff8e5; padding: .6rem 1rem; margin: 1rem 0 }}
@media (prefers-color-scheme: dark) {{
 body {{ color: #e6edf3; background: #0d1117 }} th, td {{ border-color: #30363d }}
 .alarm {{ background: #3b1513 }} .fine {{ background: #10261a }} .wait {{ background: #2e2508 }}
}}
</style></head><body>
"""


def page(report: Report, refresh: float) -> str:
    """The page. refresh: seconds after which it is loaded anew."""
    return "".join(_parts(report, refresh))


def _parts(report: Report, refresh: float) -> Iterator[str]:
    title = f"{len(report.alarms)} wrong: " if report.alarms else ""
    yield _HEAD.format(seconds=max(1, round(refresh)), title=_text(f"{title}{report.target}"))
    yield f"<h1>What is published to {_text(report.target)}</h1>\n"
    for alarm, since in report.alarms:
        yield f'<div class="alarm" role="alert"><strong>{_text(alarm.what)}</strong><br>What to do: {_text(alarm.hint)}.'
        yield f"<br>Since {_time(since)}.</div>\n"
    if not report.alarms:
        yield _calm(report)
    yield _table((), _standing(report))
    rows = [_row(one) for one in reversed(report.tried[-LINES:])]
    if rows:
        yield "<h2>What was tried</h2>\n"
        yield _table(("what", "what became of it", "last", "block", "transaction", "why"), rows)
    yield f"<p>Looked at {_time(report.at)}. If that is long ago, the watch itself does not run any more.</p>\n</body></html>\n"


def _row(one: Tried) -> Sequence[str]:
    at, block = str(one.last.get("at", "")), str(one.last.get("block", ""))
    return one.subject, " → ".join(one.states), at, block, one.transaction, one.why


def _calm(report: Report) -> str:
    if not report.reachable:
        return '<div class="wait">Ledger or node does not answer; it is asked again. No alarm yet.</div>\n'
    if report.facts.waiting is not None or report.pending:
        return '<div class="wait">Nothing is wrong, and something is under way.</div>\n'
    return '<div class="fine">All is well: what is settled is published.</div>\n'


def _standing(report: Report) -> Iterator[tuple[str, str]]:
    facts, memory = report.facts, report.memory
    yield "competition", report.competition
    yield "kind of target", report.kind
    yield "last settled", "nothing yet" if facts.settled is None else f"epoch {facts.settled}"
    yield "last published", "nothing yet" if facts.published is None else f"epoch {facts.published}"
    if facts.waiting is not None:
        outcome = memory.outcome if memory.epoch == facts.waiting else None
        said = "" if outcome is None else f": {outcome.state}" + (f", {what}" if (what := getattr(outcome, "what", "")) else "")
        yield "waits", f"epoch {facts.waiting}, since {_time(facts.since)}{said}"
    if facts.pulse is not None:
        last = "never" if facts.pulse.last is None else f"block {facts.pulse.last}"
        yield "last set by our key", f"{last}; the chain is at block {facts.pulse.now}, its tempo is {facts.pulse.tempo}"
    yield "ledger and node", "answer" if memory.away is None else f"since {_time(memory.away.since)}: {memory.away.what}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first = "".join(f'<th scope="col">{_text(head)}</th>' for head in heads)
    body = "".join(f"<tr>{_cells(row, named=not heads)}</tr>\n" for row in rows)
    return f"<table>\n<tr>{first}</tr>\n{body}</table>\n" if heads else f"<table>\n{body}</table>\n"


def _cells(row: Sequence[str], *, named: bool) -> str:
    head = f'<th scope="row">{_text(row[0])}</th>' if named else f"<td>{_text(row[0])}</td>"
    return head + "".join(f"<td>{_text(cell)}</td>" for cell in row[1:])


def _text(said: str) -> str:
    """What somebody said, as text of the page."""
    return html.escape(printable(said))


def _time(seconds: float) -> str:
    return instant_text(datetime.fromtimestamp(int(seconds), UTC))
