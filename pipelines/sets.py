"""Conversion of several data sets, which become one."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import apache_beam as beam
import msgspec

from recordmill.pipelines.convert import Job, choice_files, encode_and_plan, read_division, read_existing
from recordmill.pipelines.gathered import Gathered
from recordmill.pipelines.sets_options import NamedSet, SetsOptions
from recordmill.schemas.dataset.recipes import InputFile
from recordmill.schemas.errors import ConfigError, translated_errors
from recordmill.transforms.runtime.beam_steps import translate_errors
from recordmill.transforms.shape.join_sets import DataSetPart, JoinSets, facts_of_set


def prepare(options: SetsOptions) -> Job:
    """Return the job of several data sets.

    Raises:
        ConfigError: --split would divide no set; or see `prepare` of the format of a set.
    """
    jobs = {member.name: _prepare_member(member, options) for member in options.members}
    divided = [name for name, job in jobs.items() if _is_divided(job, options)]
    if options.is_split_given and not divided:
        shown = ", ".join(f"{name} ({', '.join(job.splits)})" for name, job in jobs.items())
        raise ConfigError(
            f"--split would divide nothing, because each data set has its own splits: {shown}. Leave it out"
        )
    splits = tuple(dict.fromkeys(split for job in jobs.values() for split in job.splits))
    options = options.with_read([job.options for job in jobs.values()], has_shares=len(divided) == len(jobs))
    steps = partial(gather, options=options, jobs=jobs, splits=splits)
    recorded = {"sets": [_recorded(member, jobs[member.name]) for member in options.members]}
    notes = tuple(note for member in options.members for note in _notes(member, jobs[member.name], options))
    maker, plan = encode_and_plan(options, splits, options.table)
    read = partial(inputs, options, [*jobs.values()])
    return Job(options, splits, read, steps, maker, plan, notes=notes, more_recorded=recorded)


def _prepare_member(member: NamedSet, options: SetsOptions) -> Job:
    """Return the job of reading a set, divided by --split of all sets unless the set names several splits."""
    prepare_format = member.format.load("prepare")
    with translated_errors(partial(_name_set, member.name)):
        job: Job = prepare_format(member.options)
        names_several = job.names_splits and len(job.splits) > 1
        return job if names_several or member.divided is member.options else prepare_format(member.divided)


def _is_divided(job: Job, options: SetsOptions) -> bool:
    """Return True if --split of all sets divides a set."""
    own: Any = job.options
    return options.is_split_given and own.is_split_given and own.split == options.split


def _recorded(member: NamedSet, job: Job) -> str:
    """Return the text of a set in recipes, as JSON."""
    values = {"name": member.name, "format": member.format.name, "splits": job.splits}
    return msgspec.json.encode(values | member.recorded(job.options)).decode()


def _notes(member: NamedSet, job: Job, options: SetsOptions) -> Iterator[str]:
    """Yield lines about a set: its format, and where its splits come from."""
    shown = ", ".join(job.splits)
    if "split" in member.own:
        text = f"splits {shown}, by its own options"
    elif _is_divided(job, options):
        text = f"splits {shown}, by --split"
    elif job.names_splits:
        text = f"splits {shown}, which it names"
    else:
        text = f"it names no splits, so its images go to {shown}"
    yield f"set {member.name} ({member.format.name}): {text}"
    yield from (f"set {member.name}: {note}" for note in job.notes)


def inputs(options: SetsOptions, jobs: Sequence[Job]) -> Iterator[InputFile]:
    """Yield the files of all sets that determine bytes, without the file of --groups of the job."""
    for job in jobs:
        yield from job.inputs()
        yield from (file for file in choice_files(job.options) if (file.kind, file.path) != ("groups", options.groups))


class _ReadSet(beam.PTransform):
    """Read a set, with its own splits and options. A composite, because steps of sets have the same labels."""

    def __init__(self, name: str, job: Job):
        super().__init__()
        self._name, self._job = name, job

    def expand(self, p):  # several outputs: Beam accepts no type hints
        with facts_of_set(self._name):
            blocks, labels, table, *_ = self._job.read(p.pipeline)
        translate_errors(p.pipeline.transforms_stack[-1], partial(_name_set, self._name))
        return blocks, labels, table


def _name_set(name: str, text: str) -> str:
    return f"set {name}: {text}"


def gather(p: beam.Pipeline, options: SetsOptions, jobs: Mapping[str, Job], splits: tuple[str, ...]) -> Gathered:
    """Return the images of all sets, their classes and features."""
    parts = list[DataSetPart]()
    for name, job in jobs.items():
        blocks, labels, table = p | f"Set {name}" >> _ReadSet(name, job)
        own: Any = job.options
        parts.append(DataSetPart(name, blocks, labels, table, job.splits, own.image_rules.upright))
    division = read_division(p, options) if options.keeps_groups else None
    existing = read_existing(options, splits)
    join = JoinSets(parts, splits, options, existing, reports_copies=options.duplicates != "drop")
    blocks, labels, table = tuple(part.blocks for part in parts) | "JoinSets" >> join
    return Gathered(blocks, labels, table, division=division)
