"""The reports of the jobs that a compaction of a cluster is made of, one or more at each leader, as one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from diskless_core.tiering.report import JobState

_ENDED = (JobState.FINISHED, JobState.FAILED)
LOST = "lost"
"""What the state of a job is called whose broker has gone. Others have gone on with it."""


class CompactionReports:
    """The last that was heard of each job."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[int, str], dict[str, Any]] = {}

    def note(self, report: Mapping[str, Any]) -> None:
        """Take what a broker says of one of its jobs."""
        self._jobs[report["node_id"], report["id"]] = dict(report)

    def lost(self, node_id: int, job_id: str) -> None:
        """A job's broker is gone, or has forgotten it."""
        if (node_id, job_id) in self._jobs:
            self._jobs[node_id, job_id] |= {"state": LOST}

    def progress(self) -> tuple[str, int, int]:
        """The state of all that has not ended, and how many bytes of how many were copied."""
        jobs = self._jobs.values()
        states = [job["state"] for job in jobs if job["state"] in (JobState.WAITING, JobState.RUNNING)]
        state = JobState.RUNNING if JobState.RUNNING in states else next(iter(states), JobState.FINISHED)
        copied = sum(job["bytes_copied"] for job in jobs)
        expected = sum(
            job["bytes_copied"] if _is_replaced(job) else job["bytes_planned"] + job["bytes_expected"] for job in jobs
        )
        return state, copied, expected

    def merged(self) -> dict[str, Any]:
        """All as one report. What jobs failed at that others went on with is only told with the job."""
        jobs = list(self._jobs.values())
        final = [job for job in jobs if not _is_replaced(job)]
        ends = [job["ended_at_ms"] for job in jobs if job["ended_at_ms"] is not None]
        return {
            "state": JobState.FAILED if any(job["failures"] for job in final) else JobState.FINISHED,
            "engine": jobs[0]["engine"],
            "begun_at_ms": min(job["begun_at_ms"] for job in jobs),
            "ended_at_ms": max(ends, default=None),
            **{name: sum(job[name] for job in jobs) for name in ("bytes_copied", "segments")},
            "topics": _topics(jobs, final),
            "failures": [failure for job in final for failure in job["failures"]],
            "jobs": [
                {name: job[name] for name in ("id", "node_id", "shards", "moved", "state", "segments", "failures")}
                for job in jobs
            ],
        }


def has_ended(report: Mapping[str, Any]) -> bool:
    """Whether nothing more becomes of a job."""
    return report["state"] in _ENDED


def done_shards(report: Mapping[str, Any]) -> Collection[int]:
    """For which coordinators an ended job has done all that there was to do, or said why it could not."""
    return [] if _is_replaced(report) else report["shards"]


def _is_replaced(report: Mapping[str, Any]) -> bool:
    """Whether others go on with it: it failed, and what its broker led has moved."""
    return report["state"] == LOST or (report["state"] == JobState.FAILED and bool(report["moved"]))


def _topics(jobs: Collection[Mapping[str, Any]], final: Collection[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for job in jobs:
        for name, topic in job["topics"].items():
            known = topics.setdefault(name, dict.fromkeys(topic, 0))
            for figure, value in topic.items():
                if figure != "partitions" or job in final:
                    known[figure] += value
    return topics
