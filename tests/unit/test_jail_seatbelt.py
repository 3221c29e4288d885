"""The plan for macOS, as text: it has not been run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.jail.seatbelt import plan_seatbelt, seatbelt_profile
from agent.jail.spec import JailSpec
from tests.unit.test_jail_plan import FACTS, SYSTEM_PYTHON


def test_everything_is_denied_but_what_is_named() -> None:
    assert seatbelt_profile(readable=("/usr/lib", '/a "b"\\c'), writable=("/private/w",)) == (
        "(version 1)\n"
        "(deny default)\n"
        "(allow process-fork)\n"
        "(allow process-exec)\n"
        "(allow signal (target same-sandbox))\n"
        "(allow sysctl-read)\n"
        '(allow file-read-metadata (literal "/"))\n'
        '(allow file-read* (subpath "/usr/lib") (subpath "/a \\"b\\"\\\\c") (literal "/dev/null") '
        '(literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom"))\n'
        '(allow file-read* file-write* (subpath "/private/w"))\n'
        '(allow file-write-data (literal "/dev/null"))\n'
    )


def test_a_path_that_could_end_a_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        seatbelt_profile(readable=("/a\n(allow network*)",), writable=())


def test_the_plan_works_on_a_clone_with_an_environment_of_its_own() -> None:
    facts = replace(FACTS, runner=SYSTEM_PYTHON, project=SYSTEM_PYTHON)
    plan = plan_seatbelt(JailSpec(workspace="/Users/me/ws"), facts, "/private/tmp/f", "/private/tmp/runner.pyz")
    assert plan.clone == ("/bin/cp", "-c", "-R", "-p", "/Users/me/ws", "/private/tmp/f/workspace")
    assert plan.argv[:3] == ("/usr/bin/sandbox-exec", "-p", plan.profile)
    assert plan.argv[3:5] == ("/usr/bin/env", "-i")
    assert plan.argv[-8:] == (
        *("/usr/bin/python3.11", "-I", "-S", "/private/tmp/runner.pyz"),
        *("--root", "/private/tmp/f/workspace", "--scratch", "/private/tmp/f/scratch"),
    )
    assert "network" not in plan.profile
    assert "mach" not in plan.profile
    assert "/Users/me" not in plan.profile
