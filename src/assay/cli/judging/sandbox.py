"""`assay sandbox`: checks the sandbox on this machine, and manages the root file systems that bubblewrap uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.judging.live import EngineOption, RuntimeOption, SandboxOption
from assay.cli.output import AsJson, emit
from assay.judge.kind_options import SandboxName

if TYPE_CHECKING:
    from assay.judge.sandbox.images import Base

__all__ = ["app"]

app = typer.Typer(
    name="sandbox",
    help="Check the sandboxes in which agents run, and prepare their root file systems.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

base = typer.Typer(name="base", help="Root file systems of images, for bubblewrap.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(base)

ImageName = Annotated[str, typer.Argument(metavar="IMAGE", help="The name after FROM, with its tag.", show_default=False)]


@app.callback()
def _group() -> None:
    """Check the sandboxes in which agents run, and prepare their root file systems."""


@app.command()
def check(
    sandbox: SandboxOption = SandboxName.bubblewrap,
    engine: EngineOption = None,
    runtime: RuntimeOption = None,
    as_json: AsJson = False,
) -> None:
    """Check on this machine that a sandbox isolates its boxes: no network, no host files, no privilege, and limits that hold.

    Ends with 1 if a check fails. Then do not run strangers' agents here.

    \b
    Examples:
      assay sandbox check
      assay sandbox check --sandbox containers --runtime runsc
    """
    from assay.cli.errors import printable
    from assay.judge.sandbox import choose
    from assay.judge.sandbox.check import check as run_checks

    chosen = choose(sandbox.value, engine=engine, runtime=runtime)
    chosen.sweep()
    if not as_json:
        typer.echo(printable(chosen.describe()))
    results = []
    for result in run_checks(chosen):
        results.append(result)
        if as_json:
            continue
        mark, colour = ("✓", typer.colors.GREEN) if result.ok else ("✗", typer.colors.RED)
        typer.secho(mark, fg=colour, nl=False)
        typer.echo(f" {result.name}" + ("" if result.ok else f": {printable(result.why)}"))
    failed = sum(not result.ok for result in results)
    if as_json:
        rows = [{"name": result.name, "holds": result.ok, "why": result.why} for result in results]
        emit({"sandbox": chosen.describe(), "holds": not failed, "checks": rows})
    else:
        typer.echo(f"{len(results) - failed} of {len(results)} hold")
    if failed:
        raise typer.Exit(1)


@base.callback()
def _bases() -> None:
    """Root file systems of images, for bubblewrap.

    A task starts in the image that its Dockerfile names after FROM. Bubblewrap uses the root file system that was added for that
    image. If there is none, it refuses the task, unless the task says that any will do. Root file systems are stored in
    $ASSAY_STATE/bases, else in /var/lib/assay/bases for root and in ~/.local/share/assay/bases for other users.
    """


@base.command()
def add(
    image: ImageName,
    archive: Annotated[
        Path | None,
        typer.Option("--from-archive", metavar="FILE", help="A tar archive of its files, as `podman export` writes it."),
    ] = None,
    engine: EngineOption = None,
    as_json: AsJson = False,
) -> None:
    """Add the root file system of an image, from a container engine that has the image or from an archive of its files.

    \b
    Examples:
      assay sandbox base add ubuntu:24.04
      assay sandbox base add python:3.13-slim --from-archive python.tar.gz
    """
    from assay.cli.errors import printable
    from assay.errors import BadInput
    from assay.judge.sandbox import images

    if archive is not None and engine is not None:
        raise BadInput("an archive needs no engine", field="--engine", hint="leave out --engine or --from-archive")
    added = images.add_image(image, engine) if archive is None else images.add_archive(image, archive)
    if emit(_fields(added), as_json):
        return
    typer.echo(printable(f"{added.name} is {added.digest}, in {added.folder}"))


def _fields(root: Base) -> dict[str, str]:
    return {"name": root.name, "digest": root.digest, "folder": str(root.folder), "source": root.source}


@base.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the root file systems that were added, with the digests of their files.

    \b
    Example:
      assay sandbox base list
    """
    from assay.cli.show import Column, grid, sentence, show
    from assay.judge.sandbox import images

    roots = list(images.added())
    if emit({"bases": [_fields(root) for root in roots]}, as_json):
        return
    if not roots:
        show(sentence(f"There are no root file systems in {images.state() / 'bases'}."))
        return
    show(
        grid(
            [
                Column("image", [root.name for root in roots], style="bold"),
                Column("digest", [root.digest for root in roots], kind="key"),
                Column("from", [root.source for root in roots], kind="crop"),
            ]
        )
    )


@base.command()
def remove(image: ImageName, as_json: AsJson = False) -> None:
    """Remove the root file system of an image. Do not remove it while a run uses it.

    \b
    Example:
      assay sandbox base remove ubuntu:24.04
    """
    from assay.judge.sandbox import images

    images.remove(image)
    if emit({"removed": image}, as_json):
        return
    typer.echo(f"{image} is removed")
