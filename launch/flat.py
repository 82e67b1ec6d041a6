"""Run a command from one list of our flags and Beam's: `python -m recordmill.launch.flat --command=convert --data=…
--runner=…`.

Dataflow's Flex Template launcher passes such a list. Our flags are the parameters of
`recordmill.launch.command_line.parameters`: underscores, `--gzip=true`, lists with commas or repeated."""

import sys
from collections import defaultdict
from collections.abc import Sequence

from recordmill.launch import cli
from recordmill.launch.command_line.parameters import TEMPLATES, command_line, parameters
from recordmill.launch.terminal.error_stream import error_stream
from recordmill.schemas.errors import ConfigError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command as `recordmill.launch.cli.main` does; return its exit code."""
    try:
        typed = from_flat(sys.argv[1:] if arguments is None else arguments)
    except ConfigError as error:
        print(f"recordmill: {error}", file=error_stream())
        return error.exit_code
    return cli.main(typed)


def from_flat(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `recordmill`.

    Raises:
        ConfigError: no command, or a value that its parameter does not take.

    >>> from_flat(["--command=convert", "--runner=DataflowRunner", "--data=gs://b/pets", "--region", "us-central1"])
    ['convert', 'gs://b/pets', '--', '--runner=DataflowRunner', '--region', 'us-central1']
    """
    command, rest = "", []
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == "--command":
            command = value
        else:
            rest.append(argument)
    if command not in TEMPLATES:
        raise ConfigError(f"--command={command} must be one of {', '.join(TEMPLATES)}")
    known = parameters(command)
    values, typed, beams = defaultdict(list), [], []
    for argument in rest:
        name, equals, value = argument.partition("=")
        parameter = name[2:].replace("-", "_") if name.startswith("--") else ""
        if name in ("--progress", "--debug"):
            typed.append(argument)
        elif parameter not in known:
            beams.append(argument)
        elif equals or known[parameter].type is bool:
            values[parameter].append(value if equals else "true")
        else:
            raise ConfigError(f"{name} needs its value in the same word: {name}=…")
    texts = {name: ",".join(words) if known[name].are_names else words for name, words in values.items()}
    return [*command_line(command, texts), *typed, "--", *beams]


if __name__ == "__main__":
    cli.command(main)
