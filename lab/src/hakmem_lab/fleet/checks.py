"""What forbids a verdict: groups that are not comparable, or data that are not whole. Each refusal says what and
why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hakmem_lab.fleet import inference
from hakmem_lab.fleet.inference import Array, Design
from hakmem_lab.fleet.plan import Plan, fingerprint

MISSING = 0.05  # the share of hosts that may be without data
SEEN = 0.5  # the share of a day's samples from which on the day counts
WRONG = 0.01  # the share of hosts that may run something else than planned
SERVED, UNSERVED = 0.9, 0.1  # shares of a host's time on HAKMEM
CHANCE = 0.001  # an honest experiment is refused by one of these tests as rarely
SIDES = 0.25  # by which the groups' shares of restarted hosts may differ on a day
NAMES = 5  # of hosts in a sentence

Flags = NDArray[np.bool_]


def some(names: Sequence[str]) -> str:
    rest = len(names) - NAMES
    return ", ".join(names[:NAMES]) + (f" and {rest} more" if rest > 0 else "")


def changed(plan: Plan) -> str | None:
    """Whether the assignment is the one that was drawn."""
    if fingerprint(plan.hosts, plan.seed) != plan.lots:
        return "the plan's assignment was changed after it was drawn: the groups are no longer by lot"
    return None


def missing(plan: Plan, seen: Array, treated: Flags) -> tuple[str | None, Flags]:
    """Refuses if too many hosts have no data, or more on one side; and which hosts have some. seen: the share of each
    day's samples (hosts by days)."""
    there = (np.nan_to_num(seen) >= SEEN).mean(axis=1) >= SEEN
    names = [host.name for host, is_there in zip(plan.hosts, there, strict=True) if not is_there]
    share = len(names) / len(there)
    if share > MISSING:
        return f"{len(names)} of {len(there)} hosts have no data ({100 * share:.1f} %): {some(names)}", there
    table = np.array([[(side & of).sum() for of in (there, ~there)] for side in (treated, ~treated)], dtype=np.int64)
    if names and stats.fisher_exact(table).pvalue < CHANCE:
        sides = f"{table[0, 1]} with HAKMEM, {table[1, 1]} without"
        return f"hosts are missing on one side ({sides}): what is left can no longer be compared: {some(names)}", there
    return None, there


def arms(plan: Plan, served: Array, treated: Flags, there: Flags) -> str | None:
    """Refuses if hosts run something else than planned. served: the share of time on HAKMEM (hosts by days)."""
    share = inference.mean_of_days(served)
    off = there & treated & ~(share >= SERVED)
    on = there & ~treated & (share > UNSERVED)
    if (off | on).sum() <= WRONG * there.sum():
        return None
    said = []
    for flags, words in ((off, "should run on HAKMEM and do not"), (on, "should not run on HAKMEM and do")):
        names = [plan.hosts[i].name for i in np.flatnonzero(flags)]
        if names:
            said.append(f"{len(names)} hosts {words}: {some(names)}")
    return "; ".join(said)


def differed_before(design: Design, levels: dict[str, Array], seed: int) -> str | None:
    """Refuses if the groups differed before the start by more than the lot explains. levels: by metric, in which an
    effect would be a difference."""
    if not levels:
        return None
    centred = np.stack([design.centred(level) for level in levels.values()], axis=1)
    scale = np.linalg.norm(centred, axis=0)
    packed = (centred / np.maximum(scale, 1e-300)).astype(np.float32)
    seen = np.abs(design.treated @ packed)
    drawn = np.concatenate([each @ packed for each in design.draws(inference.DRAWS, seed)])
    chance = ((np.abs(drawn) >= seen * (1 - 1e-6)).sum(axis=0) + 1) / (len(drawn) + 1)
    # Beyond what the draws resolve, the normal distribution that they follow tells.
    far = 2 * stats.norm.sf(seen / np.maximum(drawn.std(axis=0), 1e-12))
    for i, name in enumerate(levels):
        if scale[i] > 0 and chance[i] < 0.01 and min(chance[i], far[i]) < CHANCE / len(levels):
            effect = seen[i] * scale[i] / design.weight
            return f"the groups differed before the start: {name}, by {effect:.3g}; p = {min(chance[i], far[i]):.2g}"
    return None


def one_side(restarted: Array, treated: Flags) -> str | None:
    """Refuses if on some day many hosts of one group, and not of the other, restarted: a deployment that hit one side.
    restarted: restarts by hosts and days."""
    hit = np.nan_to_num(restarted) > 0
    for day in range(hit.shape[1] if 0 < treated.sum() < len(treated) else 0):
        a, b = hit[treated, day], hit[~treated, day]
        if abs(a.mean() - b.mean()) <= SIDES:
            continue
        table = np.array([[a.sum(), (~a).sum()], [b.sum(), (~b).sum()]], dtype=np.int64)
        if stats.fisher_exact(table).pvalue < CHANCE / hit.shape[1]:
            return (
                f"on day {day + 1}, {100 * a.mean():.0f} % of the hosts with HAKMEM and {100 * b.mean():.0f} % of the "
                "others restarted: a deployment hit one side only, or programs crash there"
            )
    return None
