"""Whether an instance, a method and its parameters go together: asked before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.costs.asked import require_whole_times

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.solving.method_choice import Chosen


def require_fit(instance: Instance, chosen: Chosen) -> None:
    """Refuse what does not go together, at the parameter that the user set where there is one.

    What every command and ``solve`` ask before bounds, searches and simulations. A method says it
    by ``check_parameters(parameters)``, for whatever instance, and by ``require_fit(instance,
    information, parameters)``; both are optional.

    Raises:
        InputError: a parameter is wrong, the method does not take such workers or requests, or a
            cost model of the user's own returns times that are not whole nanoseconds.
    """
    for cost in {id(worker.cost): worker.cost for worker in instance.workers}.values():
        require_whole_times(cost)
    method = chosen.method
    check = getattr(method, "check_parameters", None)
    if check is not None:
        check(chosen.parameters)
    fits = getattr(method, "require_fit", None)
    if fits is not None:
        fits(instance, chosen.information, chosen.parameters)
