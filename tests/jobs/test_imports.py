"""What is imported when: the write path never needs TensorFlow, and --help needs next to nothing."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import coco_flags


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_writing_and_extracting_import_no_tensorflow(sample, tmp_path):
    code = (
        "import sys\n"
        "from recordmill.launch.cli import main\n"
        "out, new, *flags = sys.argv[1:]\n"
        "assert main(flags) == main(['extract', out, new]) == 0\n"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in ('tensorflow', 'keras')))"
    )
    folders = str(tmp_path / "out"), str(tmp_path / "new")
    out = run(code, *folders, *coco_flags(sample, tmp_path / "out"))
    assert out.splitlines()[-1] == "[]"


def test_help_imports_neither_beam_nor_tensorflow():
    code = (
        "import sys\n"
        "from recordmill.launch.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(roots & {'apache_beam', 'tensorflow', 'numpy', 'PIL'}))"
    )
    assert run(code, "coco", "--help").splitlines()[-1] == "[]"


def test_convert_leaves_the_job_s_modules_to_its_child():
    code = (
        "import sys, recordmill\n"
        "try: recordmill.convert('coco')\n"
        "except recordmill.ConfigError: pass\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(roots & {'apache_beam', 'tensorflow', 'pydantic', 'PIL', 'rich'}))"
    )
    assert run(code).splitlines()[-1] == "[]"


def test_a_wrong_flag_is_refused_before_beam_is_imported():
    code = "import sys\nfrom recordmill.launch.cli import main\n"
    code += "print(main(['coco', '--ouput', 'x']), 'apache_beam' in sys.modules)"
    assert run(code).splitlines()[-1] == "2 False"


def test_the_package_is_found_in_the_folder_that_holds_the_clone(tmp_path):
    """Not the clone itself, as a namespace package."""
    (tmp_path / "recordmill").symlink_to(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", "import recordmill; recordmill.open"], cwd=tmp_path, check=True)
