"""A password in the store's URL shows in nothing that the commands and steps print, log, write or raise."""

import json
import subprocess
import sys

CONNECTED = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
from sqlalchemy import func, select
from zeus_kfp.pipelines import cli
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core import JobSpec, TrialOutcome, TrialState
store = StateStore.from_environment()
print(store, repr(store), vars(store))
store.open_recurrence(JobSpec("job", (8, 16), 8, target_metric=0.9), "run")
store.suggest("job", "run", 1)
for arguments in [
    ["jobs", "list"], ["jobs", "list", "--format", "json"], ["jobs", "show", "job"], ["trials", "list", "--job", "job"],
    ["jobs", "export", "job", "--output", sys.argv[1] + "/job.json"], ["jobs", "show", "nobody"], ["db", "check"],
    ["db", "upgrade"], ["jobs", "delete", "job", "--yes"], ["recurrences", "close", "job", "run"], ["doctor"],
]:
    sys.argv[1:] = arguments
    try:
        cli.main()
    except SystemExit as ended:
        print(arguments, "exit code", ended.code)
store._database.write(lambda transaction: transaction.read(select(func.no_such_function())))
"""

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


def test_a_canary_password_never_shows_where_the_store_works(tmp_path, postgresql_with_password):
    ran = subprocess.run(
        [sys.executable, "-c", CONNECTED, str(tmp_path)],
        env={"ZEUS_KFP_STORE_URL": postgresql_with_password, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    shown = ran.stdout + ran.stderr + (tmp_path / "job.json").read_text()
    assert ran.stdout.count("exit code") == 11 and "Traceback" in ran.stderr and "no_such_function" in ran.stderr
    assert json.loads((tmp_path / "job.json").read_text())["job"]["spec"]["job_id"] == "job"
    assert "c@nary" not in shown and "c%40nary" not in shown
