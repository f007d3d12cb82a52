"""Statements that a PostgreSQL server keeps read and planned, each for one connection."""

import hashlib
import re
from collections import Counter
from typing import Any

from zeus_kfp.state_store.compiled import Compiled

_USES_BEFORE = 5
_MOST = 100
_TRANSACTIONS_OF_A_PLAN = 200
# Planned without knowing from where on, what looks at the latest of a job's rows would walk all of them.
_RANGE = re.compile(r"[<>]=? %\(")


class PreparedStatements:
    """The statements that the server has prepared for a connection.

    A server takes longer to read and plan a statement than to execute it. One that a connection has sent five times
    is prepared, as psycopg 3 does by itself; the few that a pod sends in its life are not. Plans are made anew from
    time to time: one that was made while a table was small would walk all of it once it is large.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._uses: Counter[Compiled] = Counter()
        self._executions: dict[Compiled, str] = {}
        self._may_prepare: bool | None = None
        self._is_underway = False
        self._transactions = 0

    def begin(self) -> bytes:
        """Begin a transaction, and return what must be sent with its beginning, mostly nothing.

        If the one before never sent what it wanted prepared, all is sent in full from now on.
        """
        if self._is_underway:
            self._executions.clear()
            self._may_prepare = False
        self._transactions += 1
        is_time = self._executions and self._transactions % _TRANSACTIONS_OF_A_PLAN == 0
        return b"; DISCARD PLANS" if is_time else b""

    def have_gone_out(self) -> None:
        """Note that the server has got all that was to be sent."""
        self._is_underway = False

    def text_of(self, compiled: Compiled, cursor: Any) -> tuple[bytes, str]:
        """Return what must be sent before a statement, mostly nothing, and the text that takes its values."""
        if compiled not in self._executions:
            self._uses[compiled] += 1
            is_often = self._uses[compiled] > _USES_BEFORE and not _RANGE.search(compiled.text)
            if not is_often or len(self._executions) == _MOST or not self._is_direct(cursor):
                return b"", compiled.text
            return self._prepare(compiled, cursor), self._executions[compiled]
        return b"", self._executions[compiled]

    def _prepare(self, compiled: Compiled, cursor: Any) -> bytes:
        self._is_underway = True
        text, order = compiled.numbered(lambda value: cursor.mogrify("%s", (value,)).decode())
        # By what it is: whatever stands before the server, no other statement is executed for it.
        name = f"zeus_kfp_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        values = ", ".join(f"%({value})s" for value in order)
        self._executions[compiled] = f"EXECUTE {name}({values})" if order else f"EXECUTE {name}"
        return f"PREPARE {name} AS {text}".encode()

    def _is_direct(self, cursor: Any) -> bool:
        """Return whether the connection is one to the server itself.

        Behind a pooler the next transaction may be another server process's, which has prepared nothing. A pooler
        tells its clients process ids of its own.
        """
        if self._may_prepare is None:
            cursor.execute("SELECT pg_backend_pid()")
            ((process_id,),) = cursor.fetchall()
            self._may_prepare = process_id == cursor.connection.info.backend_pid
        return self._may_prepare
