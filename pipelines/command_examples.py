"""An example of each command, shown below its help."""

import typer

_EXAMPLES = {
    "demo": "demo --recurrences 5 --device fake-gpu",
    "doctor": "doctor",
    "compile": "compile yaml",
    "report": "report digits --output digits.html",
    "simulate": "simulate --train-trace train.csv --power-trace power.csv --default-batch-size 64 --target-metric 0.9",
    "submit": "submit recurring_training --params knobs.yaml --wait",
    "run": "run recurring_training --params knobs.yaml --times 3",
    "schedule create": "schedule create nightly recurring_training --cron '0 0 3 * * *' --params knobs.yaml",
    "schedule update": "schedule update nightly --every 12h -p target_metric=0.96",
    "schedule pause": "schedule pause nightly",
    "schedule resume": "schedule resume nightly",
    "schedule trigger": "schedule trigger nightly -p max_retries=1",
    "schedule list": "schedule list --json",
    "schedule delete": "schedule delete nightly --wait 3600",
    "jobs list": "jobs list --phase running --user ann --since 7d",
    "jobs show": "jobs show digits",
    "jobs export": "jobs export digits --output digits.json",
    "jobs complete": "jobs complete digits --yes",
    "jobs reopen": "jobs reopen digits",
    "jobs delete": "jobs delete digits --with-history",
    "jobs signal-drift": "jobs signal-drift digits --reason 'accuracy in production fell' --value 0.91",
    "jobs drifts": "jobs drifts digits",
    "jobs prunable": "jobs prunable digits --format csv",
    "jobs reset": "jobs reset digits",
    "recurrences list": "recurrences list --job digits --state reached",
    "recurrences show": "recurrences show digits RUN_ID",
    "recurrences close": "recurrences close digits RUN_ID",
    "trials list": "trials list --job digits --batch-size 64 --format json",
    "trials show": "trials show digits 12",
    "profiles list": "profiles list --job digits",
    "arms list": "arms list --job digits",
    "db upgrade": "db upgrade",
    "db check": "db check",
}


def show_examples(app: typer.Typer, path: str = "") -> None:
    """Put below the help of each command how it is typed, where there is an example."""
    for command in app.registered_commands:
        name = command.name or (command.callback.__name__.replace("_", "-") if command.callback else "")
        example = _EXAMPLES.get(f"{path}{name}")
        command.epilog = command.epilog or (f"Example: zeus-kfp {example}" if example else None)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            show_examples(group.typer_instance, f"{path}{group.name} " if group.name else path)
