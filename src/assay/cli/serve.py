"""`assay serve`: the service of a season, its pages and its API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.serve.listening import ServeOptions

__all__ = [
    "AddressOption",
    "CertificateKeyOption",
    "CertificateOption",
    "HostOption",
    "PortOption",
    "ProxyOption",
    "WorkersOption",
    "options_of",
    "serve",
    "tell_addresses",
]

PortOption = Annotated[int, typer.Option("--port", "-p", metavar="N", min=0, max=65_535, help="The port; 0: any free one.")]
HostOption = Annotated[str, typer.Option(metavar="HOST", help="Where to listen. Other machines cannot reach a loopback one.")]
AddressOption = Annotated[
    str | None, typer.Option(metavar="URL", help="The address that others use, as a reverse proxy has it.", show_default=False)
]
CertificateOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A PEM certificate, for TLS without a proxy.", show_default=False)
]
CertificateKeyOption = Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's PEM key.", show_default=False)]
WorkersOption = Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Processes that serve.")]
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
    port: PortOption = 8400,
    host: HostOption = "127.0.0.1",
    address: AddressOption = None,
    certificate: CertificateOption = None,
    certificate_key: CertificateKeyOption = None,
    workers: WorkersOption = 1,
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
    options = options_of(place, port, host, address, certificate, certificate_key, workers, proxy)
    from assay.serve.listening import listen
    from assay.serve.run import run

    with listen(options) as opened:
        tell_addresses(options, opened.getsockname()[1])
        run(options, opened)


def options_of(
    place: Path,
    port: int,
    host: str,
    address: str | None,
    certificate: Path | None,
    certificate_key: Path | None,
    workers: int,
    proxy: list[str] | None,
) -> ServeOptions:
    """The options of a service, checked. Raises BadInput, CannotSettle if the extra `serve` is missing."""
    from assay.errors import BadInput
    from assay.serve import installed

    installed()
    from assay.serve.listening import ServeOptions, networks

    if (certificate is None) != (certificate_key is None):
        raise BadInput("a certificate and its key come together", field="--certificate", hint="give --certificate-key too")
    if place.name == "scheme.toml":
        raise BadInput("this file is a competition's rules, and no subnet file", file=place, hint=f"assay serve {place.parent}")
    networks(proxy or ())
    return ServeOptions(place, host, port, address, certificate, certificate_key, workers, tuple(proxy or ()))


def tell_addresses(options: ServeOptions, port: int) -> None:
    """Open what is to be served, so that what is wrong is said before anybody is served; print where it is. Raises AssayError."""
    from assay.cli.errors import printable, warn
    from assay.serve.listening import addresses
    from assay.serve.site import open_site

    with open_site(options.place, addresses(options, port)) as site:
        lines = [f"{served.name}: {site.address}/{segment}/" for segment, served in site.competitions.items()]
        closed = [served.name for served in site.competitions.values() if served.store is None]
    if not options.is_loopback:
        warn([f"other machines reach {options.host}:{port}"])
    if closed:
        warn([f"{', '.join(closed)}: no ledger, so only pages are served; assay ledger init makes one"])
    for line in lines:
        typer.echo(printable(line))
    typer.echo("Ctrl-C ends it.")
