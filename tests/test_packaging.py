"""The explicit package list holds every folder that is a package, and no other."""

import configparser
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("zeus_core", "state_store", "components", "pipelines", "compiled")


def test_the_package_list_is_the_folders():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    folders = {path.parent.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("__init__.py")}
    assert listed == {"zeus_kfp." + ".".join(folder.parts) for folder in folders}


def test_every_room_is_typed():
    assert all((ROOT / room / "py.typed").exists() for room in ROOMS)
