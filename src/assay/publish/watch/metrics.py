"""How a watch stands as metrics: Prometheus' text format, for the textfile collector of its node exporter.

Whether the watch itself is alive is seen by `assay_publish_looked_timestamp_seconds`, which grows with every look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from assay.publish.watch.decide import ALARMS
from assay.publish.watch.watching import Report

__all__ = ["metrics"]

_Samples = Iterable[tuple[Mapping[str, str], float | None]]


def metrics(report: Report) -> str:
    """The text of the file. What is not known has no sample."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    facts, pulse = report.facts, report.facts.pulse
    now, last = (None, None) if pulse is None else (pulse.now, pulse.last)
    standing = {alarm.code for alarm, _ in report.alarms}
    alarms: _Samples = [({"alarm": code}, code in standing) for code in ALARMS]
    entries: _Samples = [({"state": state}, count) for state, count in sorted(report.entries.items())]
    families: list[tuple[str, str, str, _Samples]] = [
        ("alarm", "gauge", "Whether somebody has to look at it.", alarms),
        ("reachable", "gauge", "Whether ledger and node answered.", [({}, report.reachable)]),
        ("settled_epoch", "gauge", "The last settled epoch.", [({}, facts.settled)]),
        ("published_epoch", "gauge", "The last epoch that the chain has.", [({}, facts.published)]),
        ("waiting_epoch", "gauge", "The epoch that is to be published next.", [({}, facts.waiting)]),
        ("block", "gauge", "The chain's last block.", [({}, now)]),
        (
            "last_set_block",
            "gauge",
            "The block in which our key last set something.",
            [({}, last)],
        ),
        ("last_set_timestamp_seconds", "gauge", "When that was, about.", [({}, report.last_set)]),
        ("entries_total", "counter", "What the journal has, by outcome.", entries),
        ("looked_timestamp_seconds", "gauge", "When the watch last looked.", [({}, report.at)]),
    ]
    for name, kind, text, samples in families:
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            yield f"# HELP assay_publish_{name} {text}"
            yield f"# TYPE assay_publish_{name} {kind}"
        for labels, value in known:
            said = ",".join(f'{key}="{word}"' for key, word in ({"target": report.target} | dict(labels)).items())
            yield f"assay_publish_{name}{{{said}}} {float(value):.15g}"
