"""Issues in no format at all: what is to be said and where it is, in any order, between lines that tell nothing."""

from random import Random

from quant.tadpole import wordings
from quant.tadpole.wordings import Fault, message

SHARE = 0.6
"""Of the issues of training: what is learnt of these is to find the path, the line and the names wherever they are."""

_NEAR = 0.4  # the share of other lines that are about the module and its test
_JARGON = """
the a of for and with this that some after before since again still now not yet always once when while only both each
build job run step stage check lint type test suite case report log output trace result value error warning note info
failed broke breaks stopped red wrong missing expected wanted should would could gives says shows sees got is was are
please look here there what why how fix repair change commit merge release branch deploy server client nightly daily
python pytest unittest mypy ruff flake tox make bash docker linux windows version update new old last first next other
team user customer reviewer colleague machine laptop pipeline action hook config default module function method line
code file found total summary details see also below above two three many more less one any all your my our its
""".split()  # noqa: SIM905 - a list of lines of words is for reading


def _pick(r: Random, *choices: str) -> str:
    return r.choice(choices)


def _jargon(r: Random, most: int = 7) -> str:
    """Words that mean nothing here."""
    return " ".join(r.choices(_JARGON, k=r.randint(1, most)))


def _stray(r: Random) -> str:
    """A path that is not the file's."""
    root = _pick(r, "", "", "/", "../", "/x/", "/data/")
    folder = _pick(r, "tests", "tests", "lib", "checks", "usr/lib", "run")
    return (
        f"{root}{folder}/{_pick(r, 'test_', 'test_', '')}{r.choice(_JARGON)}.{_pick(r, 'py', 'py', 'py', 'txt', 'cfg')}"
    )


def _noise(r: Random) -> str:
    """A line that tells nothing."""
    kind = r.randrange(8)
    if kind == 0:
        return r.choice("-=~*_#") * r.randint(5, 75)
    if kind == 1:
        return f"{_stray(r)}:{r.randint(1, 99)}: {_jargon(r)}"
    if kind == 2:
        number = _pick(r, str(r.randint(0, 9999)), f"{r.randint(0, 20)}.{r.randint(0, 99)}")
        return f"{r.choice(_JARGON)}{_pick(r, ': ', ' ', ' = ', '=')}{number}"
    if kind == 3:
        return f"{_pick(r, '$ ', '> ', '+ ', '# ', '- ', '[', '* ')}{_jargon(r, 5)}"
    if kind == 4:
        return f"{_jargon(r, 3)} ({r.randint(1, 300)} {_jargon(r, 2)}, {r.randint(1, 9)} {_jargon(r, 2)})"
    if kind == 5:
        frame = f'  File "{_stray(r)}", line {r.randint(1, 99)}, in test_{r.choice(_JARGON)}'
        return f"{frame}\n    self.assertEqual({_jargon(r, 1)}({r.randint(1, 99)}), {r.randint(1, 99)})"
    text = _jargon(r, 10)
    return f"{text.capitalize() if r.random() < 0.6 else text}{_pick(r, '', '.', ':', '!', ' ...', ',', '?')}"


def _near(r: Random, f: Fault) -> str:
    """A line about the module or its test, in which the file is not named as it has to be."""
    stem = f.case.split(".")[0]
    root = _pick(r, "", "", "/w/", "/home/me/", "/mnt/src/")
    dotted = f.path.removesuffix(".py").replace("/", ".")
    kind = f.error.split(":")[0]
    frame = f'  File "{root}tests/{stem}.py", line {r.randint(5, 60)}, in {f.test}'
    return r.choice((
        f"{frame}\n    self.assertEqual({f.call}, {f.expected})",
        f"{frame}\n    {_jargon(r, 2)}",
        f"{root}tests/{stem}.py:{r.randint(5, 60)}: {_pick(r, kind, _jargon(r, 3))}",
        f"{_pick(r, 'F', 'E', 'x', '!')} tests/{stem}.py::{f.test}{_pick(r, '', f' - {kind}')}",
        f"{f.test} ({f.case}.{f.test}){_pick(r, '', ' ... ' + _jargon(r, 1))}",
        f"{r.choice('*#=-') * r.randint(2, 15)} {_jargon(r, 2)} {dotted}",
        f"{_pick(r, 'import', 'module', 'from', 'package')} {dotted}",
    ))  # fmt: skip


def _around(r: Random, f: Fault, text: str) -> str:
    """A text with lines before and behind it that tell nothing."""
    n_before, n_behind = r.choice((0, 0, 1, 1, 2, 4)), r.choice((0, 0, 1, 1, 2, 3))
    before = "".join(f"{_near(r, f) if r.random() < _NEAR else _noise(r)}\n" for _ in range(n_before))
    behind = "".join(f"\n{_near(r, f) if r.random() < _NEAR else _noise(r)}" for _ in range(n_behind))
    if not before and not behind:
        return f"{_jargon(r, 4)}{_pick(r, ' ', ': ', ', ', ' - ', chr(10))}{text}"
    return f"{before}{_pick(r, '', '', chr(10)) if before else ''}{text}{behind}"


