"""A password in the store's URL shows in nothing that the commands print, log, write or raise."""

import subprocess
import sys

CODE = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
from zeus_kfp.pipelines import cli, store_commands
store_commands.PATIENCE_S = 0.1
for arguments in [
    ["jobs", "list"], ["jobs", "show", "a"], ["jobs", "delete", "a", "--yes"], ["recurrences", "close", "a", "b"],
    ["trials", "list"], ["db", "check"], ["db", "upgrade"], ["compile", sys.argv[1]], ["jobs", "list", "--format", "x"],
]:
    sys.argv[1:] = arguments
    try:
        cli.main()
    except SystemExit as ended:
        print(arguments, "exit code", ended.code)
from zeus_kfp.state_store import StateStore
StateStore.from_environment(patience_s=0.1).jobs()
"""


def test_a_canary_password_never_shows(tmp_path):
    url = "postgresql://user:c%40nary-7x@127.0.0.1:1/database"
    ran = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)],
        env={"ZEUS_KFP_STORE_URL": url, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    written = [path.read_text() for path in tmp_path.rglob("*.yaml")]
    shown = ran.stdout + ran.stderr + "".join(written)
    assert ran.stdout.count("exit code") == 9 and "Traceback" in ran.stderr and "127.0.0.1:1" in ran.stderr
    assert len(written) >= 9
    assert "c@nary" not in shown and "c%40nary" not in shown
