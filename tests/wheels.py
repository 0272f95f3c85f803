"""The wheel of this package, built from a copy of its files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What a build reads besides the packages.
_BESIDES = ("pyproject.toml", "README.md", "LICENSE", "src/relstate_dagster")


def tracked() -> list[str]:
    """The files of the packages, and the links to them."""
    command = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "assets",
        "jobs",
        "state_lib",
        "relstate_dagster",
    ]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True).stdout.split()


def called(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(command, cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **environment}, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copied_tree(copy: Path) -> Path:
    """Copy what a build reads: building leaves its files in the folder, and takes up those of an earlier build."""
    for name in [*tracked(), *_BESIDES]:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    return copy


def built(tree: Path, folder: Path, what: str = "wheel") -> Path:
    """Build a ``wheel`` or ``sdist`` of a tree into a folder, by the build backend of this environment."""
    folder.mkdir(parents=True, exist_ok=True)
    code = f"import sys; from setuptools import build_meta; build_meta.build_{what}(sys.argv[1])"
    called([sys.executable, "-W", "ignore", "-c", code, str(folder)], tree)
    (found,) = folder.iterdir()
    return found
