"""Options of the format `folder`."""

from typing import Literal

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.inputs.image_options import StoredImageOptions
from recordmill.schemas.inputs.labelled_options import LabelledOptions
from recordmill.schemas.inputs.option import redefine_option


class FolderOptions(LabelledOptions, StoredImageOptions):
    """Options of the format `folder`, see docs/cli.md."""

    layout: Literal["classification"] = redefine_option(StoredImageOptions, "layout", "classification")

    @property
    def input_rows(self) -> InputRows:
        """Path and kind of the input, without numbers of rows."""
        return InputRows(", ".join(sorted(self.labels or self.images)), "labels" if self.labels else "images", 0, 0)
