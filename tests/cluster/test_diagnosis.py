"""The reason of a failure is found in logs as Python, torchrun and Slurm really write them."""

from __future__ import annotations

from textwrap import dedent

from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.cluster.diagnosis import explain

_TWO_RANKS = dedent("""\
    rank 0 of 2
    [rank{victim}]: Traceback (most recent call last):
    [rank{victim}]:   File "/x/train.py", line 6, in <module>
    [rank{victim}]:     dist.barrier()
    [rank{victim}]: RuntimeError: [/p/gloo/pair.cc:547] {victim_says}
    [rank{guilty}]: Traceback (most recent call last):
    [rank{guilty}]:   File "/x/train.py", line 5, in <module>
    [rank{guilty}]:     check()
    [rank{guilty}]:   File "/x/check.py", line 9, in check
    [rank{guilty}]:     raise ValueError("boom")
    [rank{guilty}]: ValueError: boom
    E1130 08:52:33.548000 8061 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: 1) local_rank: 1
    Traceback (most recent call last):
      File "/x/torch/distributed/launcher/api.py", line 317, in launch_agent
        raise ChildFailedError(
    torch.distributed.elastic.multiprocessing.errors.ChildFailedError:{space}
    ============================================================
    train FAILED
    ------------------------------------------------------------
    Root Cause (first observed failure):
    [0]:
      time      : 2026-11-30_08:52:33
      host      : localhost
      rank      : {guilty} (local_rank: {guilty})
      exitcode  : 1 (pid: 8067)
      error_file: <N/A>
    ============================================================
    """)


def test_the_guilty_rank_is_quoted_and_not_its_victim_or_torchrun() -> None:
    log = _TWO_RANKS.format(guilty=1, victim=0, victim_says="Connection closed by peer [127.0.0.1]:19843", space=" ")
    assert explain(log) == 'rank 1: ValueError: boom\n  File "/x/check.py", line 9, in check'


def test_torchruns_root_cause_decides_between_two_real_errors() -> None:
    log = _TWO_RANKS.format(guilty=0, victim=1, victim_says="wrong shape", space=" ")
    assert explain(log).startswith("rank 0: ValueError: boom")


def test_a_rank_that_was_killed_is_named_and_not_those_that_miss_it() -> None:
    log = dedent("""\
        [rank1]: Traceback (most recent call last):
        [rank1]:   File "/x/bridge.py", line 6, in receive
        [rank1]: RuntimeError: [/p/gloo/pair.cc:547] Connection closed by peer [127.0.0.1]:19843
        Failures:
        [1]:
          rank      : 0 (local_rank: 0)
          exitcode  : -15 (pid: 14590)
          traceback : Signal 15 (SIGTERM) received by PID 14590
        [2]:
          rank      : 2 (local_rank: 2)
          exitcode  : -9 (pid: 14592)
          traceback : Signal 9 (SIGKILL) received by PID 14592
        ----------------------------
        Root Cause (first observed failure):
        [0]:
          rank      : 1 (local_rank: 1)
          exitcode  : 1 (pid: 14591)
        """)
    assert explain(log) == "rank 2 was ended by signal 9 (SIGKILL)"
    assert explain(log.replace("Connection closed by peer", "wrong shape")).startswith("rank 1: RuntimeError")


def test_interleaved_ranks_are_kept_apart() -> None:
    log = dedent("""\
        [rank0]: Traceback (most recent call last):
        [rank1]: Traceback (most recent call last):
        [rank1]:   File "b.py", line 2, in b
        [rank0]:   File "a.py", line 1, in a
        [rank1]: KeyError: 'b'
        [rank0]: IndexError: a
        """)
    assert explain(log) == 'rank 0: IndexError: a\n  File "a.py", line 1, in a'


def test_of_a_chain_the_last_exception_counts() -> None:
    log = dedent("""\
        Traceback (most recent call last):
          File "a.py", line 1, in a
        KeyError: 'x'

        The above exception was the direct cause of the following exception:

        Traceback (most recent call last):
          File "b.py", line 2, in b
        nemotron_rl.errors.StoreError: no artifact x
          in store y
        bye
        """)
    assert explain(log) == 'nemotron_rl.errors.StoreError: no artifact x\n  in store y\n  File "b.py", line 2, in b'


def test_an_exception_without_a_message_is_found() -> None:
    assert explain('Traceback (most recent call last):\n  File "a.py", line 1, in a\nAssertionError\n').startswith(
        "Asser"
    )


def test_without_a_traceback_the_last_lines_speak() -> None:
    log = "one\ntwo\n\nslurmstepd: error: *** JOB 4 ON n1 CANCELLED ***\nfatal: no such device\n"
    assert explain(log) == "one\ntwo\nfatal: no such device"


def test_a_traceback_cut_off_by_a_kill_falls_back_to_the_last_lines() -> None:
    assert "a.py" in explain('Traceback (most recent call last):\n  File "a.py", line 1, in a\n')


@given(st.text(alphabet=st.sampled_from('T\n :[rank0]"Error')))
def test_any_log_can_be_explained(log: str) -> None:
    explain(log)
    explain(f"Traceback (most recent call last):\n{log}")
