"""Glob against Python's own, on trees without links and dotted names, where both must agree."""

from __future__ import annotations

import glob
import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner_process import FileTools, fill

names = st.sampled_from(["a", "b", "ab", "a.py", "b.py", "é"])
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
parts = st.sampled_from(["**", "*", "a*", "*.py", "?", "[ab]", "[!a]*", "a", "b", "*b*", "***"])
patterns = st.lists(parts, min_size=1, max_size=4).map("/".join)


@settings(max_examples=50)
@given(st.lists(paths, max_size=8), st.lists(patterns, min_size=1, max_size=6), st.sampled_from(["upper", "openat2"]))
def test_the_same_files_as_pythons_glob(files, wanted, kind):
    with tempfile.TemporaryDirectory() as folder:
        root, upper = Path(folder) / "root", Path(folder) / "upper"
        for top in (root, upper):
            top.mkdir()
        for i, path in enumerate(files):
            try:
                fill(upper if kind == "upper" and i % 2 else root, {path: b""})
            except OSError:
                continue  # a file stands where this one wants a folder
        run = FileTools(kind, root, upper)
        try:
            for pattern in wanted:
                found = set()
                for top in (root, upper) if kind == "upper" else (root,):
                    matches = glob.glob(pattern, root_dir=top, recursive=True)
                    found |= {path for path in matches if os.path.isfile(os.path.join(top, path))}
                if kind == "upper":  # a file hides a folder below it, and the other way round
                    found = {path for path in found if run.view.lstat(tuple(path.split("/"))) is not None}
                    found = {path for path in found if not os.path.isdir(upper / path)}
                assert run("Glob", pattern=pattern) == ("\n".join(sorted(found)) or "No files matched.")
        finally:
            run.close()
