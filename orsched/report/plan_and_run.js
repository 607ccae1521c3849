"use strict";
(() => {
  const { data, lanes, several, seconds, exact, plain, traces, CONFIG, FONT, HOVER } = window.orschedCharts;
  const COLOURS = { prefill: "#E69F00", mixed: "#D55E00", decode: "#0072B2" };
  const TOP = 20, BETWEEN = 34, ERRORS = 110;

  // The charts of the page, with the axes of a part of this one.
  function part(method, main, top) {
    return traces(method).map((trace) => ({ ...trace, xaxis: "x", yaxis: trace.yaxis === "y2" ? top : main }));
  }

  function errors(pair) {
    const share = pair.took.map((took, k) => (pair.planned[k] ? took / pair.planned[k] - 1 : 0));
    return Object.entries(COLOURS).map(([phase, colour]) => {
      const rows = pair.phase.map((name, k) => [name, k]).filter(([name]) => name === phase).map(([, k]) => k);
      return {
        type: "scatter", mode: "markers", name: phase, yaxis: "y5",
        x: rows.map((k) => seconds((pair.start[k] + pair.end[k]) / 2)), y: rows.map((k) => 100 * share[k]),
        marker: { color: colour, size: 5, opacity: 0.75 }, hoverinfo: "text", showlegend: rows.length > 0,
        hovertext: rows.map((k) => `<b>${phase}</b>: ${(100 * share[k]).toFixed(2)} %<br>` +
          `took ${exact(pair.took[k])}, planned ${exact(pair.planned[k])}<br>from ${exact(pair.start[k])}`),
      };
    });
  }

  function shapes(method, axis) {
    const end = seconds(method.shown_ns);
    const all = [{
      type: "rect", layer: "below", x0: 0, x1: end, yref: axis, y0: -0.5, y1: lanes - 0.5,
      fillcolor: "#EBE5DA", line: { width: 0 },
    }];
    if (method.shown_ns === method.makespan) {
      all.push({ type: "line", x0: end, x1: end, yref: axis, y0: -0.5, y1: lanes - 0.5,
        line: { color: "#000", width: 1.5 } });
    }
    return all;
  }

  function label(words, y) {
    return { text: `<b>${plain(words)}</b>`, xref: "paper", x: 0, xanchor: "left", yref: "paper", y,
      yanchor: "bottom", showarrow: false };
  }

  function draw(pair, index) {
    const run = data.methods[pair.run], plan = pair.plan === null ? null : data.methods[pair.plan];
    const plot = Math.min(Math.max(lanes * 16, 120), 420), workers = data.instance.workers.length;
    const block = plot + TOP, inner = ERRORS + BETWEEN + block + (plan ? BETWEEN + block : 0);
    const low = (ERRORS + BETWEEN) / inner, high = (ERRORS + 2 * BETWEEN + block) / inner;
    const axis = { ticks: "outside", ticklen: 4, showgrid: false, zeroline: false };
    const offsets = data.instance.offsets, every = Math.ceil(workers / 20); // more names would overlap
    const some = (values) => values.filter((_, w) => w % every === 0);
    const clients = (from) => ({ ...axis, range: [lanes - 0.5, -0.5], domain: [from, from + plot / inner], fixedrange: true,
      ...(several
        ? { tickvals: some(offsets.slice(1).map((end, w) => (offsets[w] + end - 1) / 2)), ticktext: some(data.instance.workers.map(plain)) }
        : { title: { text: "client" }, tickformat: "d" }) });
    const stages = (from) => ({ range: [workers - 0.5, -0.5], fixedrange: true, showgrid: false, zeroline: false,
      domain: [from + plot / inner, from + block / inner], tickvals: [(workers - 1) / 2], ticktext: ["stages"] });
    const right = seconds(Math.max(run.shown_ns, plan ? plan.shown_ns : 0));
    const shown = errors(pair);
    const most = Math.max(1, ...shown.flatMap((trace) => trace.y.map(Math.abs)));
    Plotly.newPlot(`plan-run-${index}`, [
      ...(plan ? part(plan, "y", "y2") : []), ...part(run, "y3", "y4"), ...shown,
    ], {
      height: inner + 96, margin: { l: several ? 110 : 78, r: 16, t: 34, b: 62 }, font: FONT, paper_bgcolor: "#fff",
      plot_bgcolor: "#fff", barmode: "overlay", hovermode: "closest", dragmode: "zoom", hoverlabel: HOVER,
      shapes: [...(plan ? shapes(plan, "y") : []), ...shapes(run, "y3")],
      annotations: [
        ...(plan ? [label("plan", high + block / inner)] : []),
        label("run", low + block / inner), label("error of each stage", ERRORS / inner),
      ],
      xaxis: { ...axis, title: { text: "time (s)" }, range: [0, right * 1.01 || 1], anchor: "y5" },
      ...(plan ? { yaxis: clients(high), yaxis2: stages(high) } : {}),
      yaxis3: clients(low), yaxis4: stages(low),
      yaxis5: { ...axis, domain: [0, ERRORS / inner], range: [-1.05 * most, 1.05 * most], ticksuffix: " %",
        zeroline: true, zerolinecolor: "#000", fixedrange: true, nticks: 5 },
      legend: { orientation: "h", x: 1, xanchor: "right", y: ERRORS / inner, yanchor: "bottom" },
    }, CONFIG).then(() => { document.getElementById(`plan-run-${index}`).dataset.drawn = "done"; });
  }

  data.pairs.forEach(draw);
})();
