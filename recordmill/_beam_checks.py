"""Options of the transforms of `recordmill.beam`, with keywords in errors, and checks of their inputs."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.trigger import DefaultTrigger
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.typehints import is_consistent_with

from recordmill._conversion import plain_value
from recordmill.launch.command_line.parser import drop_unknown
from recordmill.pipelines.transform_options import TRANSFORMS, keyword_types, transform_fields
from recordmill.schemas.command_texts import python_text
from recordmill.schemas.errors import ConfigError, JobError, translated_errors
from recordmill.schemas.features import FeatureTable
from recordmill.schemas.field_features import field_columns
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.schemas.inputs.sample import Sample
from recordmill.transforms.blocks.pack_block import unpack_block
from recordmill.transforms.dataset.facts import Facts
from recordmill.transforms.storage.os_errors import explain_os_error, is_command_error
from recordmill.transforms.user_samples.convert_samples import convert_block

LOGGER = logging.getLogger("recordmill")
NOWHERE = os.path.join(os.devnull, "no output")  # output of transforms that only read


def plain_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options that are not None, as JSON types."""
    return {name: plain_value(name, value) for name, value in given.items() if value is not None}


def known_values(transform: beam.PTransform, given: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    """Return the values of the options that a transform has, and append an error for each other name."""
    own, *other_transforms = sorted(TRANSFORMS, key=lambda name: name != type(transform).__name__)
    fields = {field.name: field for field in transform_fields(own)}
    users = {
        field.name: other for other in other_transforms for field in transform_fields(other) if field.name not in fields
    }
    for name in given.keys() & users.keys():
        faults.append(f"{name} is an option of {users[name]}, not of {own}")
    return drop_unknown({name: given[name] for name in given if name not in users}, fields, "", faults)


@contextmanager
def keywords_in_errors(given: Mapping[str, Any] = {}) -> Iterator[None]:
    """Name keywords in errors, as `recordmill.convert` does. Raise errors of files as those of the command.

    Args:
        given: Values of options, also of those that only formats of other packages have, by name.
    """
    try:
        with translated_errors(translation(given)):
            yield
    except OSError as error:
        raise (ConfigError if is_command_error(error) else JobError)(explain_os_error(error)) from error


def translation(given: Mapping[str, Any] = {}) -> Callable[[str], str]:
    """Return the translation of messages to keywords; `given` as for `keywords_in_errors`."""
    types = {name: type(value).__name__ for name, value in given.items()}
    return partial(python_text, keywords=types | keyword_types())


def check_type(name: str, part: Any, type_: type) -> None:
    """Raise ConfigError if a PCollection has other elements."""
    element_type = getattr(part, "element_type", type(part))
    if part is not None and not is_consistent_with(element_type, type_):
        type_name = getattr(element_type, "__name__", element_type)
        cure = "samples, labels, facts = p | ReadDataset(…), then samples | …(labels=labels, facts=facts)"
        if type_ is Sample and element_type not in (LabelMap, Facts):
            cure = "the step before it has to return Samples"
        raise ConfigError(f"{name} is of {type_name}, and a PCollection of {type_.__name__} is expected: {cure}")


def check_windows(name: str, samples: PCollection) -> None:
    """Raise ConfigError if Beam would give the Samples to a transform in several parts."""
    windowing = samples.windowing
    parts = "" if isinstance(windowing.windowfn, GlobalWindows) else f"in {type(windowing.windowfn).__name__}"
    if not parts and not isinstance(windowing.triggerfn, DefaultTrigger):
        parts = f"in windows with the trigger {type(windowing.triggerfn).__name__}"
    if parts:
        raise ConfigError(
            f"{name} writes all Samples as one data set, but its input is {parts}. Add "
            "beam.WindowInto(beam.window.GlobalWindows()) before it"
        )
    if not samples.is_bounded:
        raise ConfigError(
            f"{name} writes all Samples as one data set, but its input is unbounded. Read them from a source that ends"
        )


def read_samples(
    keyed: tuple[int, bytes], labels: LabelMap, table: FeatureTable | None, splits: Sequence[str]
) -> Iterator[Sample]:
    """Yield the images of (BlockKey, packed Block) as Samples. `table` has their open fields; None without any."""
    yield from convert_block(unpack_block(keyed[1]), labels, splits, field_columns(table) if table else ())


def log_warnings(facts: Facts) -> None:
    """Log the warnings of Facts, with keywords in place of flags."""
    for _, text in sorted(facts.warnings):
        LOGGER.warning("%s", translation()(text))
