"""A model that is none: an OpenAI-compatible server on loopback whose answers are written beforehand. For demos and tests."""

from __future__ import annotations

from assay.judge.rubric.scripted.script import Script, read_script
from assay.judge.rubric.scripted.server import Server, opened

__all__ = ["Script", "Server", "opened", "read_script"]
