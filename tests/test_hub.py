"""Finding a model: folders as they are, and one clear sentence for each way the hub says no."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors

from livekit_personaplex.errors import CheckpointError
from livekit_personaplex.model.hub import resolve_model

REPO = "nvidia/personaplex-7b-v1"
FILES = {
    "config.json": b'{"model_type": "personaplex"}',
    "tokenizer_spm_32k_3.model": b"t",
    "voices.tgz": b"v",
    "tokenizer-e351c8d8-checkpoint125.safetensors": b"m",
    "model.safetensors": b"w",
}


class FakeHub:
    """Stands in for the hub: gives files out, or fails from one file on."""

    def __init__(self, cache: Path) -> None:
        self.snapshot = cache / "snapshots" / "0123abcd"
        self.snapshot.mkdir(parents=True)
        self.asked: list[tuple[str, str | None]] = []
        self.fails_at: tuple[str, Exception] | None = None

    def download(self, repo_id: str, filename: str, *, revision: str | None = None) -> str:
        assert repo_id == REPO
        self.asked.append((filename, revision))
        if self.fails_at is not None and filename == self.fails_at[0]:
            raise self.fails_at[1]
        path = self.snapshot / filename
        path.write_bytes(FILES[filename])
        return str(path)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fake.download)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    return fake


def response(status: int) -> SimpleNamespace:
    return SimpleNamespace(status_code=status, headers={}, request=None, text="")


def http_error(kind: type[errors.HfHubHTTPError], status: int) -> Exception:
    return kind("the hub's own words", response=response(status))  # type: ignore[arg-type]


def refusal(hub: FakeHub, error: Exception, filename: str = "config.json") -> str:
    hub.fails_at = (filename, error)
    with pytest.raises(CheckpointError) as caught:
        resolve_model(REPO)
    message = str(caught.value)
    assert "\n" not in message
    assert REPO in message
    assert caught.value.__cause__ is error
    return message


def test_folder_is_taken_as_it_is(tmp_path: Path, hub: FakeHub) -> None:
    assert resolve_model(str(tmp_path)) == tmp_path
    assert hub.asked == []


def test_folder_that_looks_like_a_hub_id_is_a_folder(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / REPO).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_model(REPO) == Path(REPO)
    assert hub.asked == []


def test_hub_id_downloads_every_file_of_one_revision(hub: FakeHub) -> None:
    assert resolve_model(REPO) == hub.snapshot
    assert hub.asked[0] == ("config.json", None)
    assert {filename for filename, _ in hub.asked} == FILES.keys()
    assert all(revision == "0123abcd" for _, revision in hub.asked[1:])


@pytest.mark.parametrize("source", ["/no/such/folder", "./x/y", "nothing", "a/b/c", "", "../up"])
def test_neither_folder_nor_hub_id_is_refused(source: str, hub: FakeHub) -> None:
    with pytest.raises(CheckpointError, match="neither"):
        resolve_model(source)
    assert hub.asked == []


def test_gated_without_token_says_how_to_get_one(hub: FakeHub) -> None:
    message = refusal(hub, http_error(errors.GatedRepoError, 401))
    assert "no token" in message
    assert "HF_TOKEN" in message
    assert "accept its licence at https://huggingface.co/nvidia/personaplex-7b-v1" in message
    assert message == refusal(hub, errors.LocalTokenNotFoundError("Token is required"))


def test_gated_with_token_says_to_accept_the_licence(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_secret")
    message = refusal(hub, http_error(errors.GatedRepoError, 403))
    assert "accept its licence" in message
    assert "hf_secret" not in message


def test_unknown_repository_says_to_check_the_name(hub: FakeHub) -> None:
    message = refusal(hub, http_error(errors.RepositoryNotFoundError, 404))
    assert "there is no model" in message
    assert "check the name" in message


@pytest.mark.parametrize(
    "make_error",
    [
        lambda: errors.LocalEntryNotFoundError("cannot find the requested files"),
        lambda: errors.OfflineModeIsEnabled("offline mode is enabled"),
    ],
)
def test_no_network_says_so(make_error: Callable[[], Exception], hub: FakeHub) -> None:
    message = refusal(hub, make_error())
    assert "cannot be reached" in message
    assert "HF_HUB_OFFLINE" in message


def test_missing_file_is_named(hub: FakeHub) -> None:
    message = refusal(hub, http_error(errors.RemoteEntryNotFoundError, 404), "voices.tgz")
    assert "has no file voices.tgz" in message


def test_bad_token_and_hub_trouble_give_the_status(hub: FakeHub) -> None:
    assert "not valid" in refusal(hub, http_error(errors.HfHubHTTPError, 401))
    message = refusal(hub, http_error(errors.HfHubHTTPError, 503), "model.safetensors")
    assert "model.safetensors" in message
    assert "status 503" in message


def test_interrupted_download_says_to_start_again(hub: FakeHub) -> None:
    (http_library_error, *_) = errors.HfHubHTTPError.__bases__
    for error in (OSError("No space left on device"), http_library_error("connection lost")):
        message = refusal(hub, error, "model.safetensors")
        assert "start again" in message
        assert str(error) in message
