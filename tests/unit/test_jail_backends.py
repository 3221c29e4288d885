"""The choice of a backend: in order, by name, and never anything that is no backend."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import get_args

import pytest

from agent.errors import JailUnavailable, UsageError
from agent.jail.backend import Backend
from agent.jail.backends import ALL, FILES, chosen, chosen_for_commands, start_first
from agent.jail.channel import CommandNotStarted
from agent.types import JailBackend


def backend(name: str) -> Backend:
    return replace(FILES, name=name)


def fails(**errors: JailUnavailable) -> tuple[str, tuple[str, ...]] | JailUnavailable:
    """What comes of candidates a, b, c of which some fail."""

    async def start(candidate: Backend) -> str:
        if candidate.name in errors:
            raise errors[candidate.name]
        return candidate.name

    try:
        return asyncio.run(start_first(tuple(map(backend, "abc")), start))
    except JailUnavailable as error:
        return error


def test_the_order_and_the_names() -> None:
    names = [backend.name for backend in ALL]
    assert names == [name for name in ("namespaces", "bwrap", "landlock", "files") if name in names]
    assert {"namespaces", "bwrap", "files"} <= set(names) <= set(get_args(JailBackend))
    assert chosen("auto", "linux") == ALL
    for backend in ALL:
        assert chosen(backend.name) == (backend,)


@pytest.mark.parametrize("platform", ["win32", "darwin", "freebsd14"])
def test_other_systems_have_the_file_tools_alone(platform: str) -> None:
    assert chosen("auto", platform) == (FILES,)


@pytest.mark.parametrize("name", ["none", "", "off", "seatbelt", "NAMESPACES"])
def test_there_is_no_other(name: str) -> None:
    with pytest.raises(UsageError, match="no jail backend"):
        chosen(name)


def test_only_some_run_commands() -> None:
    assert all(backend.run for backend in chosen_for_commands("auto"))
    with pytest.raises(JailUnavailable, match="cannot run a command"):
        chosen_for_commands("files")


def test_the_first_that_can_be_had_is_taken_and_those_before_it_are_named() -> None:
    assert fails() == ("a", ())
    missed = JailUnavailable("no wall", "Build one.")
    assert fails(a=missed) == ("b", ("Jail backend `a` is not used: no wall. Build one.",))


def test_where_none_can_be_had_all_reasons_are_said() -> None:
    error = fails(a=JailUnavailable("1", "first hint"), b=JailUnavailable("2"), c=JailUnavailable("3"))
    assert isinstance(error, JailUnavailable)
    assert (error.message, error.hint) == ("no jail can be had: a: 1; b: 2; c: 3", "first hint")


def test_a_program_that_does_not_exist_is_not_tried_elsewhere() -> None:
    error = CommandNotStarted("No such file", is_missing=True)
    assert fails(a=error) is error
