"""Asks a policy in another process, where text hashes differently. Part of the contract suites of policies."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from diskless_core.testing import patience

_CANNOT_LOAD = 3
_ENOUGH_S = 60.0

_CODE = f"""
import pickle, sys
path, pickled = pickle.load(sys.stdin.buffer)
sys.path[:] = path
try:
    policy, method, calls = pickle.loads(pickled)
except (ImportError, AttributeError) as error:
    print(error, file=sys.stderr)
    sys.exit({_CANNOT_LOAD})
answers = [getattr(policy, method)(*call) for call in calls]
pickle.dump(answers, sys.stdout.buffer)
"""


def answers_elsewhere(policy: object, method: str, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What a copy of an instance answers to each call in a new process, whose hashes are seeded differently.

    It skips the test if the instance cannot be pickled, or its module cannot be imported there.

    Raises:
        AssertionError: the other process failed.
    """
    try:
        pickled = pickle.dumps((policy, method, list(calls)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        pytest.skip(f"this policy cannot be given to another process: {error}")
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    done = subprocess.run(  # noqa: S603 - this Python, and the code above
        [sys.executable, "-c", _CODE],
        input=pickle.dumps((sys.path, pickled)),
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        timeout=max(_ENOUGH_S, patience.limit_s()),
        check=False,
    )
    said = done.stderr.decode(errors="replace")[-2000:]
    if done.returncode == _CANNOT_LOAD:
        pytest.skip(f"another process cannot import this policy: {said}")
    assert done.returncode == 0, f"the policy fails in another process: {said}"
    answers: list[Any] = pickle.loads(done.stdout)  # noqa: S301 - of that process
    return answers
