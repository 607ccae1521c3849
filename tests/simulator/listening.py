"""Policies with a log of all that they are told and see."""


def listening(policy):
    """Return the policy with a log of the calls of its hooks and of its views in ``heard``."""
    kind = type(policy)

    class Listening(kind):
        def on_arrival(self, view, request):
            self.heard.append(("arrival", request, view.index, view.now_ns, seen(view)))
            return super().on_arrival(view, request)

        def on_first_token(self, view, request):
            self.heard.append(("first token", request, view.index, seen(view)))
            super().on_first_token(view, request)

        def on_finish(self, view, request, client):
            self.heard.append(("finish", request, client, view.index, seen(view)))
            super().on_finish(view, request, client)

        def on_preempt(self, view, request):
            self.heard.append(("preempt", request, view.index, seen(view)))
            super().on_preempt(view, request)

        def decide(self, view):
            others = [seen(other) for other in view.workers]
            self.heard.append(("decide", view.index, view.now_ns, seen(view, True), others))
            step = super().decide(view)
            self.heard.append(("step", step))
            return step

    policy.__class__ = Listening
    policy.heard = []
    return policy


def seen(view, closely=False):
    """What a view shows of its worker; closely: of each request on it as well."""
    clients = [view.request_on(client) for client in range(view.worker.clients)]
    shown = [dict(view.running), list(view.running), clients, view.free_clients, view.blocks_free]
    if closely:
        shown += [view.rounds, view.blocks_unused, list(view.prompt_tokens), list(view.arrival_ns)]
        shown += [list(view.prefilling.items()), view.blocks_left(1), view.blocks_left(7)]
        shown.append(sorted(view.needing_blocks()))
        shown += [(view.generated(r), view.cached(r), view.to_prefill(r)) for r in view.running]
    return shown


def columns(table):
    """A table of a schedule as plain lists."""
    return {name: column.tolist() for name, column in vars(table).items()}
