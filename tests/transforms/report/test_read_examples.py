import io

import pytest
from PIL import Image

from recordmill.transforms.report.read_examples import _picture


@pytest.mark.parametrize(
    ("size", "decoded"),
    [
        ((640, 480), (320, 240)),
        ((900, 300), (450, 150)),
        ((639, 639), (639, 639)),
        ((90, 60), (90, 60)),
        ((3000, 8), (375, 1)),  # of a line camera: less than a pixel high where it is as wide as wanted
        ((8, 3000), (1, 375)),
    ],
)
def test_a_jpeg_is_decoded_at_no_less_than_it_is_wanted_and_at_less_than_twice(size, decoded):
    file = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(file, "JPEG")
    picture, found = _picture({"image.encoded": file.getvalue()}, None)
    assert (picture.size, found) == (decoded, size)
