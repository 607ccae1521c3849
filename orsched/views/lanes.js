"use strict";
// Which client stands in which row of a chart: those that never hold a request are folded away.
window.orsched.lanes = (() => {
  const { data, several, plain } = window.orsched;
  const offsets = data.instance.offsets, workers = data.instance.workers.length, all = offsets.at(-1);

  // Rows of the clients that any of some schedules uses; all clients where ``unfolded``.
  function rowsOf(methods, unfolded) {
    const used = new Uint8Array(all).fill(unfolded ? 1 : 0);
    methods.forEach((m) => m.used.forEach(([from, to]) => used.fill(1, from, to)));
    if (!used.some(Boolean)) used.fill(1);
    const row = new Int32Array(all + 1), edges = [0];
    for (let w = 0, next = 0; w < workers; w += 1) {
      for (let lane = offsets[w]; lane < offsets[w + 1]; lane += 1) {
        row[lane] = next;
        next += used[lane];
      }
      edges.push(next);
      row[all] = next;
    }
    return { row, used, edges, count: edges.at(-1), folded: all - edges.at(-1) };
  }

  // The axis of clients: names of workers at their middles, or numbers of clients.
  function axis(rows, most) {
    const scale = { range: [rows.count - 0.5, -0.5], ticks: "outside", ticklen: 4, showgrid: false, zeroline: false };
    if (several) {
      const shown = data.instance.workers.map((_, w) => w).filter((w) => rows.edges[w + 1] > rows.edges[w]);
      const every = Math.ceil(shown.length / most); // more names would overlap
      const some = shown.filter((_, k) => k % every === 0);
      return { ...scale, tickvals: some.map((w) => (rows.edges[w] + rows.edges[w + 1] - 1) / 2),
        ticktext: some.map((w) => plain(data.instance.workers[w])) };
    }
    if (!rows.folded) return { ...scale, title: { text: "client" }, tickformat: "d" };
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000].find((s) => rows.count / s <= 12) ?? rows.count;
    const lanes = [...rows.used.keys()].filter((lane) => rows.used[lane] && rows.row[lane] % step === 0);
    return { ...scale, title: { text: "client" }, tickvals: lanes.map((lane) => rows.row[lane]), ticktext: lanes.map(String) };
  }

  return { rowsOf, axis };
})();
