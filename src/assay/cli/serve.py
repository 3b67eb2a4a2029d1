"""`assay serve`: the service of a season, its pages and its API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["serve"]

ProxyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        help="A reverse proxy's address or network, such as 10.0.0.0/8. Its X-Forwarded-For is believed. May be repeated.",
        show_default=False,
    ),
]


def serve(
    place: Annotated[Path, typer.Argument(metavar="DIR|SUBNET.toml", help="A competition's folder, or a subnet file.")],
    port: Annotated[int, typer.Option("--port", "-p", metavar="N", min=0, max=65_535, help="The port; 0: any free one.")] = 8400,
    host: Annotated[str, typer.Option(metavar="HOST", help="Where to listen. Other machines cannot reach a loopback one.")] = (
        "127.0.0.1"
    ),
    address: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The address that others use, as a reverse proxy has it.", show_default=False),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A PEM certificate, for TLS without a proxy.", show_default=False)
    ] = None,
    certificate_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's PEM key.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Processes that serve.")] = 1,
    proxy: ProxyOption = None,
) -> None:
    """Serve a season: its pages, and the API with which people hand in and validators send evidence.

    One process and the competition's folder are the whole season. It listens on loopback; put a reverse proxy before it and
    name the public address with --address (docs/service.md has the lines for Caddy and nginx), and the proxy's own address with
    --proxy, so that each client has its own limits. Ctrl-C ends it; what was acknowledged is on the disk.

    \b
    Examples:
      assay serve my-competition
      assay serve my-subnet.toml --address https://assay.example.org --proxy 127.0.0.1
    """
    from assay.cli.errors import printable, warn
    from assay.errors import BadInput
    from assay.serve import installed

    installed()
    from assay.serve.listening import ServeOptions, addresses, listen, networks
    from assay.serve.run import run
    from assay.serve.site import open_site

    if (certificate is None) != (certificate_key is None):
        raise BadInput("a certificate and its key come together", field="--certificate", hint="give --certificate-key too")
    if place.name == "scheme.toml":
        raise BadInput("this file is a competition's rules, and no subnet file", file=place, hint=f"assay serve {place.parent}")
    networks(proxy or ())
    options = ServeOptions(place, host, port, address, certificate, certificate_key, workers, tuple(proxy or ()))
    with listen(options) as opened:
        known = addresses(options, opened.getsockname()[1])
        with open_site(place, known) as site:  # what is wrong is said before anybody is served
            lines = [f"{served.name}: {site.address}/{segment}/" for segment, served in site.competitions.items()]
            closed = [served.name for served in site.competitions.values() if served.store is None]
        if not options.is_loopback:
            warn([f"other machines reach {host}:{opened.getsockname()[1]}"])
        if closed:
            warn([f"{', '.join(closed)}: no ledger, so only pages are served; assay ledger init makes one"])
        for line in lines:
            typer.echo(printable(line))
        typer.echo("Ctrl-C ends it.")
        run(options, opened)
