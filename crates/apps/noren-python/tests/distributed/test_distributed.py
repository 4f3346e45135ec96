"""`noren.distributed` with real processes: the numbers of one process, the bytes of the plan, and errors on every rank."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.forkserver
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import noren as nr
from conftest import ROOT, sampled

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("PyTorch has no gloo here", allow_module_level=True)

WORKER = "distributed_worker"
# long enough for a machine of two cores that does much else; a run that hangs ends here
LIMIT = 400.0


@pytest.fixture(scope="module")
def server() -> Any:
    """Returns a server process that has imported everything and forks the processes of the tests."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([WORKER])
    with pytest.MonkeyPatch.context() as patch:
        folders = Path(__file__).parents[:2]  # the server imports its modules from here
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
        multiprocessing.forkserver.ensure_running()
    return context


def start(server: Any, folder: Path, ranks: int, *what: Any) -> list[Any]:
    import distributed_worker

    processes = [server.Process(target=distributed_worker.run, args=(r, ranks, str(folder), *what)) for r in range(ranks)]
    for process in processes:
        process.start()
    return processes


def finish(processes: list[Any], folder: Path, limit: float = LIMIT) -> list[str]:
    """Returns the output of each process; ends processes that do not finish in time."""
    end = time.monotonic() + limit
    for process in processes:
        process.join(max(0.1, end - time.monotonic()))
    late = [rank for rank, process in enumerate(processes) if process.is_alive()]
    for rank in late:
        processes[rank].kill()
    assert not late, f"ranks {late} hang"
    reports = [folder / f"{rank}.txt" for rank in range(len(processes))]
    return [report.read_text() if report.exists() else "" for report in reports]


def test_the_corpus_over_2_3_and_4_ranks(server: Any, tmp_path: Path) -> None:
    said = finish(start(server, tmp_path, 4, "equal_on_the_corpus"), tmp_path)
    assert all(text.startswith("done ") for text in said), "\n".join(said)
    found = json.loads(said[0].removeprefix("done "))
    assert found["keys travel"] > 300 and found["queries travel"] > 50, found


@pytest.mark.parametrize("travel", sampled(["both", "keys"], 2))
def test_sizes_options_types_decoding_and_transformers(server: Any, tmp_path: Path, travel: str) -> None:
    said = finish(start(server, tmp_path, 4, "equal_at_all_sizes", travel), tmp_path)
    assert all(text.startswith("done") for text in said), "\n".join(said)


def test_ranks_that_disagree_all_say_so(server: Any, tmp_path: Path) -> None:
    said = finish(start(server, tmp_path, 3, "disagree"), tmp_path)
    assert all(text.startswith("done") for text in said), "\n".join(said)


@pytest.mark.parametrize(("how", "when"), sampled([("SIGKILL", "in the exchange"), ("SIGSTOP", "before the agreement"), ("SIGKILL", "before the agreement"), ("SIGSTOP", "in the exchange")], 2))
def test_a_rank_that_is_gone_ends_the_job_everywhere(server: Any, tmp_path: Path, how: str, when: str) -> None:
    processes = start(server, tmp_path, 3, "lose_a_rank", how, when)
    said = finish(processes[:2], tmp_path, 30)
    for rank, text in enumerate(said):
        assert f"GroupError: rank {rank} of 3: " in text and "left the group or kept the other ranks waiting" in text, text
    assert processes[0].exitcode == 1
    if how == "SIGSTOP":  # the stopped rank raises its error after it continues
        os.kill(processes[2].pid, signal.SIGCONT)
        finish(processes[2:], tmp_path, 30)
        assert "GroupError: rank 2 of 3: " in (tmp_path / "2.txt").read_text()
    processes[2].join(10)
    assert processes[2].exitcode != 0


def test_what_is_refused_in_one_process() -> None:
    import noren.distributed as nd

    plan = nr.causal().plan(8)
    with pytest.raises(nr.Error, match="no process group"):
        nd.Split(plan)
    with pytest.raises(nr.Error, match="0 ranks"):
        nd.partition(plan, 0)
    partition = nd.partition(plan, 2)
    again = nd.Partition.from_json(partition.to_json(), plan.bound)
    assert (again.hash, again.ranks, again.method) == (partition.hash, 2, partition.method)
    with pytest.raises(nr.Error, match="the hash of the partition|the shape of the partition|cells|reads"):
        nd.Partition.from_json(partition.to_json(), nr.causal().plan(9).bound)


def losses(lines: list[str]) -> dict[int, float]:
    steps = (line.split() for line in lines if line.startswith("step "))
    return {int(words[1]): float(words[3]) for words in steps}


def test_training_gets_the_losses_of_one_process_and_survives_a_kill(tmp_path: Path) -> None:
    """Runs the example by torchrun: a rank is killed, torchrun restarts all, training continues from the checkpoint."""
    example = str(ROOT / "crates/apps/noren-python/examples/train_packed.py")
    arguments = [example, "--steps", "9", "--save-every", "3"]
    alone = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=LIMIT)
    expected = losses(alone.stdout.splitlines())
    assert expected[8] < expected[0]

    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "--max-restarts", "1"]
    arguments += ["--folder", str(tmp_path), "--timeout", "20"]
    lines: list[str] = []
    begins: dict[int, int] = {}
    """Returns the process id of rank 2, by the step at which the process begins."""
    with subprocess.Popen([*launcher, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
        assert job.stdout is not None
        guard = threading.Timer(LIMIT, job.kill)
        guard.start()
        for line in job.stdout:
            lines.append(line.strip())
            if found := re.search(r"rank 2, process (\d+): training begins at step (\d+)", line):
                begins[int(found[2])] = int(found[1])
            if line.startswith("step 4 ") and len(begins) == 1:
                os.kill(begins[0], signal.SIGKILL)
        guard.cancel()
    text = "\n".join(lines)
    assert job.returncode == 0, text
    assert list(begins) in ([0, 3], [0, 6]), text
    together = losses(lines)
    assert together.keys() == expected.keys(), text
    worst = max(abs(together[step] - expected[step]) for step in expected)
    assert worst < 2e-5, f"{worst}\n{text}"
