import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from recordmill.launch.terminal.picture_protocols import iterm, kitty, picture_protocol, sixel


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, kitty),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, kitty),
        ({"TERM": "xterm-ghostty"}, kitty),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, iterm),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, iterm),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, iterm),
        ({"TERM": "foot"}, sixel),
        ({"TERM": "mlterm"}, sixel),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "screen-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app", "TMUX": "/tmp/x"}, None),
        ({}, None),
    ],
)
def test_the_environment_says_what_a_terminal_shows(environment, protocol):
    assert picture_protocol(environment) is protocol


@pytest.fixture(scope="module")
def image() -> Image.Image:
    pixels = np.zeros((31, 40, 3), np.uint8)
    pixels[:, 20:] = 255, 0, 0
    pixels[20:, :9] = 0, 0, 255
    return Image.fromarray(pixels)


def opened(text: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(text)))


def test_kitty_takes_it_in_pieces():
    noise = Image.effect_noise((200, 200), 80)
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", kitty(noise))
    assert len(pieces) > 2
    assert [keys for keys, _ in pieces] == ["a=T,f=100,m=1", *["m=1"] * (len(pieces) - 2), "m=0"]
    assert max(len(data) for _, data in pieces) <= 4096
    assert opened("".join(data for _, data in pieces)).tobytes() == noise.tobytes()


def test_iterm_takes_it_whole(image):
    size, data = re.fullmatch(r"\x1b\]1337;File=inline=1;size=(\d+):([^\a]*)\a", iterm(image)).groups()
    assert len(base64.b64decode(data)) == int(size)
    assert opened(data).tobytes() == image.tobytes()


def test_sixels_decode_to_the_same_pixels(image):
    assert (decoded(sixel(image)) == np.asarray(image)).all()


def decoded(text: str) -> np.ndarray:
    """A reader of sixel, of what DEC's manual says."""
    width, height, body = re.fullmatch(r'\x1bPq"1;1;(\d+);(\d+)(.*)\x1b\\', text, re.DOTALL).groups()
    pixels = np.full((int(height) + 6, int(width), 3), 7, np.uint8)
    palette, colour, x, y = {}, 0, 0, 0
    for number, rgb, count, char in re.findall(r"#(\d+)((?:;\d+){4})?|(?:!(\d+))?([?-~$-])", body):
        if number:
            colour = int(number)
            if rgb:
                palette[colour] = [round(int(part) * 2.55) for part in rgb.split(";")[2:]]
        elif char in "$-":
            x, y = 0, y + 6 * (char == "-")
        else:
            run = int(count or 1)
            for bit in range(6):
                if ord(char) - 63 >> bit & 1:
                    pixels[y + bit, x : x + run] = palette[colour]
            x += run
    return pixels[: int(height)]
