"use strict";
// The Gantt chart of each schedule: its axes, lines, folded clients, and what zooming changes.
window.orsched.ganttPanel = (() => {
  const { data, several, seconds, plain, count, tone, colours, layout, CONFIG, time, lanes, gantt } = window.orsched;
  const workers = data.instance.workers.length, TOP = Math.min(24 * workers, 90), BETWEEN = 18;
  const THIN = 1.5; // pixels of a bar, on average, below which shares are drawn
  const unfolded = new Set();

  function line(x, style) {
    return { type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: style };
  }

  function shapes(method, rows) {
    const end = seconds(method.makespan), c = colours();
    const all = [{
      type: "rect", layer: "below", x0: 0, x1: end, y0: -0.5, y1: rows.count - 0.5,
      fillcolor: c.idle, line: { width: 0 },
    }, line(end, { color: c.ink, width: 1.5 })];
    if (method.bound !== null) {
      all.push(line(seconds(method.bound), { color: c.paper, width: 4 }));
      all.push(line(seconds(method.bound), { color: tone("#D55E00"), width: 2.5, dash: "6px,3px" }));
    }
    rows.edges.slice(1, -1).forEach((edge) => all.push({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: edge - 0.5, y1: edge - 0.5,
      line: { color: c.paper, width: 3 },
    }));
    return all;
  }

  // Whole pixels a row, as far as there is room: rows of one height look calm.
  function heightOf(rows) {
    const pixels = Math.min(24, Math.floor(rows.count > 100 ? 820 / rows.count : 640 / rows.count));
    return Math.max(pixels >= 2 ? pixels * rows.count : 620, 96);
  }

  function axes(method, rows) {
    const plot = heightOf(rows), inner = plot + TOP + BETWEEN;
    const names = data.instance.workers.map(plain);
    return layout({
      height: inner + 84, margin: { l: several ? 104 : 64, r: 16, t: 34, b: 50 }, barmode: "overlay",
      shapes: shapes(method, rows),
      xaxis: { ticks: "outside", ticklen: 4, showgrid: false, zeroline: false, title: { text: "time (s)" },
        range: time.current(), anchor: "y" },
      yaxis: { ...lanes.axis(rows, 30), domain: [0, plot / inner] },
      yaxis2: {
        range: [workers - 0.5, -0.5], domain: [1 - TOP / inner, 1], fixedrange: true, showgrid: false, zeroline: false,
        ...(several && workers <= 4
          ? { tickvals: names.map((_, w) => w), ticktext: names }
          : { tickvals: [(workers - 1) / 2], ticktext: ["stages"] }),
      },
    });
  }

  const gapOf = (pixels) => (pixels >= 12 ? 3 : pixels >= 6 ? 2 : pixels >= 4 ? 1 : pixels >= 3 ? 0.7 : 0);

  // Whether shares are drawn for a range of time: bars would be too thin, or are not in the page.
  function isDense(method, rows, chart, [from, to]) {
    if (!method.density) return false;
    const shown = seconds(method.shown_ns), end = seconds(method.makespan);
    if (shown < end && Math.min(to, end) > shown) return true;
    const axes = chart._fullLayout;
    const [low, high] = axes?.yaxis?.range ?? [rows.count, 0];
    if (heightOf(rows) / Math.abs(high - low) < THIN) return true;
    return thin(method, rows, from, to, axes?._size?.w ?? chart.clientWidth);
  }

  function thin(method, rows, from, to, width) {
    let seen = 0;
    const { start, end } = method.decode;
    for (let k = 0; k < start.length; k += 1) seen += start[k] < to * 1e9 && end[k] > from * 1e9;
    return seen > 0 && (rows.count * width) / seen < THIN;
  }

  function say(panel, method, rows, isShares) {
    const parts = [];
    if (isShares) {
      parts.push("Bars would be thinner than a pixel: the colour is the share of client-time in use. Zoom in for single requests.");
    }
    if (method.shown_ns < method.makespan) {
      parts.push(`The page holds single requests of the first ${seconds(method.shown_ns).toPrecision(3)} s.`);
    }
    const place = panel.querySelector(".part");
    place.textContent = parts.join(" ");
    place.hidden = parts.length === 0;
    const folded = panel.querySelector(".folded");
    const empty = rows.folded || data.instance.offsets.at(-1) - lanes.rowsOf([method], false).count;
    folded.hidden = empty === 0;
    folded.querySelector("span").textContent = `${count(empty)} of ${count(data.instance.offsets.at(-1))} clients never hold a request: show them, too`;
  }

  function draw(index) {
    const panel = document.getElementById(`panel-${index}`), chart = document.getElementById(`gantt-${index}`);
    const method = data.methods[index], rows = lanes.rowsOf([method], unfolded.has(index));
    const pixels = heightOf(rows) / rows.count;
    const bars = gantt.single(method, rows, gapOf(pixels));
    const shares = method.density ? gantt.dense(method, rows) : [];
    let isShares = isDense(method, rows, chart, time.current());
    const visible = () => [...bars.map(() => !isShares), ...shares.map(() => isShares)];
    const traces = [...bars, ...shares].map((trace, k) => ({ ...trace, visible: visible()[k] }));
    say(panel, method, rows, isShares);
    const adapt = (range) => {
      const wanted = isDense(method, rows, chart, range);
      if (wanted === isShares) return {};
      isShares = wanted;
      say(panel, method, rows, isShares);
      return { visible: visible() };
    };
    const whole = () => Plotly.relayout(chart, { "yaxis.range": [rows.count - 0.5, -0.5] });
    const partings = bars.findIndex((trace) => trace.name === "partings");
    return Plotly.newPlot(chart, traces, axes(method, rows), CONFIG).then(() => {
      time.link(chart, adapt, whole);
      chart.on("plotly_relayout", (change) => {
        if (change["yaxis.range[0]"] === undefined && change["yaxis.range"] === undefined) return;
        const [low, high] = chart._fullLayout.yaxis.range;
        Plotly.restyle(chart, { "line.width": gapOf(heightOf(rows) / Math.abs(high - low)) }, [partings]);
        time.apply();
      });
    });
  }

  function fold(index) {
    document.querySelector(`#panel-${index} .folded input`).addEventListener("change", (event) => {
      if (event.target.checked) unfolded.add(index); else unfolded.delete(index);
      draw(index);
    });
  }

  data.methods.forEach((_, k) => fold(k));
  return { draw, heightOf, TOP };
})();
