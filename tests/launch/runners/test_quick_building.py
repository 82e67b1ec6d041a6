"""A pipeline that is built quickly is the one that Beam builds."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, StandardOptions, TypeOptions
from apache_beam.transforms import core
from apache_beam.typehints import decorators

from recordmill.launch.runners.quick_building import built_quickly
from recordmill.launch.runners.run import run


def twice(number: int) -> list[int]:
    return [number, number]


def built():
    pipeline = beam.Pipeline(options=PipelineOptions([]))
    pipeline | beam.Create([1, 2]) | beam.FlatMap(twice) | beam.Map(str).with_output_types(str) | beam.GroupBy(len)
    return pipeline.to_runner_api(use_fake_coders=True)


def shape(proto) -> list[tuple]:
    return [
        (each.unique_name, each.spec.urn, sorted(each.inputs), sorted(each.outputs))
        for each in proto.components.transforms.values()
    ]


def test_the_pipeline_is_the_same():
    slowly = built()
    with built_quickly():
        quickly = built()
    assert shape(quickly) == shape(slowly)
    assert quickly.components.coders == slowly.components.coders


def test_no_source_code_is_read_and_no_traceback_kept_until_the_block_ends(monkeypatch):
    read = []
    monkeypatch.setattr(core, "_get_function_body_without_inners", lambda function: read.append(function) or "")
    with built_quickly():
        beam.FlatMap(twice)
        origin = decorators.IOTypeHints.empty().with_output_types(int).origin
        assert not [line for line in origin if __file__ in line]
    assert read == []
    origin = decorators.IOTypeHints.empty().with_output_types(int).origin
    assert [line for line in origin if __file__ in line]
    beam.FlatMap(twice)
    assert read
    read.clear()
    run(lambda pipeline: pipeline | beam.Create([1]) | beam.FlatMap(twice), [])
    assert read == []


def test_two_threads_leave_beam_as_it_was():
    before = core._check_fn_use_yield_and_return, decorators.TRACEBACK_LIMIT, PipelineOptions._visible_option_list
    one, other = built_quickly(), built_quickly()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert decorators.TRACEBACK_LIMIT == 0  # for the other, still
    other.__exit__(None, None, None)
    assert before == (
        core._check_fn_use_yield_and_return,
        decorators.TRACEBACK_LIMIT,
        PipelineOptions._visible_option_list,
    )


def test_options_keep_their_names_and_values():
    views = StandardOptions, TypeOptions, DebugOptions
    flags = ["--streaming", "--experiments=a"]
    slowly = [dir(PipelineOptions(flags).view_as(view)) for view in views]
    with built_quickly():
        options = PipelineOptions(flags)
        for _ in range(2):
            assert [dir(options.view_as(view)) for view in views] == slowly
        options.view_as(TypeOptions).runtime_type_check = True
        assert options.view_as(StandardOptions).streaming
        assert options.view_as(TypeOptions).runtime_type_check
        with pytest.raises(AttributeError):
            _ = options.view_as(TypeOptions).streaming
