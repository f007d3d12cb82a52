"""The README's Python runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

from zeus_kfp.state_store import StateStore

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_code_trains_one_recurrence(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    code = "\n".join(blocks).replace("/tmp/zeus-kfp-readme", str(tmp_path))
    script = tmp_path / "readme.py"
    script.write_text(code)
    subprocess.run([sys.executable, script], check=True, cwd=tmp_path)
    with StateStore(f"sqlite:///{tmp_path / 'store.db'}") as store:
        (trial,) = store.trials("first")
        assert (trial.batch_size, trial.state.value, trial.num_epochs) == (32, "reached", 3)
