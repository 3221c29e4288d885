"""`frog-lsp model …` as a person uses it, and its catalog."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from agent.config import load_user_config, save_user_config, user_config_path
from agent.errors import UsageError
from agent.model.installed import find_installed, installed_models, models_dir
from lsp_server.cli import main
from quant.catalog import find_entry, load_catalog, user_catalog_path
from quant.progress import ByteProgress
from tests.gguf_files import make_gguf

Q4 = "FrogNano-4B-2609-Q4_K_M"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HF_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    folder = tmp_path / "stick"
    folder.mkdir()
    return make_gguf(folder / f"{Q4}.gguf")


class Command:
    """Runs a command; gives (exit code, stdout, stderr), or the object of `--json`."""

    def __init__(self, capsys: pytest.CaptureFixture[bytes]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = main(["model", *arguments])
        out, err = self._capsys.readouterr()
        return code, out.decode(), err.decode()

    def json(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, _ = self(*arguments, "--json")
        assert out.count("\n") == 1
        return code, json.loads(out)


@pytest.fixture
def model(capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    return Command(capsysbinary)


def test_from_a_stick_to_the_settings(model: Command, gguf_file: Path) -> None:
    code, answer = model.json("pull", "--from", str(gguf_file))
    assert code == 0 and answer["model"]["name"] == Q4 and answer["model"]["source"] == "file"
    kept = Path(answer["model"]["path"])
    assert kept.read_bytes() == gguf_file.read_bytes() and kept.parent == models_dir()
    gguf_file.unlink()
    assert model("path", Q4)[:2] == (0, f"{kept}\n")
    assert model.json("path", Q4.lower())[1] == {"name": Q4.lower(), "path": str(kept), "error": None}
    code, answer = model.json("use", Q4)
    assert (code, answer["model"], answer["path"]) == (0, Q4, str(kept))
    assert load_user_config() == {"model": {"kind": "worker", "path": Q4}}
    assert stat.S_IMODE(os.stat(user_config_path()).st_mode) == 0o600
    rows = {row["name"]: row for row in model.json("list")[1]["models"]}
    assert rows[Q4]["installed"] and not rows["FrogNano-4B-2609-Q8_0"]["installed"]
    assert f"* {Q4}" in model("list")[1]
    code, answer = model.json("remove", Q4)
    assert code == 0 and answer["was_selected"] and not kept.exists()
    assert load_user_config() == {"model": {"kind": "worker"}} and find_installed(Q4) is None


def test_both_licences_are_shown(model: Command) -> None:
    text = model("list")[1]
    assert "MIT in the header" in text and "Apache-2.0 in its text" in text
    rows = [row for row in model.json("list")[1]["models"] if row["repository"]]
    assert len(rows) == 7 and all("MIT" in row["licence"] and "Apache" in row["licence"] for row in rows)


def test_the_bundled_model_is_listed_and_can_be_chosen(model: Command) -> None:
    first = model.json("list")[1]["models"][0]
    assert first["name"] == "tadpole" and first["installed"] and "demonstration" in first["use"]
    assert "* tadpole" in model("list")[1]
    assert model.json("path", "tadpole")[1]["path"] == first["path"]
    assert model.json("use", "tadpole")[1]["model"] == "tadpole"
    assert load_user_config()["model"]["path"] == "tadpole"


def test_verify_finds_damage(model: Command, gguf_file: Path) -> None:
    model("pull", "--from", str(gguf_file))
    assert model.json("verify")[1]["results"][0]["ok"]
    path = models_dir() / f"{Q4}.gguf"
    before = os.stat(path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    code, answer = model.json("verify", Q4)
    assert code == 1 and "sha256" in answer["results"][0]["problem"] and answer["error"] is None
    os.utime(path)
    code, answer = model.json("path", Q4)
    assert code == 1 and answer["error"]["kind"] == "model_file"
    code, answer = model.json("use", Q4)
    assert code == 1 and load_user_config() == {}
    path.unlink()
    assert model.json("verify")[0] == 1
    assert model.json("remove", Q4)[0] == 0


def test_a_copy_that_is_cut_is_refused(model: Command, gguf_file: Path) -> None:
    data = gguf_file.read_bytes()
    for bad in (data[:-2000], data[:50], b"", b"hello"):
        gguf_file.write_bytes(bad)
        code, answer = model.json("pull", "--from", str(gguf_file))
        assert code == 1 and answer["error"]["kind"] == "model_file" and answer["error"]["hint"]
    assert installed_models() == {} and not list(models_dir().glob("*.gguf"))


def test_a_copy_of_another_size_than_the_catalog_says(model: Command, gguf_file: Path) -> None:
    code, answer = model.json("pull", "q6_k_l", "--from", str(gguf_file))
    assert code == 1 and "3,918,386,976" in answer["error"]["message"]
    assert installed_models() == {} and not list(models_dir().glob(".*.import"))


def test_a_file_that_no_catalog_has(model: Command, gguf_file: Path) -> None:
    own = gguf_file.with_name("my own model.gguf")
    gguf_file.rename(own)
    assert model.json("pull", "--from", str(own))[1]["model"]["name"] == "my own model"
    rows = {row["name"]: row for row in model.json("list")[1]["models"]}
    assert rows["my own model"]["installed"]
    assert model.json("use", "my own model")[1]["model"] == "my own model"


def test_use_of_a_path(model: Command, gguf_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_user_config({"model.path": "old", "limits": {"maxSteps": 3}, "model": {"threads": 2}})
    monkeypatch.chdir(gguf_file.parent)
    assert model.json("use", gguf_file.name)[0] == 0
    assert load_user_config() == {
        "limits": {"maxSteps": 3},
        "model": {"kind": "worker", "path": str(gguf_file), "threads": 2},
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("pull", "no-such-model"),
        ("pull", Q4, "--from", "/nonexistent"),
        ("path", "nope"),
        ("use", "nope"),
        ("remove", "nope"),
        ("verify", "nope"),
        ("consent", "nonsense"),
        ("frobnicate",),
        ("path",),
        (),
    ],
)
def test_usage_errors_are_one_object(model: Command, arguments: tuple[str, ...]) -> None:
    code, answer = model.json(*arguments)
    assert code == 2 and answer["error"]["kind"] == "usage" and answer["error"]["hint"]
    code, out, err = model(*arguments)
    assert code == 2 and out == "" and err


def test_a_broken_settings_file_is_not_overwritten(model: Command, gguf_file: Path) -> None:
    user_config_path().parent.mkdir(parents=True)
    user_config_path().write_text("{broken")
    code, answer = model.json("use", str(gguf_file))
    assert code == 2 and "Repair" in answer["error"]["hint"] and user_config_path().read_text() == "{broken"


def test_consent(model: Command) -> None:
    url = "https://example.com/v1"
    assert model.json("consent", url)[1] == {"endpoint": url, "consent": True, "error": None}
    assert model.json("consent", url, "--withdraw")[1]["consent"] is False
    assert "no consent is needed" in model("consent", "http://localhost:8080")[1]


# --- the catalog ----------------------------------------------------------------------------------


def test_names() -> None:
    catalog = load_catalog()
    assert find_entry("q4_k_m", catalog).name == find_entry(f"{Q4}.gguf", catalog).name == Q4
    direct = find_entry("me/repo-GGUF/sub/some.Model-Q8_0.gguf@v1.2", catalog)
    assert (direct.name, direct.repository, direct.file, direct.revision) == (
        "some.Model-Q8_0",
        "me/repo-GGUF",
        "sub/some.Model-Q8_0.gguf",
        "v1.2",
    )
    assert find_entry(f"me/repo/{Q4}.gguf", catalog).name == f"me-{Q4}"
    with pytest.raises(UsageError, match="nope"):
        find_entry("nope", catalog)


def test_the_users_own_catalog() -> None:
    user_catalog_path().parent.mkdir(parents=True)
    mine = {"name": "mine", "repository": "me/mine", "file": "mine.gguf"}
    user_catalog_path().write_text(json.dumps({"models": [mine, {**mine, "name": Q4}]}))
    catalog = load_catalog()
    assert find_entry("mine", catalog).repository == find_entry(Q4, catalog).repository == "me/mine"
    assert len([entry for entry in catalog if entry.name == Q4]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "[]",
        '{"models": 1}',
        '{"models": [1]}',
        '{"models": [{"name": "x"}]}',
        '{"models": [{"name": "x", "repository": "a/b", "file": "x.gguf", "more": 1}]}',
        '{"models": [{"name": "x", "repository": "a/b", "file": "x.gguf", "size_bytes": "many"}]}',
        '{"models": [{"name": "x", "repository": "a/b", "file": "x.gguf", "matrix_bytes": {"q8_0": "1"}}]}',
        '{"models": [{"name": "../x", "repository": "a/b", "file": "x.gguf"}]}',
        '{"models": [{"name": "x", "repository": "a/b", "file": "../x.gguf"}]}',
    ],
)
def test_a_catalog_that_is_wrong_says_where(text: str) -> None:
    user_catalog_path().parent.mkdir(parents=True)
    user_catalog_path().write_text(text)
    with pytest.raises(UsageError, match=r"catalog\.json"):
        load_catalog()


@pytest.mark.parametrize(
    "change", [{"file": "../x"}, {"file": ""}, {"size_bytes": "1"}, {"name": "other"}, {"sha256": None}]
)
def test_a_manifest_entry_that_cannot_be_right_is_left_out(
    model: Command, gguf_file: Path, change: dict[str, Any]
) -> None:
    model("pull", "--from", str(gguf_file))
    path = models_dir() / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["models"][Q4].update(change)
    path.write_text(json.dumps(manifest))
    assert installed_models() == {} and find_installed(Q4) is None


def test_a_small_file_is_not_said_to_have_no_gigabytes(capsys: pytest.CaptureFixture[str]) -> None:
    with ByteProgress("reading") as progress:
        progress.update(1_810_000, 3_620_000)
        progress.update(9_000_000_000, 9_000_000_000, "writing")
    assert capsys.readouterr().err.splitlines() == ["reading: 50 % of 3.6 MB", "writing: 100 % of 9.00 GB"]
