"""The long examples in the service's OpenAPI document: what a service really answers about a small competition.

    python tests/serve/api_examples.py      writes src/assay/serve/examples.json again, after an answer got another shape

A test compares the file with the answers. Only a receipt is left as it was written: it names the version that signed it.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1] / "kits")]

import ledger_kit
import test_public
from service_kit import Running, running

FILE = Path(__file__).parents[2] / "src" / "assay" / "serve" / "examples.json"
PLACE = "/v1/small/epochs/3"
DOCUMENTS = {
    "settlement": PLACE,
    "receipt": f"{PLACE}/receipt",
    "explanation": f"{PLACE}/participants/m1",
    "proof": f"{PLACE}/participants/m1/proof",
}
TEXTS = {"weights.csv": f"{PLACE}/weights.csv", "checkpoint": "/small/log/checkpoint", "feed.atom": "/small/feed.atom"}


def examples(service: Running) -> dict[str, Any]:
    """Name → example, from a service with `test_public.seasoned`."""
    folder = service.site.competition("small").folder
    batch = next(ledger_kit.batches(folder, ledger_kit.records(epoch=5)))
    answers: dict[str, Any] = {name: service.ask("GET", path).json for name, path in DOCUMENTS.items()}
    answers |= {name: service.ask("GET", path).body.decode() for name, path in TEXTS.items()}
    answers["feed.atom"] = answers["feed.atom"].replace(service.address, "https://assay.example.org")
    return answers | {"batch": batch.data.decode()}


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as place:
        test_public.seasoned(Path(place) / "small")
        with running(Path(place) / "small") as service:
            FILE.write_text(json.dumps(examples(service), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
