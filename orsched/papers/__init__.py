"""The figures and tables of five papers, rerun: printed values beside ours, statements judged.

One registry: a file ``<paper>.toml`` says everything about a figure in words and numbers, and a
module ``<paper>.py`` beside it has ``RERUNS``, what makes its rows. To add a figure or table:

1. In ``<paper>.toml``, a table ``[[entry]]``:

   - ``figure = 12`` or ``table = 2``; ``caption``, in our words; ``where``, the place in the paper.
   - ``skip = "illustration"`` if it is not rerun: the reason. Nothing else is needed then.
   - ``rerun``, one sentence on what is rerun here, and ``runs``, a name in ``RERUNS``. Figures of
     the same runs name the same; their finished runs are shared.
   - ``quick`` and ``full``, settings by name; ``full`` has what differs in the paper's size.
   - ``columns``, names of the columns of the table that belong to this figure (default: all).
   - ``chart``, keywords of ``charts.lines``, ``charts.bars`` or ``charts.points`` with ``kind``;
     ``{kind = "gantt"}``, for which the rerun has ``schedules``; or ``{parts = [...]}``, charts
     beside each other, of the rows that have what ``only`` says.
   - ``[[entry.printed]]``: ``value``, a name in ``Rerun.values``; ``printed``, a number or
     ``[low, high]``; ``where``, the place, which has it printed or drawn.
   - ``[[entry.claim]]``: ``text``, the statement; ``where``; ``holds``, a comparison of values and
     numbers such as ``"0 < gain_min"`` or ``"invalid_scls < invalid_sls"``, several with ``and``;
     or ``not_comparable``, the reason why. ``reason``: one line on the verdict, if it needs one.

2. In ``<paper>.py``, ``RERUNS[name] = Rerun(jobs, run, values)``:

   - ``jobs(settings)``: the runs, each a flat dict that JSON can hold; ``seed`` is averaged over.
   - ``run(job)``: figures of one run, a flat dict of numbers, a schedule checked; it depends on
     nothing but the job. It is called in order, and not again for a finished run of ``--state``.
   - ``rows(done, settings)``: the table, from jobs with their figures (default: means over seeds).
   - ``values(rows)``: named numbers of the table that ``printed`` and ``holds`` speak of.

``orsched paper NAME --figure N`` and ``orsched.paper(NAME, figure=N)`` do the rest.
"""

from orsched.papers.reruns import PAPERS, Entry, Rerun, Verdict, entries, find
from orsched.papers.running import Rerunning, listed, paper

__all__ = ["PAPERS", "Entry", "Rerun", "Rerunning", "Verdict", "entries", "find", "listed", "paper"]
