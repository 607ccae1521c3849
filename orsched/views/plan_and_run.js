"use strict";
// Plan and run on the axis of time of all charts, and the error of each stage below them.
(() => {
  const { data, several, seconds, exact, plain, tone, colours, font, layout, drawn, CONFIG, time, lanes, gantt } = window.orsched;
  const TOP = 20, BETWEEN = 34, ERRORS = 120, MOST_LABELS = 5;

  // The charts of the page, with the axes of a part of this one.
  function part(method, rows, main, top) {
    const traces = method.shown_ns < method.makespan ? gantt.dense(method, rows) : gantt.single(method, rows, 1);
    return traces.map((trace) => ({ ...trace, xaxis: "x", yaxis: trace.yaxis === "y2" ? top : main }));
  }

  const errorsOf = (pair) => pair.took.map((took, k) => (pair.planned[k] ? 100 * (took / pair.planned[k] - 1) : 0));

  function errors(pair) {
    const colourOf = Object.fromEntries(pair.colours), share = errorsOf(pair), most = pair.border; // the others, which would flatten these, stand at it
    const told = (k) => `<b>${pair.phase[k]}</b>: ${share[k].toFixed(2)} %<br>` +
      `took ${exact(pair.took[k])}, planned ${exact(pair.planned[k])}<br>from ${exact(pair.start[k])}`;
    const beyond = share.map((_, k) => k).filter((k) => Math.abs(share[k]) > most)
      .sort((a, b) => Math.abs(share[b]) - Math.abs(share[a]));
    const marks = (name, rows, more) => ({
      type: "scatter", mode: "markers", name, yaxis: "y5", hoverinfo: "text", cliponaxis: false,
      x: rows.map((k) => seconds((pair.start[k] + pair.end[k]) / 2)),
      y: rows.map((k) => Math.max(-most, Math.min(most, share[k]))), hovertext: rows.map(told), ...more,
    });
    const found = pair.colours.map(([phase, colour]) => {
      const rows = share.map((_, k) => k).filter((k) => pair.phase[k] === phase && Math.abs(share[k]) <= most);
      return marks(phase, rows, { showlegend: rows.length > 0, marker: { color: tone(colour), size: 5, opacity: 0.75 } });
    });
    if (beyond.length) {
      found.push(marks("beyond the axis", beyond, {
        mode: "markers+text", textfont: { ...font(), size: 11 },
        text: beyond.map((k, place) => (place < MOST_LABELS ? `${share[k].toFixed(0)} %` : "")),
        textposition: beyond.map((k) => (share[k] > 0 ? "bottom right" : "top right")),
        marker: { symbol: beyond.map((k) => (share[k] > 0 ? "triangle-up" : "triangle-down")), size: 9,
          color: beyond.map((k) => tone(colourOf[pair.phase[k]])), line: { color: colours().paper, width: 1 } },
      }));
    }
    return { traces: found, most };
  }

  function shapes(method, rows, axis) {
    const end = seconds(method.makespan);
    return [
      { type: "rect", layer: "below", x0: 0, x1: end, yref: axis, y0: -0.5, y1: rows.count - 0.5,
        fillcolor: colours().idle, line: { width: 0 } },
      { type: "line", x0: end, x1: end, yref: axis, y0: -0.5, y1: rows.count - 0.5, line: { color: colours().ink, width: 1.5 } },
    ];
  }

  function label(words, y) {
    return { text: `<b>${plain(words)}</b>`, xref: "paper", x: 0, xanchor: "left", yref: "paper", y,
      yanchor: "bottom", showarrow: false };
  }

  function draw(pair, index) {
    const run = data.methods[pair.run], plan = pair.plan === null ? null : data.methods[pair.plan];
    const rows = lanes.rowsOf(plan ? [plan, run] : [run], false);
    const plot = Math.min(Math.max(rows.count * 16, 120), 420), workers = data.instance.workers.length;
    const block = plot + TOP, inner = ERRORS + BETWEEN + block + (plan ? BETWEEN + block : 0);
    const low = (ERRORS + BETWEEN) / inner, high = (ERRORS + 2 * BETWEEN + block) / inner;
    const clients = (from) => ({ ...lanes.axis(rows, 20), domain: [from, from + plot / inner], fixedrange: true });
    const stages = (from) => ({ range: [workers - 0.5, -0.5], fixedrange: true, showgrid: false, zeroline: false,
      domain: [from + plot / inner, from + block / inner], tickvals: [(workers - 1) / 2], ticktext: ["stages"] });
    const { traces, most } = errors(pair), chart = document.getElementById(`plan-run-${index}`);
    return Plotly.newPlot(chart, [
      ...(plan ? part(plan, rows, "y", "y2") : []), ...part(run, rows, "y3", "y4"), ...traces,
    ], layout({
      height: inner + 96, margin: { l: several ? 110 : 78, r: 16, t: 34, b: 62 }, barmode: "overlay",
      shapes: [...(plan ? shapes(plan, rows, "y") : []), ...shapes(run, rows, "y3")],
      annotations: [
        ...(plan ? [label("plan", high + block / inner)] : []),
        label("run", low + block / inner), label("error of each stage", ERRORS / inner),
      ],
      xaxis: { ticks: "outside", ticklen: 4, showgrid: false, zeroline: false, title: { text: "time (s)" },
        range: time.current(), anchor: "y5" },
      ...(plan ? { yaxis: clients(high), yaxis2: stages(high) } : {}),
      yaxis3: clients(low), yaxis4: stages(low),
      yaxis5: { domain: [0, ERRORS / inner], range: [-1.08 * most, 1.08 * most], ticksuffix: " %", ticks: "outside",
        showgrid: false, zeroline: true, zerolinecolor: colours().ink, fixedrange: true, nticks: 5 },
      legend: { orientation: "h", x: 1, xanchor: "right", y: ERRORS / inner, yanchor: "bottom" },
    }), CONFIG).then(() => {
      time.link(chart, () => ({}));
      time.apply();
      chart.dataset.drawn = "done";
    });
  }

  drawn(() => Promise.all((data.pairs ?? []).map(draw)));
})();
