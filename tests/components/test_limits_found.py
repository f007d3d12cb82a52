"""Where a trial's supervisor has the power limits kept that it finds."""

import os
import tempfile
from contextlib import closing

import pytest

from zeus_kfp.components.train_with_profiling.limits_found import with_limits_folder
from zeus_kfp.zeus_core.power.found import FoundFile, folder_path

FOLDER = "ZEUS_KFP_LIMITS_FOLDER"


def test_limits_are_kept_beside_the_checkpoints_of_a_volume(tmp_path):
    kept = with_limits_folder({"OTHER": "x"}, str(tmp_path / "volume"))
    assert kept == {"OTHER": "x", FOLDER: str(tmp_path / "volume" / "zeus-kfp-limits")}


def test_a_lock_that_another_trial_holds_is_no_volume_without_locks(tmp_path):
    kept = with_limits_folder({}, str(tmp_path))
    with closing(FoundFile(tmp_path / "zeus-kfp-limits" / "lock")):
        assert with_limits_folder({}, str(tmp_path)) == kept == {FOLDER: str(tmp_path / "zeus-kfp-limits")}


@pytest.mark.parametrize(
    ("told", "checkpoint_dir", "folder"),
    [
        ({FOLDER: "limits"}, "", "limits"),
        ({FOLDER: "limits"}, "checkpoints", "limits"),
        ({}, "checkpoints", "checkpoints/zeus-kfp-limits"),
    ],
)
def test_training_that_goes_elsewhere_keeps_its_folder(tmp_path, monkeypatch, told, checkpoint_dir, folder):
    monkeypatch.chdir(tmp_path)
    assert with_limits_folder(told, checkpoint_dir)[FOLDER] == str(tmp_path / folder)


def test_a_volume_that_cannot_be_used_leaves_the_folder_for_temporary_files(tmp_path):
    (tmp_path / "file").write_text("")
    kept = with_limits_folder({"TMPDIR": str(tmp_path)}, str(tmp_path / "file"))
    assert kept[FOLDER] == str(tmp_path / f"zeus-kfp-limits-{os.getuid()}")


def test_a_folder_for_temporary_files_that_is_none_is_passed_over(tmp_path):
    usual = os.path.join(tempfile.gettempdir(), f"zeus-kfp-limits-{os.getuid()}")
    assert with_limits_folder({"TMPDIR": str(tmp_path / "none")}, "") == {
        "TMPDIR": str(tmp_path / "none"),
        FOLDER: usual,
    }


def test_without_a_folder_for_temporary_files_a_folder_that_is_named_will_do(tmp_path, monkeypatch):
    def none():
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert str(folder_path({FOLDER: str(tmp_path)})) == str(tmp_path)
    assert with_limits_folder({}, str(tmp_path)) == {FOLDER: str(tmp_path / "zeus-kfp-limits")}
    assert with_limits_folder({}, "") == {}
