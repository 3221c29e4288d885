"""What all subcommands share: arguments that are checked, errors that are values, one JSON object on stdout."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from agent.errors import FrogError, StdoutError, UsageError

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_CANCELLED = 130


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would end the process, so that `--json` can hold."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(message, f"See `{self.prog} --help`.")


def positive_int(text: str) -> int:
    """A whole number above zero."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value


def positive_seconds(text: str) -> float:
    """Seconds above zero, finite."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def print_json(value: Mapping[str, Any]) -> None:
    """Print the one object of `--json`, in UTF-8 whatever the locale."""
    try:
        data = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a name that is not UTF-8
        data = json.dumps(value).encode()
    write_stdout(data + b"\n")


def write_stdout(data: bytes) -> None:
    """Write bytes to stdout, all of them, now. Raises StdoutError where it takes none (a full disk)."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        raise StdoutError(f"stdout cannot be written: {error.strerror}", "What it goes to may be full.") from error


def silence_stdout() -> None:
    """Send what is still to be written to nowhere: whoever read it has gone, or it takes no more."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def say(text: str) -> None:
    """Write text to stderr, now."""
    sys.stderr.write(text)
    sys.stderr.flush()


def complain(error: FrogError) -> None:
    """Say on stderr what is wrong and what to do."""
    from agent.visible import visible

    hint = f"  {visible(error.hint)}\n" if error.hint else ""
    say(f"frog-lsp: {visible(error.message)}\n{hint}")


def exit_code_of(error: FrogError) -> int:
    """2 for a request that cannot be right, 1 for the rest."""
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_ERROR


def is_interactive() -> bool:
    """Whether a person can be asked: a terminal to read from and one to show on."""
    try:
        return os.isatty(0) and os.isatty(2)
    except OSError:
        return False


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask on stderr; with no terminal, at the end of input or on Ctrl-C the answer is no."""
    if not is_interactive():
        return False
    say(f"{question} [{'Y/n' if default else 'y/N'}] ")
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = ""
    if not answer.endswith("\n"):
        say("\n")
        return False
    answer = answer.strip().lower()
    return default if not answer else answer in ("y", "yes")
