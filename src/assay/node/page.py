"""The page and the metrics of a node: what it does, and what is wrong, for a browser and for Prometheus' node exporter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from assay.node.alarms import CODES, SILENT, SeasonFacts, percent
from assay.node.status import NodeStatus
from assay.publish.faces import Family, alarm_boxes, escaped, metrics_text, note, page_text, table
from assay.scheme.fields import instant_text

__all__ = ["metrics", "page"]

REFRESH = 15.0
"""Seconds after which a browser reads the page again."""
_ENDS = "If that is more than a minute ago, nobody looks any more: assay node status DIR says why."
_ROWS = 200
"""Validators that the page lists."""


def page(name: str, seen: NodeStatus, now: float) -> str:
    """The page. name: of the node's folder."""
    wrong = f"{len(seen.alarms)} wrong: " if seen.alarms else ""
    return page_text(f"{wrong}{name}", f"{name}, {seen.role}", REFRESH, _parts(name, seen), now, _ENDS)


def _parts(name: str, seen: NodeStatus) -> Iterator[str]:
    yield f"<h1>{escaped(name)}</h1>\n"
    yield f'<p class="lede">{escaped(seen.line[:1].upper() + seen.line[1:])}.</p>\n'
    yield from alarm_boxes(seen.alarms)
    waits = seen.content.get("waits")
    if waits:
        yield note("wait", str(waits))
    elif not seen.alarms:
        yield note("fine", "All is well.")
    yield table((), _facts(seen))
    if seen.season is not None and seen.season.validators:
        yield "<h2>Validators</h2>\n"
        yield table(("validator", "stake", "last heard of", "now"), _validators(seen.season))
    if seen.targets:
        yield "<h2>Published to</h2>\n"
        yield table(("target", "last published", "waits"), _targets(seen))


def _facts(seen: NodeStatus) -> Iterator[tuple[str, str]]:
    content = seen.content
    yield "Node", f"{seen.role}, since {content['started']}" if "started" in content else seen.role
    service = content.get("service")
    address = service.get("address") if isinstance(service, dict) else content.get("url") if seen.role == "validator" else None
    if address:
        up = "" if not isinstance(service, dict) or service.get("up") else ", does not run"
        yield "Service", f"{address}{up}"
    if "epoch" in content:
        yield "Open epoch", str(content["epoch"])
        yield "Last settled", "none yet" if content.get("settled") is None else f"epoch {content['settled']}"
    if content.get("closes"):
        yield "Closes", str(content["closes"])
    if seen.role == "validator":
        yield "Service heard of", str(content.get("heard", "never"))
        yield "Judged in this round", f"{content.get('done', 0)} of {content.get('total', 0)}"
        yield "Batches to be sent", str(seen.waiting)
    elif content.get("silent"):
        yield "Waits for", ", ".join(map(str, content["silent"]))


def _validators(season: SeasonFacts) -> Iterator[tuple[str, str, str, str]]:
    total, now = sum(row.stake for row in season.validators), datetime.now(UTC)
    for row in season.validators[:_ROWS]:
        silent = row.heard is None or now - row.heard > SILENT
        doing = "silent" if silent else "judging" if row.busy else "waiting"
        troubles = f", tells {len(row.troubles)} wrong" if row.troubles else ""
        heard = "never" if row.heard is None else instant_text(row.heard)
        yield row.name, percent(row.stake, total), heard, doing + troubles
    if len(season.validators) > _ROWS:
        yield f"and {len(season.validators) - _ROWS} more", "", "", ""


def _targets(seen: NodeStatus) -> Iterator[tuple[str, str, str]]:
    for row in seen.targets:
        published, waiting = row.get("published"), row.get("waiting")
        yield (
            str(row.get("target")),
            "nothing yet" if published is None else f"epoch {published}",
            "nothing" if waiting is None else f"epoch {waiting}",
        )


def metrics(seen: NodeStatus, now: float) -> str:
    """The text of the metrics file. No label has anything that a stranger chose."""
    counts = Counter(alarm.code for alarm, _ in seen.alarms)
    codes = dict.fromkeys((*CODES[seen.role], *sorted(counts)))
    content, season = seen.content, seen.season
    late = None
    if season is not None and not season.wrong:
        moment = datetime.fromtimestamp(now, UTC)
        late = sum(row.heard is None or moment - row.heard > SILENT for row in season.validators)
    families: list[Family] = [
        ("alarm", "gauge", "How many alarms of a code stand.", [({"code": code}, counts.get(code, 0)) for code in codes]),
        ("running", "gauge", "Whether the node runs.", [({}, seen.working)]),
        ("open_epoch", "gauge", "The epoch that is open.", [({}, _number(content.get("epoch")))]),
        ("settled_epoch", "gauge", "The last settled epoch.", [({}, _number(content.get("settled")))]),
        ("looked_timestamp_seconds", "gauge", "When the node last looked at itself.", [({}, int(now))]),
    ]
    if seen.role == "validator":
        families.append(("batches_waiting", "gauge", "Batches that the service does not have yet.", [({}, seen.waiting)]))
    families.append(("validators_silent", "gauge", "Validators that were not heard of for five minutes.", [({}, late)]))
    return metrics_text("assay_node_", {"role": seen.role}, families)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
