"use strict";
// Numbers and names as text, and what charts tell when one points at a bar.
Object.assign(window.orsched, (() => {
  const { data } = window.orsched;
  const several = data.instance.workers.length > 1;
  const seconds = (ns) => ns / 1e9;
  // Plotly reads a few tags in labels: names must stay plain text.
  const plain = (name) => String(name).replace(/[\u0000-\u001f\u007f]/g, " ")
    .replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const count = (n) => n.toLocaleString("en-US");

  // Exact decimal seconds of whole nanoseconds, without trailing zeros.
  function exact(ns) {
    const sign = ns < 0 ? "-" : "";
    const whole = Math.floor(Math.abs(ns) / 1e9);
    const rest = String(Math.abs(ns) - whole * 1e9).padStart(9, "0").replace(/0+$/, "");
    return `${sign}${whole}${rest ? "." + rest : ""} s`;
  }

  function shortTime(ns) {
    if (ns >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
    if (ns === 0) return "0 s";
    if (ns < 1e3) return `${ns} ns`;
    return ns >= 1e6 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e3).toFixed(1)} µs`;
  }

  function workerOf(lane) {
    let worker = 0;
    while (data.instance.offsets[worker + 1] <= lane) worker += 1;
    return worker;
  }

  function clientText(lane) {
    const worker = workerOf(lane);
    const client = `client ${lane - data.instance.offsets[worker]}`;
    return several ? `${plain(data.instance.workers[worker])}, ${client}` : client;
  }

  // What the request's owner felt; -1 stands for what a stopped run has not reached.
  function latencies(table, r) {
    const arrival = table.arrival[r], first = table.first[r], finish = table.finish[r];
    const told = [];
    if (first >= 0) told.push(`<b>TTFT</b> ${shortTime(first - arrival)}`);
    if (first >= 0 && finish >= 0 && table.output[r] > 1) {
      told.push(`<b>TPOT</b> ${shortTime(Math.floor((finish - first) / (table.output[r] - 1)))}`);
    }
    if (finish >= 0) told.push(`<b>JCT</b> ${shortTime(finish - arrival)}`);
    if (table.admit[r] >= 0) told.push(`waiting ${shortTime(table.admit[r] - arrival)}`);
    return told.join(", ");
  }

  function requestText(method, bars, k, phase) {
    const table = method.requests;
    const r = bars.request[k];
    const name = table.id ? plain(table.id[r]) : table.row[r];
    const doing = { decode: "decode", invalid: "invalid tokens", paused: "paused" }[phase];
    const stages = phase === "prefill"
      ? `prefill stage ${bars.first[k]}`
      : bars.first[k] === bars.last[k]
        ? `${doing} after prefill stage ${bars.first[k]}`
        : `${doing} after prefill stages ${bars.first[k]} to ${bars.last[k]}`;
    return `<b>request ${name}</b> on ${clientText(bars.lane[k])}<br>` +
      `${latencies(table, r)}<br>` +
      `prompt ${count(table.prompt[r])} tokens, output ${count(table.output[r])} tokens<br>` +
      `${stages}: ${exact(bars.start[k])} to ${exact(bars.end[k])}<br>` +
      `arrival ${exact(table.arrival[r])}, prefill ${exact(table.admit[r])} to ${exact(table.prefilled[r])}<br>` +
      `first token ${exact(table.first[r])}, finish ${exact(table.finish[r])}`;
  }

  function stageText(stages, k) {
    const where = several ? `${plain(data.instance.workers[stages.worker[k]])}: ` : "";
    const what = stages.phase[k] === 2
      ? `<b>${where}mixed step ${stages.bin[k]}</b><br>${count(stages.prefilled[k])} requests, ${count(stages.tokens[k])} prompt tokens, ` +
        `beside a round of ${count(stages.requests[k] - stages.prefilled[k])} requests`
      : stages.phase[k] === 0
      ? `<b>${where}prefill stage ${stages.bin[k]}</b><br>${count(stages.requests[k])} requests, ${count(stages.tokens[k])} prompt tokens`
      : `<b>${where}decode after prefill stage ${stages.bin[k]}</b><br>${count(stages.rounds[k])} rounds, at most ${count(stages.requests[k])} requests`;
    return `${what}<br>${exact(stages.start[k])} to ${exact(stages.end[k])}`;
  }

  return { several, seconds, plain, count, exact, shortTime, workerOf, clientText, requestText, stageText };
})());
