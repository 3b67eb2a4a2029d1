"""One digest for a whole tree.

It is the SHA-256 over one line per entry, folders before what is in them, names in a folder sorted by their bytes:
`KIND CONTENT PATH`, with KIND `file`, `exec` (its owner may run it), `folder`, `link`, `fifo`, `socket` or `device`. CONTENT is
the SHA-256 of a file's bytes or of a link's target, else `-`. PATH is percent-encoded; of the top it is `.`.

If a file has all-zero blocks of 64 KiB, they are left out of its hash, and `:SIZE:` and the SHA-256 of the lines
`OFFSET LENGTH LF`, one per run of such blocks, follow. So a terabyte of nothing costs nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from contextlib import closing
from pathlib import Path
from urllib.parse import quote_from_bytes

from assay.judge.tree.held import PLAIN, blocks, holding, kind_of, opened, visit
from assay.judge.tree.model import OURS, Bounds, Budget

__all__ = ["digest"]


def digest(root: Path, beneath: str = "", *, bounds: Bounds = OURS, once: bool = False) -> str:
    """`sha256:` and the digest of a file or folder, as the head of this module says; raises Missing, TooMuch and OSError.

    root is reached as given; what is `beneath` it is reached through real folders only. A file with several names is read once.
    once: it also counts once for the bounds.
    """
    seen: dict[tuple[int, int], tuple[str, int]] = {}
    total, budget = hashlib.sha256(), Budget(bounds)
    with holding(root, beneath) as (parent, name), closing(visit(parent, name, budget)) as found:
        for path, holder, last, info in found:
            kind = kind_of(info)
            content = "-"
            if kind in ("file", "exec"):
                key, before = (info.st_dev, info.st_ino), budget.bytes
                if info.st_nlink > 1 and key in seen:
                    content, count = seen[key]
                    budget.data(0 if once else count)
                else:
                    with opened(last, PLAIN, holder) as number:
                        content = _hash(number, budget)
                    if info.st_nlink > 1:
                        seen[key] = content, budget.bytes - before
            elif kind == "link":
                content = hashlib.sha256(os.fsencode(os.readlink(last, dir_fd=holder))).hexdigest()
            total.update(f"{kind} {content} {quote_from_bytes(os.fsencode(path))}\n".encode())
    return f"sha256:{total.hexdigest()}"


def _hash(number: int, budget: Budget) -> str:
    size = os.fstat(number).st_size
    content, gaps, end, whole = hashlib.sha256(), hashlib.sha256(), 0, True
    for offset, block in itertools.chain(blocks(number, size, budget), ((size, b""),)):
        if offset > end:
            gaps.update(f"{end} {offset - end}\n".encode())
            whole = False
        content.update(block)
        end = offset + len(block)
    return content.hexdigest() if whole else f"{content.hexdigest()}:{size}:{gaps.hexdigest()}"
