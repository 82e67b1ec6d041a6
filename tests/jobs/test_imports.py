"""Imports: the write path never needs TensorFlow, and --help needs few modules."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import coco_flags, shard_bytes


def run(code: str, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment)


WITHOUT_CLIENTS = """
import sys, warnings, PIL.Image
before = list(warnings.filters), PIL.Image.MAX_IMAGE_PIXELS
CLIENTS = "apitools", "google.api_core", "google.auth", "google.cloud.", "google.oauth2", "googleapiclient"
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith(CLIENTS):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder)
from recordmill.launch.cli import main
out, new, *flags = sys.argv[1:]
codes = [main(flags), main(["extract", out, new]), main(["show", "gs://b/o"])]
codes.append(main(["convert", "--instances=x.json", "--images=i", "--output=gs://b/o"]))
heavy = [name for name in sys.modules if name.startswith(("tensorflow.", "keras.", *CLIENTS))]
ours = [each for each in warnings.filters if each not in before[0] and "PIL" in str(each)]
print(codes, heavy, ours, PIL.Image.MAX_IMAGE_PIXELS == before[1])
"""


def test_local_job_imports_little(sample, tmp_path, copy_converted):
    """One thread of a process with another hash seed writes the same bytes."""
    folders = str(tmp_path / "out"), str(tmp_path / "new")
    ended = run(WITHOUT_CLIENTS, *folders, *coco_flags(sample, tmp_path / "out", "--num-shards", 3, "--workers", 1))
    assert ended.stdout.splitlines()[-1] == "[0, 0, 2, 2] [] [] True"
    assert ended.stderr.count('recordmill: gs:// needs the extra gs. Run: pip install "recordmill[gs]"\n') == 2
    copy_converted(tmp_path / "here", "--num-shards", 3)
    assert shard_bytes(tmp_path / "out") == shard_bytes(tmp_path / "here") != {}


LOADED = """
import sys
def loaded(*names):
    print([name for name in names if any(module.partition(".")[0] == name for module in sys.modules)])
"""


def test_help_and_wrong_flag_import_next_to_nothing():
    code = (
        f"{LOADED}\nfrom recordmill.launch.cli import main\n"
        "try: main(['convert', '--help'])\n"
        "except SystemExit: loaded('apache_beam', 'tensorflow', 'numpy', 'PIL')\n"
        "print(main(['convert', '--ouput', 'x']))\n"
        "loaded('apache_beam')"
    )
    assert run(code).stdout.splitlines()[-3:] == ["[]", "2", "[]"]


def test_options_of_all_verbs_and_formats_import_next_to_nothing():
    code = (
        f"{LOADED}\nfrom recordmill.pipelines.formats import all_formats\n"
        "from recordmill.pipelines.verbs import VERBS\n"
        "assert len([each.options for each in (*VERBS.values(), *all_formats())]) > 15\n"
        "loaded('apache_beam', 'defusedxml', 'numpy', 'PIL', 'pyarrow', 'tensorflow', 'yaml')"
    )
    assert run(code).stdout == "[]\n"


def test_report_and_show_need_no_beam():
    code = f"{LOADED}\nimport recordmill.launch.verbs.report, recordmill.launch.verbs.show\n"
    code += "loaded('apache_beam', 'pyarrow')"
    assert run(code).stdout == "[]\n"


def test_convert_leaves_job_s_modules_to_its_child():
    code = (
        f"{LOADED}\nimport recordmill\n"
        "try: recordmill.convert('data')\n"
        "except recordmill.ConfigError: loaded('apache_beam', 'tensorflow', 'pydantic', 'PIL', 'rich')\n"
    )
    assert run(code).stdout.splitlines() == ["[]"]


def test_package_is_found_beside_clone(tmp_path):
    """Not the clone itself, as a namespace package."""
    (tmp_path / "recordmill").symlink_to(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", "import recordmill; recordmill.open"], cwd=tmp_path, check=True)
