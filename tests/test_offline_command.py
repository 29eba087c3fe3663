"""``livekit-personaplex offline``: the reference's conversations, through the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from safetensors.numpy import load_file

from livekit_personaplex.audio import FRAME_SAMPLES, SAMPLE_RATE_HZ, float_to_pcm16
from livekit_personaplex.cli.main import main

DATA = Path(__file__).parent / "data"
CONVERSATIONS = ("pt_persona", "pt_nopersona", "wav_persona")


def arguments(checkpoint: str, *options: str) -> list[str]:
    folder = DATA / checkpoint
    given = ["--model", str(folder / "checkpoint"), "--input", str(folder / "user.wav")]
    return ["offline", *given, "--device", "cpu", "--dtype", "float32", "--greedy", *options]


@pytest.mark.parametrize("checkpoint", ["tiny8", "tiny16"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_tokens_equal_the_reference(checkpoint: str, conversation: str, tmp_path: Path) -> None:
    golden = load_file(DATA / checkpoint / "golden.safetensors")
    about = json.loads((DATA / checkpoint / "golden.json").read_text(encoding="utf-8"))
    persona = "" if conversation == "pt_nopersona" else about["persona"]
    voice = str(DATA / checkpoint / "voice.wav") if conversation == "wav_persona" else "TINY0"
    tokens, output = tmp_path / "tokens.safetensors", tmp_path / "out.wav"
    options = ["--voice", voice, "--persona", persona]
    written = ["--tokens", str(tokens), "--output", str(output)]
    assert main(arguments(checkpoint, *options, *written)) == 0
    assert np.array_equal(load_file(tokens)["tokens"], golden[f"{conversation}.tokens"][:9])
    if conversation == "pt_persona":
        spoken, _ = soundfile.read(output, dtype="int16")
        loudest = np.clip(golden["pt_persona.pcm"], -1.0, 32767 / 32768)  # 16 bits hold no more
        difference = spoken / 32768.0 - loudest
        assert np.sqrt(np.mean(np.square(difference))) < 1e-4


def test_output_is_as_long_as_the_input_at_any_rate_and_width(tmp_path: Path) -> None:
    seconds = 1.03  # no whole number of frames
    samples = np.sin(np.linspace(0.0, 900.0, int(seconds * 44_100)))
    stereo = np.stack([samples, samples], axis=1)
    source, output = tmp_path / "in.wav", tmp_path / "out.wav"
    soundfile.write(source, stereo, 44_100, subtype="PCM_24")
    options = ["--input", str(source), "--voice", "TINY0", "--output", str(output)]
    assert main(arguments("tiny8", *options)) == 0
    info = soundfile.info(output)
    assert (info.samplerate, info.channels, info.subtype) == (SAMPLE_RATE_HZ, 1, "PCM_16")
    assert info.frames == round(seconds * SAMPLE_RATE_HZ)


def test_words_are_written_with_the_time_of_their_frame(tmp_path: Path) -> None:
    text = tmp_path / "out.json"
    assert main(arguments("tiny8", "--voice", "TINY0", "--text", str(text))) == 0
    written = json.loads(text.read_text(encoding="utf-8"))
    assert written["text"] == "".join(piece["text"] for piece in written["pieces"]) != ""
    times_ms = [piece["start_ms"] for piece in written["pieces"]]
    assert times_ms == sorted(set(times_ms))
    assert all(time_ms % 80 == 0 for time_ms in times_ms)


def test_a_seed_makes_a_sampled_conversation_repeat_itself(tmp_path: Path) -> None:
    def tokens_of(seed: int, name: str) -> np.ndarray:
        path = tmp_path / name
        given = arguments("tiny8", "--voice", "TINY0", "--seed", str(seed), "--tokens", str(path))
        given.remove("--greedy")
        assert main(given) == 0
        return load_file(path)["tokens"]

    first = tokens_of(5, "a")
    assert np.array_equal(first, tokens_of(5, "b"))
    assert not np.array_equal(first, tokens_of(6, "c"))


def test_the_last_frame_of_the_input_is_heard_by_nobody(tmp_path: Path) -> None:
    samples, _ = soundfile.read(DATA / "tiny8" / "user.wav", dtype="float32")
    samples[-FRAME_SAMPLES:] = 0.9 * np.sign(np.sin(np.arange(FRAME_SAMPLES)))
    source, tokens = tmp_path / "in.wav", tmp_path / "tokens.safetensors"
    soundfile.write(source, float_to_pcm16(samples), SAMPLE_RATE_HZ)
    options = ["--input", str(source), "--voice", "TINY0", "--tokens", str(tokens)]
    assert main(arguments("tiny8", *options)) == 0
    golden = load_file(DATA / "tiny8" / "golden.safetensors")["pt_nopersona.tokens"][:9]
    assert np.array_equal(load_file(tokens)["tokens"], golden)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--voice", "NOBODY", "--tokens", "TMP/t"], "TINY0"),
        (["--voice", "TINY0"], "--output"),
        (["--voice", "TINY0", "--tokens", "TMP/no/such/t"], "no/such"),
        (["--voice", "TINY0", "--tokens", "TMP/t", "--input", "TMP/none.wav"], "none.wav"),
        (["--voice", "TINY0", "--tokens", "TMP/t", "--model", "TMP/nothing"], "nothing"),
        (["--voice", "TINY0", "--tokens", "TMP/t", "--seed", "-1"], "seed"),
        (["--voice", "TINY0", "--tokens", "TMP/t", "--persona", "word " * 5000], "persona"),
        (["--voice", "TMP/broken.wav", "--tokens", "TMP/t"], "broken.wav"),
        (["--voice", "TINY0", "--tokens", "TMP/t", "--text", "TMP/./t"], "file of its own"),
        (["--voice", "A", "--input", "TMP/a.wav", "--output", "TMP/a.wav"], "file of its own"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_status_2(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.wav").write_bytes(b"RIFF nothing")
    given = [option.replace("TMP", str(tmp_path)) for option in options]
    assert main(arguments("tiny8", *given)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("livekit-personaplex: error: ")
    assert message in lines[-1]
