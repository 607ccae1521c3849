"""What the names of columns and rows of each program mean."""

from __future__ import annotations

Legend = tuple[tuple[str, str], ...]
_STAGES: Legend = (
    ("y_k_l", "0-1: prefill stage k is at level l"),
    ("r_k", "rounds of decode stage k"),
    ("tsp_k, np_k", "start and length of prefill stage k"),
    ("tsd_k, nd_k", "start and length of decode stage k"),
    ("tmax", "makespan"),
    ("rows e2_k .. e7_k, e8t_k", "times, levels and caps, by Pang's equations (2) to (8)"),
    ("rows a_i_k, m_k", "arrivals, memory"),
    ("rows s1_k, s2_k", "symmetry: used stages come first"),
)
COLUMNS: dict[str, Legend] = {
    "full-mip": (
        ("x_i_j", "0-1: request i is on client j"),
        ("p_i_j_k", "0-1: and is prefilled in stage k"),
        ("d_i_j_k", "0-1: and is on the client in decode stage k"),
        ("w_i_j_k", "tokens of request i in decode stage k"),
        *_STAGES,
        ("rows e8_.. to e18_..", "assignment and windows, by Pang's equations (8) to (18)"),
        ("rows w_i_j_k", "tokens only where the request is on the client"),
        ("rows s3_i_j", "symmetry: clients are numbered by their first request"),
        ("rows c1, c2", "rounds and stages that all tokens need"),
    ),
    "window-mip": (
        ("u_i_a_b", "0-1: request i is prefilled in stage a and done by the end of stage b"),
        ("w_i_k", "tokens of request i in decode stage k, where they count"),
        *_STAGES,
        ("rows one_i, long_i_a_b", "one window each, with rounds enough"),
        ("rows clients_k", "windows over stage k, at most the clients"),
        ("rows all_i, in_i_k, on_i_k", "tokens of request i, where they count"),
    ),
    "latency-mip": (
        ("s_i_k, f_i_k", "0-1: request i is prefilled in bin k, is done at the end of bin k"),
        ("on_i_k, w_i_k", "0-1: it is on a client in bin k; its rounds there"),
        ("c_i_k", "0-1: its first round is in bin k"),
        ("first_i, finish_i", "when its first and its last token come, where they count"),
        ("u_k, y_k_l, r_k", "0-1: bin k is used, its prefill is at level l; its rounds"),
        ("ts_k, tp_k, te_k", "when bin k begins, ends its prefill, ends"),
        ("tmax", "makespan, where it counts"),
        ("rows s_i, f_i, w_i, on_i_k, done_i_k, w0_i_k, w1_i_k, w2_i_k", "windows and rounds"),
        ("rows clients_k, m_k, cap_k, one_k, some_k, a_i_k", "clients, memory, caps, arrivals"),
        ("rows tp_k, te_k, ts_k, end_k", "times of bins"),
        ("rows first_i_k, finish_i_k, c_i, c0_i_k, c1_i_k", "times of tokens"),
        ("rows u0_k, u1_k, u2_k, u3_k, u4_k", "symmetry: used bins first"),
        ("rows same_i_j", "symmetry: equal requests in order"),
    ),
}
"""What the names of columns and rows mean; i request, j client, k stage or round, l level."""
