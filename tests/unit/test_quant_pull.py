"""Getting a model from a hub that cuts, lies, refuses and is not there."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import quant.store
from agent.errors import DownloadError, FrogError, ModelFileError
from agent.model.installed import find_installed, installed_models, models_dir
from quant.catalog import CatalogEntry, user_catalog_path
from quant.pull import MAX_FAILURES, pull
from quant.store import remove
from tests.gguf_files import make_gguf
from tests.hub_server import COMMIT, HubServer

FILE = "tiny-Q8_0.gguf"
ENTRY = CatalogEntry(name="tiny-Q8_0", repository="frogs/tiny-GGUF", file=FILE, licence="MIT")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_gguf(tmp_path_factory.mktemp("gguf") / FILE, n_elements=1 << 18).read_bytes()


@pytest.fixture
def hub(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    import huggingface_hub.constants
    import huggingface_hub.file_download

    with HubServer({FILE: data}) as server:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.endpoint)
        monkeypatch.setattr(
            huggingface_hub.constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            server.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        )
        yield server


def get(entry: CatalogEntry = ENTRY, **more: Any) -> Any:
    return pull(entry, first_wait_s=0.01, **more)


def left_behind() -> list[str]:
    """Everything in the folder of models but locks, the manifest and kept files."""
    kept = {model.file for model in installed_models().values()}
    names = sorted(path.name for path in models_dir().iterdir())
    return [name for name in names if not name.endswith(".lock") and name != "manifest.json" and name not in kept]


def test_a_whole_download(hub: HubServer, data: bytes) -> None:
    seen: list[tuple[int, int]] = []
    model = get(on_progress=lambda done, total: seen.append((done, total)))
    assert model.path.read_bytes() == data
    assert model.sha256 == hashlib.sha256(data).hexdigest() and model.size_bytes == len(data)
    assert (model.source, model.revision, model.repository, model.licence) == ("hub", COMMIT, ENTRY.repository, "MIT")
    assert find_installed("TINY-q8_0") == model.path and left_behind() == []
    assert seen == sorted(seen) and seen[-1] == (len(data), len(data))
    assert json.loads((models_dir() / "manifest.json").read_text())["models"]["tiny-Q8_0"]["sha256"] == model.sha256
    assert all("main" not in request.path for request in hub.seen_hub if request.method == "GET")


def test_the_second_pull_needs_no_network(hub: HubServer) -> None:
    first = get()
    n_requests = len(hub.seen_hub) + len(hub.seen_cdn)
    assert get().sha256 == first.sha256
    assert len(hub.seen_hub) + len(hub.seen_cdn) == n_requests


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_cut_connection_is_gone_on_with(hub: HubServer, data: bytes, share: float) -> None:
    cut = int(len(data) * share)
    hub.faults.cuts = [cut]
    assert get().path.read_bytes() == data
    ranges = [request.range for request in hub.seen_cdn]
    assert ranges == [None, f"bytes={cut}-" if cut else None]


def test_many_cuts(hub: HubServer, data: bytes) -> None:
    hub.faults.cuts = [1, 7, 1000, 65536, 100_000]
    assert get().path.read_bytes() == data


def test_an_interrupted_download_is_kept_for_the_next_command(hub: HubServer, data: bytes) -> None:
    hub.faults.cuts = [50_000] + [0] * MAX_FAILURES
    with pytest.raises(DownloadError, match="tiny-GGUF") as caught:
        get()
    assert "goes on where it stopped" in caught.value.hint
    assert len(left_behind()) == 1 and find_installed("tiny-Q8_0") is None
    hub.faults.cuts = []
    notes: list[str] = []
    assert get(on_note=notes.append).path.read_bytes() == data
    assert hub.seen_cdn[-1].range == "bytes=50000-" and "50,000" in notes[0] and left_behind() == []


def test_a_server_that_knows_no_ranges(hub: HubServer, data: bytes) -> None:
    hub.faults.cuts, hub.faults.refuse_ranges = [50_000], True
    assert get().path.read_bytes() == data


def test_a_part_of_another_version_is_not_gone_on_with(hub: HubServer, data: bytes) -> None:
    hub.faults.cuts = [50_000] + [0] * MAX_FAILURES
    with pytest.raises(DownloadError):
        get()
    hub.faults.cuts, hub.commit = [], COMMIT[::-1]
    other = bytearray(data)
    other[-1] ^= 1
    hub.files[FILE] = bytes(other)
    assert get().path.read_bytes() == bytes(other)
    assert hub.seen_cdn[-1].range is None and left_behind() == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:-5],
        lambda data: data + b"more",
        lambda data: b"<html>" + data[6:],
    ],
    ids=["flipped", "short", "long", "other"],
)
def test_damaged_bytes_are_never_used(hub: HubServer, data: bytes, damage: Any) -> None:
    hub.faults.corrupt = damage
    with pytest.raises(DownloadError):
        get()
    assert installed_models() == {} and not (models_dir() / FILE).exists()
    hub.faults.corrupt = None
    assert get().path.read_bytes() == data


def test_damage_in_the_part_that_was_kept(hub: HubServer, data: bytes) -> None:
    hub.faults.cuts = [50_000] + [0] * MAX_FAILURES
    with pytest.raises(DownloadError):
        get()
    part = models_dir() / left_behind()[0]
    part.write_bytes(b"\0" * 50_000)
    hub.faults.cuts = []
    with pytest.raises(DownloadError, match="damaged"):
        get()
    assert left_behind() == [] and get().path.read_bytes() == data


def test_what_is_no_gguf_is_refused_also_without_a_hash(hub: HubServer, data: bytes) -> None:
    hub.faults.plain_etag = True
    hub.files[FILE] = b"<html>" + data[6:]
    with pytest.raises(ModelFileError, match="GGUF"):
        get()
    hub.files[FILE] = data[:-5]
    with pytest.raises(ModelFileError, match="truncated"):
        get()
    assert installed_models() == {}


def test_the_hash_of_the_first_download_holds_ever_after(hub: HubServer, data: bytes) -> None:
    model = get()
    model.path.write_bytes(data[:1000])
    with pytest.raises(ModelFileError, match="1,000 bytes") as caught:
        find_installed("tiny-Q8_0")
    assert "model pull tiny-Q8_0" in caught.value.hint
    other = data[:-1] + bytes([data[-1] ^ 1])
    hub.files[FILE] = other
    with pytest.raises(DownloadError, match="known"):
        get()
    hub.files[FILE] = data
    assert get().path.read_bytes() == data
    remove("tiny-Q8_0")
    hub.files[FILE] = other
    assert get().path.read_bytes() == other


def test_the_revision_stays_pinned(hub: HubServer, data: bytes) -> None:
    model = get()
    model.path.unlink()
    get()
    assert all(COMMIT in request.path for request in hub.seen_hub[-2:])


def test_a_changed_time_is_hashed_and_no_trouble(hub: HubServer) -> None:
    model = get()
    os.utime(model.path, (1, 1))
    assert find_installed(model.name) == model.path


def test_sizes_and_hashes_of_the_catalog(hub: HubServer, data: bytes) -> None:
    wrong_size = CatalogEntry(**{**vars_of(ENTRY), "size_bytes": 5, "size_is_exact": True})
    with pytest.raises(DownloadError, match="5"):
        get(wrong_size)
    with pytest.raises(DownloadError, match="sha256"):
        get(CatalogEntry(**{**vars_of(ENTRY), "sha256": "0" * 64}))
    assert not hub.seen_cdn


def vars_of(entry: CatalogEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__slots__}


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_no_space(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, quant.store.MARGIN_BYTES + 1000))
    with pytest.raises(DownloadError, match="are free") as caught:
        get()
    assert "smaller build" in caught.value.hint and not hub.seen_cdn


def test_a_disk_that_fills_up_meanwhile(hub: HubServer, data: bytes) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(DownloadError):
            get()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert installed_models() == {}
    assert get().path.read_bytes() == data


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "", "401"),
        (401, "RepoNotFound", "no repository"),
        (401, "GatedRepo", "gated"),
        (403, "GatedRepo", "gated"),
        (404, "EntryNotFound", "does not exist"),
        (404, "RevisionNotFound", "does not exist"),
        (500, "", "500"),
        (429, "", "429"),
    ],
)
def test_what_the_hub_refuses(hub: HubServer, status: int, code: str, words: str) -> None:
    hub.faults.hub_status, hub.faults.hub_error_code = status, code
    with pytest.raises(DownloadError, match=words) as caught:
        get()
    assert caught.value.hint


def test_a_cdn_that_refuses(hub: HubServer) -> None:
    hub.faults.cdn_status = 403
    with pytest.raises(DownloadError, match="403"):
        get()
    assert len(hub.seen_cdn) == 1


def test_a_cdn_that_is_busy(hub: HubServer, data: bytes) -> None:
    hub.faults.n_busy = 2
    assert get().path.read_bytes() == data


def test_a_server_that_is_no_hub(hub: HubServer) -> None:
    hub.faults.without_commit = True
    with pytest.raises(DownloadError):
        get()


def test_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(
        huggingface_hub.constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}",
    )
    with pytest.raises(DownloadError) as caught:
        get()
    assert "--from PATH" in caught.value.hint


def test_the_token_goes_to_the_hub_alone(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    get()
    assert {request.authorization for request in hub.seen_hub} == {"Bearer hf_secret"}
    assert {request.authorization for request in hub.seen_cdn} == {None}


def test_a_name_that_is_no_repository() -> None:
    with pytest.raises(FrogError):
        get(CatalogEntry(name="x", repository="a/b/c", file="x.gguf"))


# --- as a command ---------------------------------------------------------------------------------


def command(hub: HubServer, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "lsp_server.cli", "model", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


NAME = f"frogs/tiny-GGUF/{FILE}"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_is_killed_goes_on_next_time(hub: HubServer, data: bytes, how: signal.Signals) -> None:
    hub.faults.bytes_per_s = 100_000
    process = command(hub, "pull", NAME)
    end = time.monotonic() + 30
    while not any(path.stat().st_size > 0 for path in models_dir().glob(".*.part")):
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            pytest.fail(f"it did not begin: {finish(process)}")
        time.sleep(0.02)
    process.send_signal(how)
    code, out, err = finish(process)
    assert hub.seen_cdn
    assert code == (130 if how == signal.SIGINT else -9) and out == ""
    assert "Traceback" not in err
    hub.faults.bytes_per_s = 0
    code, out, err = finish(command(hub, "pull", NAME, "--json"))
    assert code == 0 and "going on with" in err
    answer = json.loads(out)
    assert answer["error"] is None and Path(answer["model"]["path"]).read_bytes() == data
    assert hub.seen_cdn[-1].range is not None


@pytest.mark.slow
def test_two_commands_at_once_get_it_once(hub: HubServer, data: bytes) -> None:
    hub.faults.bytes_per_s = 400_000
    processes = [command(hub, "pull", NAME, "--json") for _ in range(2)]
    results = [finish(process) for process in processes]
    assert [code for code, _, _ in results] == [0, 0]
    assert len({json.loads(out)["model"]["sha256"] for _, out, _ in results}) == 1
    assert len(hub.seen_cdn) == 1


@pytest.mark.slow
def test_without_a_name_it_takes_what_the_plan_recommends(
    hub: HubServer, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog's own builds, all of them one small file of the hub here; no engine, so by memory alone."""
    bundled = json.loads((ROOT / "quant" / "catalog.json").read_text())["models"]
    here = {"repository": ENTRY.repository, "file": FILE, "size_is_exact": False}
    user_catalog_path().parent.mkdir(parents=True)
    user_catalog_path().write_text(json.dumps({"models": [{**row, **here} for row in bundled]}))
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path / "none"))
    code, out, err = finish(command(hub, "pull", "--json"))
    assert code == 0, err
    model = json.loads(out)["model"]
    plan = json.loads(finish(command(hub, "plan", "--json"))[1])
    assert model["name"] == plan["recommendation"]["name"] and Path(model["path"]).read_bytes() == data
    assert f"for this machine: {model['name']}. " in err and "GiB of memory" in err
    assert "MIT in the header of the model card, Apache-2.0 in its text" in err  # both licences, before the download


