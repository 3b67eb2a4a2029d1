"""A root file system for tests: a shell, the libraries that it needs, and a word of its own in /etc."""

import os
import re
import shutil
import subprocess
from pathlib import Path


def small_root(top: Path, *programs: str) -> None:
    """Makes it in a new folder, with /bin/sh and these programs."""
    (top / "usr/bin").mkdir(parents=True)
    (top / "etc").mkdir()
    (top / "etc/mine").write_text("mine\n")
    (top / "etc/up").symlink_to("../usr/bin/sh")
    for program in ("/bin/sh", *programs):
        real = os.path.realpath(program)
        printed = subprocess.run(["ldd", real], capture_output=True, text=True, check=True).stdout
        shutil.copy(real, top / "usr/bin" / Path(program).name)
        for library in re.findall(r"(/\S+)", printed):
            place = top / "usr" / os.path.relpath(os.path.realpath(library), "/").removeprefix("usr/")
            named = top / "usr" / library.lstrip("/").removeprefix("usr/")
            for target in {place, named}:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, target)
    for name in ("bin", "lib", "lib64"):
        (top / name).symlink_to(f"usr/{name}")
