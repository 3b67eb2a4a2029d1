"""The status that a process shows: a page of one HTML file, and metrics in Prometheus' text format. A watch and the nodes use it.

The page has no script and names no other file: it can be opened from the disk, and any web server can hand it out. The browser
reads it again after some seconds. Its colours and sizes are those of the competition's pages (`serve/static/style.css`). The
metrics are for the textfile collector of Prometheus' node exporter.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from assay.errors import printable
from assay.publish.alarms import Alarm
from assay.scheme.fields import instant_text

__all__ = [
    "METRICS_BEGIN",
    "PAGE_BEGIN",
    "Family",
    "alarm_boxes",
    "escaped",
    "metrics_text",
    "note",
    "page_text",
    "table",
    "time_text",
]

Samples = Iterable[tuple[Mapping[str, str], float | None]]
Family = tuple[str, str, str, Samples]
"""Metrics of one name: the name, `gauge` or `counter`, what it is, and (labels, value) rows; None is not known, and left out."""
PAGE_BEGIN = b"<!doctype html>"
METRICS_BEGIN = b"# HELP assay_"
"""The beginnings of the files: a file that begins otherwise was not written by Assay, and is not replaced."""

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="{seconds}"><meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>
:root {{ color-scheme: light dark; --paper: #fbfaf8; --card: #fff; --ink: #1b1a17; --ink-2: #4f4d47; --ink-3: #6b6860;
 --line: #e8e5de; --line-2: #c9c5ba; --accent: #0b6b66; --wash: #edf5f4; --on-accent: #fff; --bad: #b3261e; --bad-wash: #fdf1ef }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper: #121311; --card: #1a1b19; --ink: #eeede8; --ink-2: #bbb9b0;
 --ink-3: #98968d; --line: #2b2c29; --line-2: #4a4b46; --accent: #62c9bf; --wash: #172624; --on-accent: #0c1413;
 --bad: #ff9a8d; --bad-wash: #2e1b18 }} }}
* {{ box-sizing: border-box }}
body {{ margin: 0; background: var(--paper); color: var(--ink);
 font: 400 1rem/1.5 Inter, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif }}
header {{ border-bottom: 1px solid var(--line) }}
header p, main {{ max-width: 60rem; margin: 0 auto; padding: 0 max(16px, min(32px, 4vw)) }}
header p {{ display: flex; align-items: center; gap: 12px; height: 56px; font-weight: 650 }}
header span {{ color: var(--ink-3); font-size: .875rem; font-weight: 400; padding-left: 12px }}
header span {{ border-left: 1px solid var(--line-2); min-width: 0; white-space: nowrap }}
header span {{ overflow: hidden; text-overflow: ellipsis }}
header svg {{ flex: none; display: block }} .mark {{ fill: var(--accent) }}
.streak {{ fill: none; stroke: var(--on-accent); stroke-width: 2.4; stroke-linecap: round }}
main {{ padding-block: 40px 64px }}
h1 {{ margin: 0; font-size: 2.5rem; line-height: 1.1; font-weight: 650; letter-spacing: -.025em; overflow-wrap: anywhere }}
h2 {{ margin: 40px 0 0; font-size: 1.25rem; font-weight: 600; letter-spacing: -.012em }}
.lede {{ margin: 12px 0 0; font-size: 1.25rem; line-height: 1.45; color: var(--ink-2); overflow-wrap: anywhere }}
.foot {{ margin-top: 40px; font-size: .875rem; color: var(--ink-3) }}
table {{ border-collapse: collapse; width: 100%; margin-top: 16px; font-size: .875rem; font-variant-numeric: tabular-nums }}
th, td {{ text-align: left; padding: 8px 24px 8px 0; border-top: 1px solid var(--line); vertical-align: baseline }}
tr > :last-child {{ padding-right: 0 }}
td {{ overflow-wrap: anywhere }} th {{ font-weight: 500; color: var(--ink-3); white-space: nowrap }}
thead th::first-letter {{ text-transform: uppercase }} .facts {{ margin-top: 24px }}
td:first-child, .facts td {{ color: var(--ink) }} .facts th {{ width: 1%; font-weight: 400 }}
.alarm, .fine, .wait {{ border: 1px solid var(--line-2); border-radius: 8px; padding: 14px 18px; margin-top: 16px }}
.alarm {{ border-color: var(--bad); background: var(--bad-wash) }}
.fine {{ border-color: var(--accent); background: var(--wash) }}
.wait {{ border-style: dashed }} .alarm strong {{ font-weight: 600; overflow-wrap: anywhere }}
.alarm p {{ margin: 4px 0 0; color: var(--ink-2); font-size: .875rem; overflow-wrap: anywhere }}
@media (max-width: 640px) {{ h1 {{ font-size: 1.75rem }} .lede {{ font-size: 1rem }}
 .rows thead {{ position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }}
 .rows tr {{ display: block; border-top: 1px solid var(--line); padding: 8px 0 }}
 .rows td {{ display: block; border: 0; padding: 0 }} .rows td:empty {{ display: none }}
 .rows td + td {{ color: var(--ink-2); display: grid; grid-template-columns: 8em minmax(0, 1fr) }}
 .rows td + td:empty {{ display: none }} .rows td[data-l]::before {{ content: attr(data-l); color: var(--ink-3) }} }}
</style></head><body>
<header><p><svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true"><rect class="mark" width="20" height="20" rx="5"/>
<path class="streak" d="M4.5 14.2L13 5.6"/></svg>Assay<span>{where}</span></p></header><main>
"""