@pytest.mark.slow
def test_a_terminal_gets_a_bar_and_a_file_gets_lines(hub: HubServer) -> None:
    hub.faults.bytes_per_s = 2_000_000
    code, _, err = finish(command(hub, "pull", NAME))
    tenths = [line for line in err.splitlines() if line.startswith("tiny-Q8_0: ")]
    assert code == 0 and 3 <= len(tenths) <= 11 and tenths[-1].startswith("tiny-Q8_0: 100 % of ")
    remove("tiny-Q8_0")
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.endpoint,
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
        "COLUMNS": "100",
    }
    argv = [sys.executable, "-m", "lsp_server.cli", "model", "pull", NAME]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65_536):
                shown += piece
        except OSError:
            pass  # what Linux says at the end of a terminal
        finally:
            os.close(ours)
        assert process.wait(60) == 0
    assert "━".encode() in shown and b"MB/s" in shown and b" % of " not in shown


@pytest.mark.slow
def test_errors_of_a_command(hub: HubServer) -> None:
    hub.faults.hub_status = 500
    code, out, err = finish(command(hub, "pull", NAME, "--json"))
    assert code == 1 and json.loads(out)["error"]["kind"] == "download"
    code, out, err = finish(command(hub, "pull", NAME))
    assert code == 1 and out == "" and "--from PATH" in err and "Traceback" not in err


def test_what_cannot_serve_is_refused_before_it_is_all_there(hub: HubServer, tmp_path: Path) -> None:
    lora = make_gguf(tmp_path / "l.gguf", n_elements=1 << 22, general__type="adapter", adapter__type="lora")
    hub.files[FILE] = lora.read_bytes()
    hub.faults.bytes_per_s = 8 << 20
    came: list[int] = []
    with pytest.raises(ModelFileError, match=r"tiny-Q8_0\.gguf is an adapter") as caught:
        get(on_progress=lambda done, _: came.append(done))
    assert caught.value.hint and left_behind() == [] and installed_models() == {}
    assert max(came, default=0) < len(hub.files[FILE]) // 8
    hub.files[FILE] = make_gguf(tmp_path / "b.gguf", template=None).read_bytes()  # smaller than the first look
    with pytest.raises(ModelFileError, match=r"tiny-Q8_0\.gguf has no chat template"):
        get()
    assert left_behind() == []
