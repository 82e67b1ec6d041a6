"""Pictures in terminals that show them, by one of three protocols.

https://sw.kovidgoyal.net/kitty/graphics-protocol/, https://iterm2.com/documentation-images.html, and sixel of DEC's
VT340 (https://vt100.net/docs/vt3xx-gp/chapter14.html).
"""

import base64
import io
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image

_CHUNK = 4096
"""Characters of base64 that kitty takes at once."""
_COLOURS = 255


def picture_protocol(environment: Mapping[str, str]) -> Callable[[Image.Image], str] | None:
    """What writes a picture for the terminal that the environment describes; None where it is not known to show any.

    Within tmux and screen none is: they swallow what they do not know.
    """
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if term.startswith(("screen", "tmux")) or "TMUX" in environment:
        return None
    if term in ("xterm-kitty", "xterm-ghostty") or program == "ghostty" or "KITTY_WINDOW_ID" in environment:
        return kitty
    if program in ("iTerm.app", "WezTerm", "mintty") or environment.get("LC_TERMINAL") == "iTerm2":
        return iterm
    if term.startswith(("foot", "mlterm", "yaft")) or "sixel" in term or "MLTERM" in environment:
        return sixel
    return None


def kitty(image: Image.Image) -> str:
    text = base64.b64encode(_png(image)).decode()
    pieces = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]
    last = len(pieces) - 1
    return "".join(
        f"\x1b_G{'a=T,f=100,' if not number else ''}m={int(number < last)};{piece}\x1b\\"
        for number, piece in enumerate(pieces)
    )


def iterm(image: Image.Image) -> str:
    data = _png(image)
    return f"\x1b]1337;File=inline=1;size={len(data)}:{base64.b64encode(data).decode()}\a"


def sixel(image: Image.Image) -> str:
    """Six rows at a time: for each colour in them, which of the six each column has, runs of one put together."""
    paletted = image.convert("RGB").quantize(_COLOURS)
    palette = np.array(paletted.getpalette()).reshape(-1, 3) * 100 // 255
    pixels = np.asarray(paletted)
    parts = [f'\x1bPq"1;1;{image.width};{image.height}']
    parts += [f"#{number};2;{red};{green};{blue}" for number, (red, green, blue) in enumerate(palette)]
    weights = 1 << np.arange(6)
    for top in range(0, image.height, 6):
        band = pixels[top : top + 6]
        for colour in np.unique(band).tolist():
            bits = weights[: len(band)] @ (band == colour)
            starts = np.flatnonzero(np.diff(bits, prepend=-1))
            lengths = np.diff(starts, append=len(bits))
            runs = (f"!{length}{chr(63 + bits[at])}" for at, length in zip(starts, lengths, strict=True))
            parts.append(f"#{colour}{''.join(runs)}$")
        parts.append("-")
    return "".join(parts) + "\x1b\\"


def _png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()
