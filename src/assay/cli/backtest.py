"""`assay backtest`: a competition's epochs under other rules, side by side: who gains and who loses, to the digests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.init import presets
from assay.cli.output import AsJson, emit

if TYPE_CHECKING:
    from fractions import Fraction

    from rich.console import RenderableType

    from assay.rules.backtest import Backtest, ShareChange

__all__ = ["backtest", "signed"]


def backtest(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The competition's folder.", show_default=False)],
    scheme: Annotated[
        str,
        typer.Option(metavar="PRESET|FILE|DIR", help="The other rules.", autocompletion=presets, show_default=False),
    ],
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown, for a pull request that changes the rules.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="With --json or --markdown: write it into a file.")
    ] = None,
    top: Annotated[int | None, typer.Option(metavar="N", help="Show so many rows of each table [32].", min=1)] = None,
) -> None:
    """Settle the past again under other rules, and show who gains and who loses.

    With a ledger, every settled epoch is settled again from its own registry and evidence. The other rules apply from the first
    epoch on, because decay depends on earlier settlements. Nothing is stored or signed. Without a ledger, the epochs with
    evidence are settled twice, with today's registry and submissions, as a folder knows no others.

    The other rules must score the same kind of evidence, and reward in the same way. All numbers are exact; the digests of both
    settlements of each epoch, and of the whole comparison, are shown.

    \b
    Examples:
      assay backtest my-competition --scheme new.toml
      assay backtest my-competition --scheme new.toml --markdown --output backtest.md
      assay backtest my-competition --scheme new.toml --json | jq .participants
    """
    if as_json and markdown:
        raise typer.BadParameter("--json and --markdown exclude each other", param_hint="--markdown")
    if output is not None and not (as_json or markdown):
        raise typer.BadParameter("goes with --json or --markdown", param_hint="--output")
    from assay.cli.output import Working, json_bytes, put
    from assay.cli.schemes import scheme_of
    from assay.competition import open_competition

    other = scheme_of(scheme)
    with Working(f"settling {folder} again"):
        comparison = open_competition(folder).backtest(other)
    if markdown:
        put(as_markdown(comparison, folder.resolve().name).encode(), output)
    elif output is not None:
        put(json_bytes(comparison.document), output)
    elif not emit(lambda: comparison.document, as_json):
        from assay.cli.show import TOP, show

        show(*_tables(comparison, folder, top or TOP))


def signed(share: Fraction) -> str:
    """A change of a share in percentage points with its sign: "+1.25"; for the reader."""
    from assay.exact import half_even, text

    count = half_even(abs(share.numerator) * 10_000, share.denominator)
    return f"{'−' if share < 0 and count else '+' if count else ''}{text(count, 2)}"


def _percent(share: Fraction) -> str:
    from assay.exact import share_text
    from assay.settle.story.telling import percent

    return percent(share_text(share))


def _named(comparison: Backtest) -> tuple[str, str]:
    old, new = (f"{scheme.name} {scheme.scheme.version}" for scheme in (comparison.old, comparison.new))
    return (f"{old} (now)", f"{new} (other)") if old == new else (old, new)


def _rest_name(comparison: Backtest) -> str:
    return "refunded and fees" if comparison.old.reward.kind == "payout" else "burns"


def _tables(comparison: Backtest, folder: Path, top: int) -> Iterator[RenderableType]:
    from assay.cli.show import Column, first, grid, heading, note, rest

    old, new = _named(comparison)
    count = len(comparison.epochs)
    yield heading(f"{folder.resolve().name}: {old} and {new}, {'one epoch' if count == 1 else f'{count} epochs'}")
    yield ""
    changes = [*comparison.changes, comparison.rest]
    names = [*(change.participant for change in comparison.changes), _rest_name(comparison)]
    columns = [
        Column("participant", names, kind="key", style="bold"),
        Column("mean share now", [_percent(change.old) for change in changes], right=True),
        Column("under the other", [_percent(change.new) for change in changes], right=True),
        Column("change, points", [signed(change.gain) for change in changes], right=True),
    ]
    yield grid(first(columns, top, len(changes) - 1), styles=[*("" for _ in comparison.changes[:top]), "dim"])
    yield from rest(top, len(changes) - 1)
    yield ""
    shown = comparison.epochs[-top:]
    yield grid(
        [
            Column("epoch", [str(pair.epoch) for pair in shown], right=True),
            Column("moved", [_percent(pair.moved) for pair in shown], right=True),
            Column("agreed", [f"{pair.old.agreed} → {pair.new.agreed}" for pair in shown], right=True),
            Column("left out", [f"{pair.old.excluded} → {pair.new.excluded}" for pair in shown], right=True),
            Column("digest now", [pair.old.digest for pair in shown], kind="key", spare=2),
            Column("other", [pair.new.digest for pair in shown], kind="key", spare=1),
        ]
    )
    yield note(f"Rules {comparison.old.digest}")
    yield note(f"Other {comparison.new.digest}")
    yield note(f"Digest of this comparison {comparison.document['digest']}")


def as_markdown(comparison: Backtest, name: str) -> str:
    """The comparison as Markdown: a sentence, the participants, the epochs with the digests of both settlements."""
    old, new = _named(comparison)
    epochs = comparison.epochs
    digests = f"Rules now: `{comparison.old.digest}`; other rules: `{comparison.new.digest}`; this comparison: "
    digests += f"`{comparison.document['digest']}`."
    span = f"epoch {epochs[0].epoch}" if len(epochs) == 1 else f"{len(epochs)} epochs, {epochs[0].epoch} to {epochs[-1].epoch}"
    lines = [
        f"## Back-test of {_cell(name)}: {_cell(old)} → {_cell(new)}",
        "",
        f"Settled again by the evidence of {span}, from the first epoch on. Shares are means over these epochs.",
        "",
        f"| participant | {_cell(old)} | {_cell(new)} | change, points |",
        "|---|--:|--:|--:|",
        *(_row(_cell(change.participant), change) for change in comparison.changes),
        _row(f"*{_rest_name(comparison)}*", comparison.rest),
        "",
        "| epoch | moved | agreed | scores left out | settlement now | under the other rules |",
        "|--:|--:|--:|--:|---|---|",
        *(
            f"| {pair.epoch} | {_percent(pair.moved)} | {pair.old.agreed} → {pair.new.agreed} | "
            f"{pair.old.excluded} → {pair.new.excluded} | `{pair.old.digest}` | `{pair.new.digest}` |"
            for pair in epochs
        ),
        "",
        digests,
        "",
    ]
    return "\n".join(lines)


def _row(name: str, change: ShareChange) -> str:
    return f"| {name} | {_percent(change.old)} | {_percent(change.new)} | {signed(change.gain)} |"


def _cell(text: str) -> str:
    """A text inside a table of Markdown: what has a meaning there is written so that it has none."""
    escaped = "".join(f"\\{sign}" if sign in "\\`*_{}[]<>#|~!" else sign for sign in text)
    return escaped.replace("\n", " ")
