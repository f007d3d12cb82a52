"""KFP's controller of recurring runs: starts a run when its time has come, as it was read in KFP's source and measured.

With no_catchup a recurring run that is late starts one run, at once: by cron that of the latest time that has passed;
at an interval, where two times and more have passed, one for "now", from which the interval counts from then on. Times
count from the last one for which a run was started, else from the start, else from when the recurring run was made.
"""

from datetime import UTC, datetime, timedelta

from croniter import croniter

from fake_kfp.books import Books, Record


class Controller:
    """Starts runs, each time it looks; the clock is that of the books."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self._last: dict[str, datetime] = {}

    def look(self) -> list[Record]:
        """Start what is due, and return it."""
        started = []
        for key, recurring in list(self.books.recurring_runs.items()):
            slot = self._due(key, recurring) if recurring["status"] == "ENABLED" else None
            live = [run for run in self.books.live_runs() if run.get("recurring_run_id") == key]
            if slot and len(live) < int(recurring["max_concurrency"]):
                self._last[key] = slot
                started.append(self.books.tick(key))
        return started

    def _due(self, key: str, recurring: Record) -> datetime | None:
        now = self.books.clock()
        (kind, held), *_ = recurring["trigger"].items()
        start, end = (_time(held[name]) if name in held else None for name in ("start_time", "end_time"))
        since = self._last.get(key) or start or _time(recurring["created_at"])
        since = max(since, start) if start else since
        slot = _by_cron(held["cron"], since, now) if kind == "cron_schedule" else _at_interval(held, since, now)
        return None if slot > now or (end and slot > end) else slot


def _by_cron(cron: str, since: datetime, now: datetime) -> datetime:
    times = croniter(cron, since, second_at_beginning=True)
    slot = times.get_next(datetime)
    while (following := times.get_next(datetime)) <= now:
        slot = following
    return slot


def _at_interval(held: Record, since: datetime, now: datetime) -> datetime:
    gap = timedelta(seconds=int(held["interval_second"]))
    slot = since + gap
    return now if now >= slot + gap else slot


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
