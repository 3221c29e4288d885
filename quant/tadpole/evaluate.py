"""Measure a model file end to end: real inference, tools really executed, the project's own tests decide.

Projects of the demonstration split only: names and files that training never saw.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from quant.tadpole import prompt
from quant.tadpole.engine import Engine
from quant.tadpole.generator import FAMILIES, demo_project, project
from quant.tadpole.project import TEST_COMMAND, Project
from quant.tadpole.trajectory import observed, opening, show_file

_CALL = re.compile(r"<tool_call>\s*<function=(\w+)>\n(.*?)</function>\s*</tool_call>", re.DOTALL)
_VALUE = re.compile(r"<parameter=(\w+)>\n(.*?)\n</parameter>", re.DOTALL)
_TURNS = 8


@dataclass
class Outcome:
    """What came of one project."""

    repaired: bool  # the tests pass now
    exact: bool  # the files are as they should be
    honest: bool  # the last message says what is true
    transcript: list[str] = field(default_factory=list)


def run_tests(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a workspace."""
    argv = [sys.executable, "-B", *TEST_COMMAND.split()[1:]]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def _edit(path: Path, name: str, values: dict[str, str]) -> str:
    text, old, new = path.read_text("utf-8"), values["old_string"], values["new_string"]
    n, every = text.count(old), values.get("replace_all", "").lower() == "true"
    if old == new:
        return "ValueError: old_string and new_string are the same"
    if n == 0:
        return "ValueError: old_string was not found"
    if n > 1 and not every:
        return f"ValueError: old_string matched {n} times; set replace_all=true or use a more specific old_string"
    path.write_text(text.replace(old, new), "utf-8")
    return f"Edited {name} ({n} replacement{'s' if n > 1 else ''})."


def execute(folder: Path, name: str, values: dict[str, str]) -> str:
    """The tools, as far as the tiny model uses them."""
    try:
        if name == "Bash":
            if values["command"] != TEST_COMMAND:
                return "Exit code: 127\nSTDOUT:\n\nSTDERR:\nbash: command not found\n"
            done = run_tests(folder)
            return f"Exit code: {done.returncode}\nSTDOUT:\n{done.stdout}\nSTDERR:\n{done.stderr}"
        if name == "Glob":
            found = sorted(p.relative_to(folder).as_posix() for p in folder.glob(values["pattern"]) if p.is_file())
            return "\n".join(found) or "No files matched."
        target = (folder / values["file_path"]).resolve()
        if not target.is_relative_to(folder):
            return "PermissionError: outside the workspace"
        if name == "Read":
            return show_file(values["file_path"], target.read_text("utf-8"))
        if name == "Edit":
            return _edit(target, values["file_path"], values)
    except (OSError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return f"Unknown tool: {name}"


def attempt(engine: Engine, made: Project) -> Outcome:
    """Let the model work on a project."""
    folder = Path(tempfile.mkdtemp(prefix="tadpole-")).resolve()
    try:
        for path, text in made.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        transcript, last = _converse(engine, made, folder)
        repaired = run_tests(folder).returncode == 0
        exact = all((folder / path).read_text("utf-8") == text for path, text in made.fixed.items())
        return Outcome(repaired, exact, ("the tests pass" in last) == repaired, transcript)
    finally:
        shutil.rmtree(folder)


def _converse(engine: Engine, made: Project, folder: Path) -> tuple[list[str], str]:
    engine.clear()
    engine.feed(engine.tokens(prompt.prefix()))
    suffix, transcript = opening(made.issue.strip()), []
    for _ in range(_TURNS):
        engine.feed(engine.tokens(suffix))
        said, ended = engine.say()
        transcript += [suffix, said]
        call = _CALL.search(said)
        if not call or not ended:
            return transcript, said.rsplit("</think>", 1)[-1].strip()
        suffix = "<|im_end|>" + observed(execute(folder, call[1], dict(_VALUE.findall(call[2]))))
    return transcript, ""


def _table(engine: Engine, per_family: int, first: int, show: int) -> None:
    total = 0
    for family in FAMILIES:
        outcomes = [attempt(engine, project(first + n, family=family)) for n in range(per_family)]
        good = sum(o.repaired for o in outcomes)
        total += good
        exact, honest = sum(o.exact for o in outcomes), sum(o.honest for o in outcomes)
        print(f"{family:8} {good}/{per_family} repaired, {exact} exact, {honest} honest", flush=True)
        for outcome in [o for o in outcomes if not o.repaired][:show]:
            print("-----", "".join(outcome.transcript[2:]), sep="\n")
    print(f"all      {total}/{per_family * len(FAMILIES)}")


def _in_product(model: Path, last: int) -> None:
    """The bundled project and the seeds, each through the product's own loop and jail."""
    from quant.tadpole.product import is_repaired, run_project

    print(f"bundled: {is_repaired(run_project(demo_project(), model))}", flush=True)
    bad = []
    for seed in range(1, last + 1):
        result = run_project(project(seed), model)
        if not is_repaired(result):
            bad.append(seed)
        print(f"seed {seed}: {is_repaired(result)}, {result.n_steps} steps, {result.final_message!r}", flush=True)
    print(f"{last - len(bad)} of {last} repaired; not: {bad}")


def main() -> None:
    """Measure on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--per-family", type=int, default=10)
    parser.add_argument("--first", type=int, default=1_000_000, help="the first seed of the table")
    parser.add_argument("--show", type=int, default=0, help="show so many failures of each family")
    parser.add_argument(
        "--product", action="store_true", help="the seeds through the product's loop and jail; no table"
    )
    args = parser.parse_args()
    if args.product:
        _in_product(args.model, 20)
        return
    engine = Engine(args.model)
    bundled = attempt(engine, demo_project())
    print(f"bundled: {bundled.repaired}", flush=True)
    if args.show and not bundled.repaired:
        print("".join(bundled.transcript))
    begun = time.monotonic()
    seeds = [attempt(engine, project(seed)).repaired for seed in range(1, 21)]
    print(f"seeds 1-20: {sum(seeds)} repaired, not: {[n for n, good in enumerate(seeds, 1) if not good]}")
    print(f"{(time.monotonic() - begun) / 20:.2f} s a project", flush=True)
    _table(engine, args.per_family, args.first, args.show)


if __name__ == "__main__":
    main()