def _located(r: Random, f: Fault) -> str:
    """The path and the line, in the manner of no tool in particular."""
    p, n, c = f.path, f.line, f.column
    key, row = _pick(r, "path", "src", "where", "module"), _pick(r, "ln", "row", "at")
    place = _pick(r, "pos", "char", "ch")
    return r.choice((
        f"{p}{_pick(r, ':', ' : ', ', line ', ' line ', '#', '#L', ' @ ', '(', ' l. ', '|')}{n}",
        f"{p}:{n}{_pick(r, ':', '.', ',', ' char ', '-')}{c}",
        f"{_pick(r, '', './', '> ', '-> ', 'in ', 'at ')}{p}:{n}:{c}",
        f"{key}={p}{_pick(r, ' ', ',', ';', ', ')}{row}={n}{_pick(r, '', f' {place}={c}', f',{place}={c}')}",
        f"{key}: {p}\n{row}: {n}",
        f"line {n} of {p}",
        f"{_pick(r, 'File', 'in file', 'Source')} {p}, {row} {n}",
        p,
    ))  # fmt: skip


def _echo(r: Random, f: Fault) -> str:
    """The faulty line, shown as tools show it."""
    n, at = f.line, f.source.find(f.wrong) if f.wrong else -1
    gutter = _pick(r, f"{n} | ", f"{n}: ", f"  {n}  ", "    ", ">>> ", "      ", f"{n}\t")
    mark = f"\n{' ' * (len(gutter) + at)}{r.choice('^~') * len(f.wrong)}" if at >= 0 and r.random() < 0.5 else ""
    return f"{gutter}{f.source}{mark}"


def _scattered(r: Random, f: Fault, text: str) -> str:
    """What is said and where it is, in any order and between lines that tell nothing."""
    where = _located(r, f)
    if r.random() < 0.4:
        joined = f"{where}{_pick(r, ': ', ' ', ' - ', '  ', ': error: ', ' | ', ' => ')}{text}"
    elif r.random() < 0.4:
        joined = f"{text}{_pick(r, ' (', ' [', ' at ', ' in ', ', ', ' <- ')}{where}"
    else:
        parts = [where, text]
        if f.source and r.random() < 0.6:
            parts.insert(r.randint(0, 2), _echo(r, f))
        if r.random() < 0.3:
            r.shuffle(parts)
        indent = _pick(r, "", "", "  ", "    ", "\n")
        parts[0] = f"{_jargon(r, 3)}{_pick(r, ' ', ': ')}{parts[0]}" if indent.strip("\n") else parts[0]
        joined = f"\n{indent}".join(parts)
    return _around(r, f, joined)


def _scattered_failure(r: Random, f: Fault) -> str:
    """A test that fails: the function, its file and what came out, in any order and between other lines."""
    e, g = f.expected, f.got
    said = r.choice((
        f.error, f.error, f"E {f.error}",
        f"{f.call} {_jargon(r, 2)} {g}, {_jargon(r, 2)} {e}", f"{f.call} -> {g} ({e})",
        f"assert {f.call} == {e}\n{f.error}", f"{_jargon(r, 2)}: {e}\n{_jargon(r, 2)}: {g}",
    ))  # fmt: skip
    call = _pick(r, f.function, f.function, f"{f.function}()", f"`{f.function}`", f"def {f.function}")
    where = r.choice((
        f"{f.path}{_pick(r, ': ', ', ', ' / ', '::', ' ')}{call}",
        f"{call} {_pick(r, 'in ', 'of ', 'from ', '(', '[', '@ ')}{f.path}",
        f"{_jargon(r, 3)} {call} {_jargon(r, 3)} {f.path}",
        f"{_jargon(r, 3)} {f.path} {_jargon(r, 3)} {call}",
        f"{_pick(r, 'path', 'src', 'where')}: {f.path}\n{_pick(r, 'def', 'name', 'what')}: {call}",
    ))  # fmt: skip
    if r.random() < 0.35:
        where = f"{where} {_jargon(r, 5)}"
    parts = [where, said] if r.random() < 0.5 else [said, where]
    return _around(r, f, f"{_pick(r, chr(10), chr(10), chr(10) * 2, ': ', ' - ', chr(10) + '  ')}".join(parts))


def _scattered_word(r: Random, f: Fault) -> tuple[str, bool]:
    told = r.random() < {"name": 0.6, "attr": 0.85, "self": 0.65, "ret": 0.7, "op": 0, "off": 0}.get(f.family, 1.0)
    if f.family in ("op", "off") or (f.family == "ret" and not told):
        text = _scattered_failure(r, f)
    elif f.family == "ret":
        w = _pick(r, f.wrong, f"`{f.wrong}`", f"'{f.wrong}'", f"return {f.wrong}")
        x = _pick(r, f.right, f"`{f.right}`", f"'{f.right}'")
        said = r.choice((
            f"{w} {_jargon(r, 4)} {x}", f"{_jargon(r, 3)} {x} {_jargon(r, 3)} not {w}", f"{x}, not {w}",
            f"not {w} but {x}",
        ))  # fmt: skip
        text = _scattered(r, f, said if r.random() < 0.6 else f"{f.function} {said}")
    else:
        text = _scattered(r, f, message(r, f, hint=told))
    text = text.strip("\n")
    return (f"{_jargon(r, 4)}\n{text}" if text[:1].isspace() else text).rstrip(), told


def word(r: Random, f: Fault) -> tuple[str, bool]:
    """The text of an issue, of no tool or of one; and whether it names what is wrong and what is right."""
    return _scattered_word(r, f) if r.random() < SHARE else wordings.word(r, f)
