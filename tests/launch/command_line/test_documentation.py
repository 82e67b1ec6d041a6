"""docs/cli.md has the options as they are."""

from pathlib import Path

from recordmill.launch.command_line.documentation import with_tables

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_page_has_options_unchanged():
    assert with_tables(PAGE) == PAGE, "make templates writes it again"


def test_table_says_flag_meaning_and_default():
    page = with_tables("<!-- options: coco -->\nold\n<!-- end of options -->\nkept")
    assert page.endswith("<!-- end of options -->\nkept")
    assert "\nold\n" not in page
    assert "| `--masks none\\|png\\|rle\\|both` | Masks of objects. `png`: 8-bit PNG" in page
    assert page.count("| `none` |\n") == 1
    assert "| `--name NAME` | Prefix of the shards' file names. | `coco` |\n" in page
    assert "| `--no-crowd` | Skip annotations with `iscrowd` 1. | off |\n" in page
