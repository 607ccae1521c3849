"use strict";
// Distributions of latencies and the attainment over the limits: all schedules in one chart each.
(() => {
  const { data, seconds, plain, shortTime, tone, colours, font, layout, drawn, QUIET } = window.orsched;
  const DASHES = ["solid", "10px,3px", "3px,3px", "12px,3px,3px,3px"], BORDERS = ["solid", "dashed", "dotted", "dashed"];
  const MOST_LABELS = 6;
  const found = data.latency;
  const percent = (share) => `${(100 * share).toFixed(share > 0.99 && share < 1 ? 2 : 1)} %`;

  function line(m, x, y, texts, more) {
    const [colour, dash] = found.lines[m], label = plain(data.methods[m].label);
    return {
      type: "scatter", mode: "lines", name: label, x, y, hovertext: texts.map((text) => `<b>${label}</b><br>${text}`),
      hoverinfo: "text", line: { color: tone(colour), width: 2, shape: "hv", dash: DASHES[dash] }, ...more,
    };
  }

  const straight = (trace) => ({ ...trace, line: { ...trace.line, shape: "linear" } });

  function limitLine(x, words, others = []) {
    const c = colours();
    return {
      shapes: [{ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: c.soft, width: 1.5, dash: "dot" } }],
      annotations: [...others, { x, xref: "x", yref: "paper", y: 0, yanchor: "bottom", xanchor: "left", xshift: 3, showarrow: false,
        text: words, font: { ...font(), size: 12, color: c.soft } }],
    };
  }

  function chart(id, title, lines, xaxis, more) {
    const { shapes = [], annotations = [] } = more;
    return Plotly.newPlot(id, lines, layout({
      height: 330, margin: { l: 58, r: 18, t: 36, b: 48 }, showlegend: false, shapes,
      title: { text: `<b>${title}</b>`, x: 0, xanchor: "left", xref: "paper", y: 0.97, yanchor: "top", font: { ...font(), size: 14 } },
      annotations,
      xaxis: { zeroline: false, showgrid: true, ticks: "outside", ticklen: 4, ...xaxis },
      yaxis: { title: { text: "share of requests" }, range: [0, 1.04], tickformat: ".0%", zeroline: false, fixedrange: true },
    }), QUIET);
  }

  // The share of requests within each time; what lies beyond the border stands there with its value.
  function distribution(name) {
    const part = found[name], { title } = part;
    const border = part.border === null ? null : seconds(part.border);
    const lines = [], outliers = [];
    part.methods.forEach((curve, m) => {
      if (!curve) return;
      const x = curve.values.map(seconds);
      lines.push(line(m, [x[0], ...x], [0, ...curve.shares],
        [curve.values[0], ...curve.values].map((ns, k) => `${percent(k ? curve.shares[k - 1] : 0)} within ${shortTime(ns)}`)));
      if (border === null || x.at(-1) <= border) return;
      if (outliers.length === MOST_LABELS) return;
      const y = 0.9 - 0.085 * outliers.length, colour = lines.at(-1).line.color;
      const words = `largest ${shortTime(curve.values.at(-1))}`;
      lines.push({ ...line(m, [border], [y], [words]), mode: "markers", cliponaxis: false,
        marker: { symbol: "triangle-right", size: 10, color: colour } });
      outliers.push({ x: border, y, text: words, showarrow: false, xanchor: "right", xshift: -8,
        bgcolor: colours().paper, borderpad: 0, font: { ...font(), size: 12, color: colour } });
    });
    const limit = found.limits[name] ?? null;
    const right = border ?? Math.max(...lines.flatMap((l) => l.x), 1e-9) * 1.02;
    const least = Math.min(...lines.flatMap((l) => l.x)), left = least > 0.35 * right ? 0.95 * least : 0; // no empty half
    return chart(`latency-${name}`, title, lines, { title: { text: `${title.split(",")[0]} (s)` }, range: [left, right], fixedrange: true },
      limit === null || seconds(limit) > right ? { annotations: outliers }
        : limitLine(seconds(limit), `limit ${shortTime(limit)}`, outliers));
  }

  // Attainment where all limits are so many times as long; without limits, over those on TTFT.
  function attainment() {
    const part = found.attainment;
    const isMultiple = part.over === "multiple";
    const x = isMultiple ? part.x : part.x.map(seconds);
    const at = (k) => (isMultiple ? `limits × ${x[k].toPrecision(3)}` : `TTFT up to ${shortTime(part.x[k])}`);
    const lines = part.methods.flatMap((shares, m) => (shares
      ? [straight(line(m, x, shares, shares.map((share, k) => `${percent(share)}: ${at(k)}`)))] : []));
    const title = isMultiple ? "Attainment, all limits × a factor" : "Attainment over a limit on TTFT";
    const round = [1, 2, 5].flatMap((d) => Array.from({ length: 16 }, (_, e) => d * 10 ** (e - 9)));
    const within = round.filter((t) => t >= x[0] && t <= x.at(-1)).sort((a, b) => a - b);
    const every = within.length > 9 ? within.filter((t) => /^1/.test(t.toExponential())) : within;
    const ticks = isMultiple ? { tickvals: [0.125, 0.25, 0.5, 1, 2, 4, 8], ticktext: ["⅛", "¼", "½", "1", "2", "4", "8"] }
      : { tickvals: every, ticktext: every.map((t) => String(Number(t.toPrecision(1)))) };
    return chart("latency-attainment", title, lines, { type: "log", fixedrange: true, ...ticks,
      title: { text: isMultiple ? "factor of the limits" : "limit on TTFT (s)" },
      range: [Math.log10(x[0]), Math.log10(x.at(-1))] }, isMultiple ? limitLine(1, "the limits") : {});
  }

  // One legend for all: the charts are too small for one each.
  function legend() {
    const place = document.getElementById("latency-key");
    place.replaceChildren(...data.methods.map((method, m) => {
      const item = document.createElement("li"), mark = document.createElement("i");
      const [colour, dash] = found.lines[m];
      mark.style.borderTop = `3px ${BORDERS[dash]} ${tone(colour)}`;
      item.append(mark, method.label);
      return item;
    }));
  }

  if (!found) return;
  window.orsched.latencies = () => drawn(() => {
    legend();
    return Promise.all([
      distribution("ttft"), distribution("tpot"), distribution("jct"), attainment(),
    ]).then(() => { document.getElementById("latencies").dataset.drawn = "done"; });
  });
})();
