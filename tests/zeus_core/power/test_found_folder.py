"""The folder in which the limits found are kept for a repair."""

import json
import os
import threading
from contextlib import closing

import pytest

from zeus_kfp.zeus_core.power import open_limiter
from zeus_kfp.zeus_core.power.found import FoundFile


def test_without_a_place_for_the_limit_found_nothing_is_set(fake_gpus, tmp_path):
    (tmp_path / "file").write_text("")
    limiter = open_limiter(os.environ | {"ZEUS_KFP_LIMITS_FOLDER": str(tmp_path / "file")})
    assert limiter.why_not.startswith("the limits found could not be kept for a repair")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o775])
def test_of_a_folder_that_others_may_write_to_a_folder_of_ones_own_is_used(fake_gpus, tmp_path, mode):
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(mode)
    with closing(open_limiter(os.environ | {"ZEUS_KFP_LIMITS_FOLDER": str(folder)})) as limiter:
        limiter.set(150)
        [own] = folder.iterdir()
        assert (own.name, own.stat().st_mode & 0o777) == (f"user-{os.getuid()}", 0o700)
        assert json.loads(next(own.iterdir()).read_text())["found_w"] == 250


def test_a_folder_of_ones_own_that_others_have_laid_is_not_trusted(fake_gpus, tmp_path):
    folder = tmp_path / "volume"
    (folder / "elsewhere").mkdir(parents=True)
    folder.chmod(0o777)
    (folder / f"user-{os.getuid()}").symlink_to("elsewhere")
    limiter = open_limiter(os.environ | {"ZEUS_KFP_LIMITS_FOLDER": str(folder)})
    assert "must belong to user" in limiter.why_not
    assert not list((folder / "elsewhere").iterdir())


def test_a_look_after_what_was_left_does_not_stand_in_a_trials_way(fake_gpus, tmp_path):
    with closing(open_limiter()):
        pass
    [path] = (tmp_path / "limits").iterdir()
    looking = FoundFile(path)
    threading.Timer(0.1, looking.close).start()
    with closing(open_limiter()) as limiter:
        assert limiter.name == "nvml"
