"""Options of the format `folder`."""

from typing import Literal

from recordmill.schemas.dataset.manifest import InputRows
from recordmill.schemas.inputs.fields import Fields, FieldSelection, select_fields
from recordmill.schemas.inputs.image_options import LabelsOnlyOptions, ObjectOptions, StoredImageOptions, TileOptions
from recordmill.schemas.inputs.labelled_options import LabelledOptions
from recordmill.schemas.inputs.option import redefine_option


class FolderOptions(LabelledOptions, TileOptions, LabelsOnlyOptions):
    """Options of the format `folder`, see docs/cli.md."""

    layout: Literal["classification"] = redefine_option(StoredImageOptions, "layout", "classification")

    fields: Fields = redefine_option(ObjectOptions, "fields", needs="labels")

    @property
    def has_fields(self) -> bool:
        return bool(self.requested_columns)

    @property
    def requested_columns(self) -> FieldSelection:
        """Requested columns of `--labels`, which are fields of images."""
        image_fields, object_fields = select_fields(self.fields)
        return FieldSelection({**object_fields.kinds, **image_fields.kinds}, image_fields.is_all, self.dry_run)

    @property
    def input_rows(self) -> InputRows:
        """Path and kind of the input, without numbers of rows."""
        return InputRows(", ".join(sorted(self.labels or self.images)), "labels" if self.labels else "images", 0, 0)
