"""Screenshots: three stand in the documentation; and reports keep their limit on size."""

import re
from pathlib import Path

import pytest

from benchmarks import report_page, screenshots
from benchmarks.screenshots import IN_DOCS, SHOTS, Shot, main


def test_three_stand_on_the_page_of_charts_and_are_small(repo_root):
    page = (repo_root / "docs" / "charts-and-report.md").read_text()
    assert len(IN_DOCS) == 3
    assert set(IN_DOCS) < {shot.name for shot in SHOTS}
    for name in IN_DOCS:
        path = repo_root / "docs" / "_static" / f"screenshot-{name}.png"
        assert f"(_static/{path.name})" in page
        assert path.stat().st_size < 120_000, name


def test_without_the_built_documentation_it_says_what_to_do(tmp_path, capsys):
    assert main(["--out", str(tmp_path / "out"), "--html", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/index.html is missing: make docs\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.browser
def test_a_page_with_an_error_is_not_taken(tmp_path):
    pytest.importorskip("playwright")
    if not any(map(screenshots.shutil.which, ("chromium", "google-chrome"))):
        pytest.skip("there is no Chromium on this system")
    good, bad = Path(tmp_path / "good.html"), Path(tmp_path / "bad.html")
    wide = '<pre style="width: 500px">wide</pre>'
    good.write_text(f"<!doctype html><article style='width: 250px'><p>good</p>{wide}</article>")
    bad.write_text("<!doctype html><script>throw new Error('broken')</script>")
    with screenshots.browser() as started:
        cut = screenshots.take(started, Shot("index", 300, 200), good, tmp_path / "good.png")
        assert cut == ["PRE wide"]
        with pytest.raises(SystemExit, match="broken"):
            screenshots.take(started, Shot("index", 300, 200), bad, tmp_path / "bad.png")
    screenshots.shrink(tmp_path / "good.png", tmp_path / "small.png")
    assert 0 < (tmp_path / "small.png").stat().st_size <= (tmp_path / "good.png").stat().st_size


@pytest.mark.full
def test_pages_stay_below_eight_megabytes(capsys):
    assert report_page.main(["--quick", "--no-browser"]) == 0
    sizes = [
        float(size) for size in re.findall(r"\| ([0-9.]+) \| [0-9.]+ \| –", capsys.readouterr().out)
    ]
    assert len(sizes) == 3
    assert max(sizes) < 8
