"""`make bench` runs every benchmark, whatever the others do."""

import subprocess
import sys
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[2] / "Makefile"


@pytest.fixture
def bench(tmp_path):
    """Return a function that runs benchmarks of these exit codes and returns how make ended, and what was printed."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "stamp").write_text("")

    def run(*codes):
        files = [tmp_path / f"b{index}.py" for index in range(len(codes))]
        for file, code in zip(files, codes, strict=True):
            file.write_text(f"print('ran {file.stem}', flush=True); raise SystemExit({code})")
        names = " ".join(map(str, files))
        command = ["make", "-f", MAKEFILE, "bench", f"BENCHMARKS={names}", f"BIN={tmp_path / 'bin'}"]
        done = subprocess.run(
            [*command, f"STAMP={tmp_path / 'stamp'}"], cwd=MAKEFILE.parent, capture_output=True, text=True
        )
        return done.returncode, done.stdout

    return run


@pytest.mark.parametrize(
    ("codes", "is_good", "said"),
    [
        ((0, 0), True, []),
        ((1, 0, 3), False, ["b0.py failed with 1", "b2.py failed with 3"]),
        ((77, 0), True, ["b0.py was skipped"]),
        ((77, 1, 77), False, ["b0.py was skipped", "b1.py failed with 1", "b2.py was skipped"]),
    ],
)
def test_all_run_and_failures_count_at_the_end(bench, codes, is_good, said):
    code, printed = bench(*codes)
    assert (code == 0) is is_good
    assert [f"ran b{index}" in printed for index in range(len(codes))] == [True] * len(codes)
    assert all(line in printed for line in said)
    assert printed.count("-- ") == len(said)
