"""The report of what is in the store when that is not all of the plan: after a failed run, or during one.

It measures and judges nothing, and what it writes is an entry of the store like any other.
"""

from __future__ import annotations

import os
from pathlib import Path

from hallmark import digest, jobs, links, store, verdict_jobs
from hallmark.plan import Plan


def write(plan: Plan) -> Path | None:
    """Point `artifacts/report` at a report of what is there, which names what is missing. None when no artifact is."""
    memory = digest.Memory(jobs.STATE / "digests.sqlite")
    node = plan.report_of(lambda needed: store.is_whole(plan.root, plan.root / needed.place, memory))
    if not node.recipe["artifacts"]:
        return None
    place = plan.root / node.place
    if not store.is_whole(plan.root, place, memory):
        inputs = {role: store.verify(plan.root / needed.place, memory) for role, needed in node.inputs.items()}
        made_from = {role: entry.digest for role, entry in inputs.items()}
        header = {"verb": node.verb, "subject": node.subject, "key": node.key, "components": node.components}
        with store.writing(plan.root, place, {**header, "inputs": made_from}, memory) as draft:
            draft.notes.update(verdict_jobs.report(jobs.Job(node.job(), {}, inputs, {}, Path(os.devnull), draft)))
    memory.save()
    links.point(node.link, place)
    return Path("artifacts", node.link, "index.html")
