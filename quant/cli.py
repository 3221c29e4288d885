"""`frog-lsp model …`: get, list, check, remove and choose models."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.cli_parser import EXIT_ERROR, EXIT_OK, print_json, say, write_stdout
from agent.config import load_user_config, update_user_config, user_config_path
from agent.errors import ModelUnavailable, UsageError
from agent.model.admission import admit
from agent.model.installed import InstalledModel, find_installed, installed_models
from agent.model.locate import BUNDLED, DEMONSTRATION_NAMES, ModelFile
from quant import calibrate_cli, compare_cli, convert_cli, plan_cli, quantize_cli, synth_cli
from quant.catalog import CatalogEntry, find_entry, load_catalog
from quant.progress import ByteProgress
from quant.sizes import size_text


def add_parsers(subparsers: Any) -> None:
    """Add `model` and its subcommands to the subparsers of the front door."""
    model = subparsers.add_parser("model", help="pull, choose and check models")
    commands = model.add_subparsers(dest="model_command", required=True, metavar="COMMAND")

    def add(name: str, what: str, action: Callable[[argparse.Namespace], int]) -> Any:
        parser = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        parser.add_argument("--json", action="store_true", help="one JSON object on stdout, whatever happens")
        parser.set_defaults(model_action=action)
        return parser

    pull = add("pull", "get a model, go on with an interrupted download, or check one that is kept", _pull)
    pull.add_argument("name", nargs="?", metavar="NAME", help="a name of `model list`, or OWNER/REPOSITORY/FILE.gguf")
    pull.add_argument("--from", dest="source", metavar="PATH", help="take the file from PATH, with no network")
    plan = add("plan", plan_cli.WHAT, plan_cli.run)
    plan_cli.add_arguments(plan)
    add("list", "list the catalog and the kept models", _list)
    path = add("path", "print the file of a kept model", _path)
    path.add_argument("name", metavar="NAME")
    verify = add("verify", "hash kept models and compare", _verify)
    verify.add_argument("names", nargs="*", metavar="NAME", help="all where none is named")
    remove = add("remove", "delete a kept model", _remove)
    remove.add_argument("name", metavar="NAME")
    use = add("use", "choose the model of all runs", _use)
    use.add_argument("model", metavar="NAME_OR_PATH", help="a kept model, or a GGUF file")
    synth = add("synth", "make a model of random weights, for measuring and for tests", synth_cli.run)
    synth_cli.add_arguments(synth)
    convert = add("convert", convert_cli.WHAT, convert_cli.run)
    convert_cli.add_arguments(convert)
    quantize = add("quantize", "make a smaller model of one in BF16, F16 or F32", quantize_cli.run)
    quantize_cli.add_arguments(quantize)
    calibrate = add("calibrate", "measure on recorded runs what matters in a model, for quantize", calibrate_cli.run)
    calibrate_cli.add_arguments(calibrate)
    compare = add("compare", "compare two models over recorded runs: probabilities and tool calls", compare_cli.run)
    compare_cli.add_arguments(compare)
    consent = add("consent", "agree that runs may send text to an endpoint that is not on this machine", _consent)
    consent.add_argument("url", metavar="URL")
    consent.add_argument("--withdraw", action="store_true", help="no longer agree")


def run(arguments: argparse.Namespace) -> int:
    """Run a subcommand of `model`; gives the exit code. Raises FrogError."""
    action: Callable[[argparse.Namespace], int] = arguments.model_action
    return action(arguments)


def _pull(arguments: argparse.Namespace) -> int:
    catalog = load_catalog()
    if arguments.source is not None:
        model = _import(arguments, catalog)
    else:
        from quant.pull import pull

        entry = find_entry(arguments.name, catalog) if arguments.name else _recommended(catalog)
        say(f"{entry.name} from {entry.repository}\nlicence: {entry.licence}\n")
        with ByteProgress(entry.name) as progress:
            model = pull(entry, on_progress=progress.update, on_note=progress.note)
    _answer(arguments, {"model": _describe(model)}, f"{model.path}\n")
    say(f"{model.size_bytes:,} bytes, sha256 {model.sha256}\nUse it: `frog-lsp model use {model.name}`\n")
    return EXIT_OK


def _recommended(catalog: list[CatalogEntry]) -> CatalogEntry:
    entry, reasons = plan_cli.choose_build(catalog, lambda text: say(f"{text}\n"))
    if entry is None:
        raise ModelUnavailable(
            f"no build is recommended for this machine: {reasons}", "Or name one: see `frog-lsp model plan`."
        )
    say(f"for this machine: {entry.name}. {reasons}\n")
    return entry


def _import(arguments: argparse.Namespace, catalog: list[CatalogEntry]) -> InstalledModel:
    from quant.store import import_file

    path = Path(arguments.source).expanduser()
    if arguments.name:
        entry = find_entry(arguments.name, catalog)
    else:
        entry = next((item for item in catalog if Path(item.file).name == path.name), None) or CatalogEntry(
            name=path.name.removesuffix(".gguf").lstrip(".") or "model", repository="", file=path.name
        )
    with ByteProgress(entry.name) as progress:
        return import_file(path, entry, on_progress=progress.update)


def _list(arguments: argparse.Namespace) -> int:
    kept = installed_models()
    selected = _selected()
    rows: list[dict[str, Any]] = []
    for entry in load_catalog():
        model = kept.pop(entry.name, None)
        rows.append(
            {
                "name": entry.name,
                "installed": model is not None,
                "path": str(model.path) if model else None,
                "size_bytes": model.size_bytes if model else entry.size_bytes or None,
                "default": entry.default,
                "use": entry.use,
                "licence": entry.licence,
                "repository": entry.repository,
                "revision": model.revision if model else entry.revision,
                "file": entry.file,
                "sha256": model.sha256 if model else entry.sha256,
            }
        )
    bundled = _bundled()
    if bundled is not None:
        rows.insert(
            0,
            {
                "name": bundled.name,
                "installed": True,
                "path": bundled.path,
                "size_bytes": Path(bundled.path).stat().st_size,
                "default": False,
                "use": "bundled demonstration model: replace it with `frog-lsp model pull`",
                "licence": "Apache-2.0",
                "repository": None,
                "revision": None,
                "file": None,
                "sha256": None,
            },
        )
    rows += [
        {
            **_describe(model),
            "installed": True,
            "default": False,
            "use": "",
            "file": model.remote_file,
        }
        for model in kept.values()
    ]
    width = max((len(row["name"]) for row in rows), default=0)
    chosen = selected or (bundled.name if bundled else None)
    lines = [
        f"{'*' if row['name'] == chosen else ' '} {row['name']:<{width}}  "
        f"{'kept' if row['installed'] else '-':<4}  {size_text(row['size_bytes'] or 0):>8}  {row['use']}\n"
        for row in rows
    ]
    licences = sorted({f"{row['repository'] or row['name']}: {row['licence']}" for row in rows})
    text = "".join(lines) + "".join(f"licence of {licence}\n" for licence in licences)
    if selected and not any(row["name"] == selected for row in rows):
        text += f"chosen: {selected}\n"
    _answer(arguments, {"models": rows, "selected": selected}, text)
    return EXIT_OK


def _path(arguments: argparse.Namespace) -> int:
    path = _kept_path(arguments.name)
    _answer(arguments, {"name": arguments.name, "path": str(path)}, f"{path}\n")
    return EXIT_OK


def _verify(arguments: argparse.Namespace) -> int:
    from quant.verify import verify

    with ByteProgress("checking") as progress:
        verdicts = verify(arguments.names, lambda name, done, total: progress.update(done, total, name))
    results = [
        {"name": v.model.name, "path": str(v.model.path), "ok": v.problem is None, "problem": v.problem}
        for v in verdicts
    ]
    text = "".join(f"{v.model.name}: {v.problem or 'as it was'}\n" for v in verdicts) or "no model is kept\n"
    _answer(arguments, {"results": results}, text)
    return EXIT_OK if all(v.problem is None for v in verdicts) else EXIT_ERROR


def _remove(arguments: argparse.Namespace) -> int:
    from quant.store import remove

    model = remove(arguments.name)
    was_selected = _selected() == model.name
    if was_selected:
        update_user_config(_forget_model)
    text = f"removed {model.path}\n" + ("it was the chosen model; now none is chosen\n" if was_selected else "")
    _answer(arguments, {"removed": model.name, "path": str(model.path), "was_selected": was_selected}, text)
    return EXIT_OK


def _use(arguments: argparse.Namespace) -> int:
    given = arguments.model
    path = find_installed(given)
    bundled = _bundled() if given.lower() in DEMONSTRATION_NAMES and not Path(given).exists() else None
    if path is not None:
        chosen = path.stem
    elif bundled is not None:
        chosen, path = bundled.name, Path(bundled.path)
    else:
        path = Path(given).expanduser().absolute()
        if not path.is_file():
            names = ", ".join(installed_models()) or "none"
            raise UsageError(
                f"{given} is neither a kept model nor a file",
                f"Kept: {names}. Get one with `frog-lsp model pull NAME`.",
            )
        chosen = str(path)
    admit(path)

    def change(settings: dict[str, Any]) -> None:
        group = settings.get("model")
        settings["model"] = {**(group if isinstance(group, dict) else {}), "kind": "worker", "path": chosen}
        for flat in ("model.kind", "model.path"):  # both forms are read; the nested one is ours
            settings.pop(flat, None)

    update_user_config(change)
    answer = {"model": chosen, "path": str(path), "config": str(user_config_path())}
    _answer(arguments, answer, f"runs now use {chosen} ({user_config_path()})\n")
    return EXIT_OK


def _consent(arguments: argparse.Namespace) -> int:
    from agent.model.consent import has_consent, store_consent, withdraw_consent
    from agent.model.endpoint_url import is_local, normalize_base_url

    url = normalize_base_url(arguments.url)
    if is_local(url):
        text = f"{url} is on this machine: no consent is needed\n"
    elif arguments.withdraw:
        text = f"runs no longer send anything to {url}\n" if withdraw_consent(url) else f"there was none for {url}\n"
    else:
        store_consent(url)
        text = f"runs may send the issue and what the model reads to {url}\n"
    _answer(arguments, {"endpoint": url, "consent": has_consent(url)}, text)
    return EXIT_OK


def _kept_path(name: str) -> Path:
    path = find_installed(name)
    if path is None and name.lower() in DEMONSTRATION_NAMES and (bundled := _bundled()) is not None:
        path = Path(bundled.path)
    if path is None:
        kept = ", ".join(installed_models()) or "none"
        raise UsageError(f"no model called {name} is kept", f"Kept: {kept}. Get it: `frog-lsp model pull {name}`.")
    return path


def _bundled() -> ModelFile | None:
    """The demonstration model, where the installation has it."""
    return ModelFile(path=str(BUNDLED), name="tadpole", kind="demonstration") if BUNDLED.is_file() else None


def _selected() -> str | None:
    config = load_user_config()
    group = config.get("model")
    chosen = config.get("model.path", group.get("path") if isinstance(group, dict) else None)
    return chosen if isinstance(chosen, str) else None


def _forget_model(settings: dict[str, Any]) -> None:
    settings.pop("model.path", None)
    group = settings.get("model")
    if isinstance(group, dict):
        group.pop("path", None)


def _describe(model: InstalledModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "path": str(model.path),
        "size_bytes": model.size_bytes,
        "sha256": model.sha256,
        "source": model.source,
        "date": model.date,
        "repository": model.repository,
        "revision": model.revision,
        "licence": model.licence,
    }


def _answer(arguments: argparse.Namespace, value: dict[str, Any], text: str) -> None:
    if arguments.json:
        print_json({**value, "error": None})
    else:
        write_stdout(text.encode("utf-8", "surrogateescape"))
