"""Rows whose ids are numbers or texts: a text becomes a number, by its value or by its hash."""

import contextlib
import re
from typing import Any

import msgspec

from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.inputs.annotations import Int64
from recordmill.schemas.inputs.splits import name_id
from recordmill.schemas.rejects import IdTexts

_DECIMAL = re.compile(r"([+-]?[0-9]{1,99})(\.0*)?")  # Python refuses int() of thousands of digits


def id_number(text: str, texts: dict[int, str]) -> int:
    """Return the int64 of an id: the value of a decimal text, else a hash, of which the text is added to `texts`.

    >>> id_number("0998", {}), id_number("a.jpg", {})
    (998, 5996240643517367183)

    Raises:
        CollidingImagesError: `texts` has another text of this hash.
    """
    match = _DECIMAL.fullmatch(text)
    if match and -(1 << 63) <= (number := int(match[1])) < 1 << 63:
        return number
    number = name_id(text)
    if texts.setdefault(number, text) != text:
        raise collision(number, text, texts[number])
    return number


class RowDecoder:
    """Decoder of single rows. Ids that are texts become numbers.

    Args:
        type_: of rows.
        texts: gets the ids that are no decimal numbers.
    """

    def __init__(self, type_: Any, texts: IdTexts):
        self._decode = msgspec.json.Decoder(type_, strict=False).decode
        fields = () if type_ is msgspec.Raw else type_.__struct_fields__
        known = {"image_id": texts.images, "id": texts.annotations if "image_id" in fields else texts.images}
        self._texts = {key: found for key, found in known.items() if key in fields}
        self._decode_texts = self._decode
        if self._texts:
            with_texts = msgspec.defstruct(type_.__name__, [(key, Int64 | str) for key in self._texts], bases=(type_,))
            self._decode_texts = msgspec.json.Decoder(with_texts, strict=False).decode
        self._has_texts = False

    def __call__(self, raw: Any) -> Any:
        """Return the row of a JSON text.

        Raises:
            msgspec.ValidationError: a field is of another type.
            CollidingImagesError: the hash of two texts is the same.
        """
        if not self._has_texts:
            with contextlib.suppress(msgspec.ValidationError):
                return self._decode(raw)
        row = self._decode_texts(raw)
        for key, found in self._texts.items():
            text = getattr(row, key)
            if not isinstance(text, str):
                continue
            if not text:
                return self._decode(raw)  # which raises
            setattr(row, key, id_number(text, found))
            self._has_texts = True
        return row


def collision(id_: int, *texts: str) -> CollidingImagesError:
    """Return the error for two ids, at least one of them a text, with the same number."""
    shown = " and ".join(repr(text) if text else f"the number {id_}" for text in sorted(texts))
    return CollidingImagesError(f"the ids {shown} have the same hash, {id_}: rename one")
