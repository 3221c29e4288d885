"""Getting a model from the Hugging Face Hub: resumed, pinned, checked.

huggingface_hub answers what the file is (commit, size, hash), knows the user's token, and holds the session that the
bytes come through. Its `hf_hub_download` (2.4) forgets what it has when it is interrupted; here the part of the file
that came is kept, to the byte, and gone on with.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from agent.errors import DownloadError, FrogError, ModelFileError
from agent.model.admission import admit, check_header
from agent.model.gguf_header import read_partial_header
from agent.model.installed import InstalledModel, find_damage, hash_file, installed_models, models_dir
from quant.catalog import CatalogEntry
from quant.store import Progress, check_known, check_space, hold, install, mark_checked, parts_of

_FIRST_LOOK_BYTES = 1 << 16  # then at each doubling: the header of the 4B has 11 MB
MAX_FAILURES = 4  # tries in a row that bring no byte
FIRST_WAIT_S = 1.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """What the hub says of a file. `url` names the commit; `sha256` is None for small files outside LFS."""

    url: str
    commit: str
    etag: str
    size_bytes: int | None

    @property
    def sha256(self) -> str | None:
        """The hash that the hub promises."""
        return self.etag if _SHA256.fullmatch(self.etag) else None


def pull(
    entry: CatalogEntry,
    *,
    on_progress: Progress | None = None,
    on_note: Callable[[str], None] | None = None,
    first_wait_s: float = FIRST_WAIT_S,
) -> InstalledModel:
    """Have the model of `entry`: without a network where it is kept and whole, else from the hub.

    An interrupted download goes on where it stopped, also in a later process. `on_progress` gets (bytes, bytes in
    all). Raises DownloadError, ModelFileError, UsageError.
    """
    say = on_note or (lambda _: None)
    with hold(entry.name, lambda: say(f"another frog-lsp is getting {entry.name}; waiting for it")):
        before = installed_models().get(entry.name)
        if before is not None and before.repository == entry.repository:
            damage = find_damage(before, always_hash=True)
            if damage is None:
                mark_checked(before)
                return before
            say(f"the kept file is not used: {damage}; getting it again")
        pinned = before.revision if before is not None and before.repository == entry.repository else None
        remote = ask_hub(entry, pinned or entry.revision)
        check_promise(entry, remote, before)
        part = models_dir() / f".{entry.name}.{remote.commit[:12]}-{_word(remote.etag)}.part"
        for old in parts_of(entry.name):
            if old != part:
                old.unlink(missing_ok=True)
        have = part.stat().st_size if part.exists() else 0
        if have:
            say(f"going on with {have:,} bytes that are here already")
        check_space((remote.size_bytes or entry.size_bytes) - have)
        look = _EarlyLook(entry, part, remote.size_bytes)

        def came(done: int, total: int) -> None:
            look.at(done)
            if on_progress is not None:
                on_progress(done, total)

        _fetch(entry, remote, part, came, first_wait_s)
        return _check_and_install(entry, remote, part, before)


def ask_hub(entry: CatalogEntry, revision: str) -> RemoteFile:
    """What the hub says of the file of `entry`. Raises DownloadError."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    try:
        url = hf_hub_url(entry.repository, entry.file, revision=revision)
        answer = get_hf_file_metadata(url)
        commit, etag = answer.commit_hash, answer.etag
        if commit is None or etag is None or not _COMMIT.fullmatch(commit):
            raise DownloadError(
                f"the server for {entry.repository} does not speak as the Hugging Face Hub",
                "Check HF_ENDPOINT and the proxy settings.",
            )
        return RemoteFile(
            url=hf_hub_url(entry.repository, entry.file, revision=commit),
            commit=commit,
            etag=etag,
            size_bytes=answer.size,
        )
    except Exception as error:
        raise explain(error, entry) from error


def check_promise(entry: CatalogEntry, remote: RemoteFile, before: InstalledModel | None) -> None:
    """Before a byte is moved: raises DownloadError where the hub offers another file than the one that is known."""
    if remote.size_bytes is not None and remote.sha256 is not None:
        check_known(entry, remote.size_bytes, remote.sha256, before)