def page_text(title: str, where: str, refresh: float, parts: Iterable[str], looked: float, ends: str) -> str:
    """Write the page. where: in its head, beside the name. refresh: seconds until it is read again; looked: when it was written.

    ends: what it means if that is long ago. title, where and ends are plain text; the parts are HTML.
    """
    head = _HEAD.format(seconds=max(1, round(refresh)), title=escaped(title), where=escaped(where))
    foot = f'<p class="foot">Last look: {time_text(looked)}. {escaped(ends)}</p>\n</main></body></html>\n'
    return head + "".join(parts) + foot


def alarm_boxes(alarms: Iterable[tuple[Alarm, float]]) -> Iterator[str]:
    """A box for each alarm that stands: what is wrong, what to do, since when."""
    for alarm, since in alarms:
        yield f'<div class="alarm" role="alert"><strong>{escaped(alarm.what)}</strong>\n'
        if alarm.hint:
            yield f"<p>What to do: {escaped(alarm.hint.rstrip('.'))}.</p>\n"
        yield f"<p>Since {time_text(since)}.</p></div>\n"


def note(kind: str, what: str) -> str:
    """Write a box with one sentence. kind: `fine`, or `wait` for what is under way."""
    return f'<div class="{kind}">{escaped(what)}</div>\n'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table of plain text; without heads, the first cell of each row is its head."""
    if not heads:
        body = "".join(f'<tr><th scope="row">{escaped(row[0])}</th>{_cells(row[1:])}</tr>\n' for row in rows)
        return f'<table class="facts"><tbody>\n{body}</tbody></table>\n'
    first = "".join(f'<th scope="col">{escaped(head)}</th>' for head in heads)
    body = "".join(f"<tr>{_cells(row, ('', *heads[1:]))}</tr>\n" for row in rows)
    return f'<table class="rows"><thead><tr>{first}</tr></thead><tbody>\n{body}</tbody></table>\n'


def _cells(cells: Sequence[str], heads: Sequence[str] = ()) -> str:
    """The cells of a row; where the page is narrow, each shows its head beside it."""
    named = heads or ("",) * len(cells)
    return "".join(
        f'<td data-l="{escaped(head)}">{escaped(cell)}</td>' if head else f"<td>{escaped(cell)}</td>"
        for head, cell in zip(named, cells, strict=True)
    )


def escaped(text: str) -> str:
    """A text from outside, escaped for the page."""
    return html.escape(printable(text))


def time_text(seconds: float) -> str:
    """A time, given as seconds since 1970, as people and programs read it: RFC 3339 in UTC."""
    return instant_text(datetime.fromtimestamp(int(seconds), UTC))


def metrics_text(prefix: str, labels: Mapping[str, str], families: Iterable[Family]) -> str:
    """Write the metrics file. prefix: of each name. labels: of every sample."""
    return "".join(f"{line}\n" for line in _lines(prefix, labels, families))


def _lines(prefix: str, labels: Mapping[str, str], families: Iterable[Family]) -> Iterator[str]:
    for name, kind, text, samples in families:
        known = [(own, value) for own, value in samples if value is not None]
        if known:
            yield f"# HELP {prefix}{name} {text}"
            yield f"# TYPE {prefix}{name} {kind}"
        for own, value in known:
            pairs = ",".join(f'{key}="{_label(label)}"' for key, label in {**labels, **own}.items())
            yield f"{prefix}{name}{{{pairs}}} {float(value):.15g}"


def _label(value: str) -> str:
    """A label's value as the format escapes it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
