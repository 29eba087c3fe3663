"""The telephone line of the tests speaks G.711 as libsndfile does."""

import io

import numpy as np
import pytest
import soundfile

from tests.rooms.g711 import Law, decode, encode

EVERY_SAMPLE = np.arange(-32_768, 32_768).astype(np.int16)
EVERY_CODE = np.arange(256).astype(np.uint8)


@pytest.mark.parametrize(("law", "subtype"), [("mu", "ULAW"), ("A", "ALAW")])
def test_every_sample_and_every_code_is_what_libsndfile_makes_of_it(law: Law, subtype: str) -> None:
    file = io.BytesIO()
    soundfile.write(file, EVERY_SAMPLE, 8_000, subtype=subtype, format="RAW")
    assert encode(EVERY_SAMPLE, law).tobytes() == file.getvalue()
    expanded, _ = soundfile.read(
        io.BytesIO(EVERY_CODE.tobytes()),
        dtype="int16",
        channels=1,
        samplerate=8_000,
        subtype=subtype,
        format="RAW",
    )
    assert np.array_equal(decode(EVERY_CODE, law), expanded)