def explain(error: Exception, entry: CatalogEntry) -> FrogError:
    """Our error for one of huggingface_hub's, of its HTTP client's, or of the disk's."""
    from huggingface_hub import errors

    if isinstance(error, FrogError):
        return error
    by_hand = f"Or get the file on another machine and run `frog-lsp model pull {entry.name} --from PATH`."
    where = f"{entry.repository}/{entry.file}"
    if isinstance(error, errors.GatedRepoError):
        return DownloadError(
            f"{entry.repository} is gated: its terms must be accepted first",
            f"Accept them on its page, then run `hf auth login`. {by_hand}",
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return DownloadError(
            f"there is no repository {entry.repository}, or it is private",
            f"Check the name; for a private one run `hf auth login`. {by_hand}",
        )
    if isinstance(error, errors.RevisionNotFoundError | errors.EntryNotFoundError):
        return DownloadError(f"{where} does not exist at the revision that is pinned", f"Check the catalog. {by_hand}")
    if isinstance(error, errors.OfflineModeIsEnabled):
        return DownloadError("downloads are switched off by HF_HUB_OFFLINE", by_hand)
    if isinstance(error, errors.HfHubHTTPError):
        status = getattr(getattr(error, "response", None), "status_code", "an error")
        hint = "If it is private or gated, run `hf auth login`." if status in (401, 403) else "Try again later."
        return DownloadError(f"the hub answered {status} for {where}", f"{hint} {by_hand}")
    if isinstance(error, errors.HFValidationError):
        return DownloadError(f"{entry.repository} is no name of a repository", "Names are OWNER/REPOSITORY.")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DownloadError(
            f"the disk of {models_dir()} is full; what was got is kept", "Make room and run the same command again."
        )
    if isinstance(error, _http_error()) or (isinstance(error, OSError) and error.errno is None):
        return DownloadError(
            f"{where} cannot be downloaded: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            f"Check the network and run the same command again: it goes on where it stopped. {by_hand}",
        )
    return DownloadError(f"{where} cannot be downloaded: {type(error).__name__}: {error}", by_hand)


def _fetch(entry: CatalogEntry, remote: RemoteFile, part: Path, on_progress: Progress, first_wait_s: float) -> None:
    """Fill `part` up to its size. Raises DownloadError; what was got stays."""
    n_failures = 0
    while True:
        with open(part, "ab", buffering=0) as file:  # a part is whole to the byte, also when we are killed
            if remote.size_bytes is not None and file.tell() > remote.size_bytes:
                file.truncate(0)
            have = file.tell()
            try:
                if have != remote.size_bytes:
                    _fetch_rest(remote, file, on_progress)
                return
            except _TooLongError as error:
                file.truncate(0)
                raise DownloadError(
                    f"the server sent more than the {remote.size_bytes:,} bytes of {entry.file}", "Try again later."
                ) from error
            except Exception as error:
                n_failures = 1 if file.tell() > have else n_failures + 1
                if n_failures >= MAX_FAILURES or not _may_pass(error):
                    raise explain(error, entry) from error
        time.sleep(first_wait_s * 2 ** (n_failures - 1))


def _fetch_rest(remote: RemoteFile, file: FileIO, on_progress: Progress) -> None:
    """One request for what is missing behind the end of `file`, written byte for byte as it comes."""
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    have = file.tell()
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    timeout_s = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", remote.url, headers=headers, follow_redirects=True, timeout=timeout_s) as response:
        if response.status_code == 416:  # the part is longer than the file on the server
            file.truncate(0)
        hf_raise_for_status(response)
        if have and not _goes_on_at(response.status_code, response.headers.get("Content-Range"), have):
            file.truncate(0)
            if response.status_code == 206:
                raise ConnectionError("the server sent another range than it was asked for")
        for piece in response.iter_bytes():
            _write_all(file, piece)
            done = file.tell()
            if remote.size_bytes is not None and done > remote.size_bytes:
                raise _TooLongError
            on_progress(done, remote.size_bytes or done)
    if remote.size_bytes is not None and file.tell() != remote.size_bytes:
        raise ConnectionError(f"the server sent {file.tell():,} of {remote.size_bytes:,} bytes")


def _write_all(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def _goes_on_at(status: int, content_range: str | None, have: int) -> bool:
    """Whether an answer holds the bytes from `have` on."""
    return status == 206 and (content_range or "").startswith(f"bytes {have}-")


class _TooLongError(Exception):
    """The server sent more bytes than the file has."""


class _EarlyLook:
    """Ends a download as soon as the header has come and says that the model cannot serve: it is the first of it."""

    def __init__(self, entry: CatalogEntry, part: Path, size_bytes: int | None) -> None:
        self._entry, self._part, self._size_bytes = entry, part, size_bytes
        self._next: int | None = _FIRST_LOOK_BYTES

    def at(self, done: int) -> None:
        """Raises ModelFileError, and then nothing of the file is left."""
        if self._size_bytes is None or self._next is None or done < self._next:
            return
        self._next = 2 * done
        try:
            header = read_partial_header(self._part, self._size_bytes)
        except ModelFileError:
            self._next = None  # damaged, or no GGUF: the end tells which
            return
        if header is not None:
            self._next = None
            with _named(self._entry, self._part):
                check_header(header)


@contextmanager
def _named(entry: CatalogEntry, part: Path) -> Iterator[None]:
    """What is wrong with a part is said of the file that it is of, and the part is thrown away."""
    try:
        yield
    except ModelFileError as error:
        part.unlink(missing_ok=True)
        named = error.message.replace(str(part), f"{entry.repository}/{entry.file}")
        raise ModelFileError(f"{named}; it is not kept", error.hint) from error


def _may_pass(error: Exception) -> bool:
    """A connection that broke, or a server that is busy; not what it refused, nor the disk."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        status = getattr(getattr(error, "response", None), "status_code", 0)
        return status >= 500 or status in (408, 429)
    if isinstance(error, _http_error()):
        return True
    return isinstance(error, OSError) and (error.errno is None or isinstance(error, ConnectionError | TimeoutError))


def _check_and_install(
    entry: CatalogEntry, remote: RemoteFile, part: Path, before: InstalledModel | None
) -> InstalledModel:
    """The last step: nothing that is short or damaged gets past here, and a damaged part is thrown away."""
    try:
        sha256 = hash_file(part)
        if remote.sha256 is not None and sha256 != remote.sha256:
            raise DownloadError(
                f"{entry.file} came damaged: its sha256 is {sha256}, not {remote.sha256}; it is not used",
                "Run the same command again: it starts from the beginning.",
            )
        check_known(entry, part.stat().st_size, sha256, before)
        with _named(entry, part):
            admit(part)
    except FrogError:
        part.unlink(missing_ok=True)
        raise
    return install(part, entry, source="hub", sha256=sha256, revision=remote.commit)


def _http_error() -> type[Exception]:
    """The base of the errors of the HTTP client that huggingface_hub uses (httpx or httpx2, by its version)."""
    from huggingface_hub.errors import HfHubHTTPError

    base: type[Exception] = HfHubHTTPError.__bases__[0]
    return base


def _word(etag: str) -> str:
    return re.sub(r"\W", "", etag)[:16]
