"use strict";

// The chart library is kept compressed, in the page or in a file beside it; charts are drawn once it is unpacked.
async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const SCHEMES = {
  light: { ink: "#1c2330", line: "#dfe3ea", axis: "#5b6575" },
  dark: { ink: "#e6e9ef", line: "#323a48", axis: "#9aa5b5" },
};

// The colours of a chart follow those of the page; on paper they are those of light.
function dress(layout, scheme) {
  const colours = SCHEMES[scheme];
  const axis = { gridcolor: colours.line, linecolor: colours.axis, zerolinecolor: colours.axis };
  const clear = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colours.ink } };
  clear.modebar = { bgcolor: "rgba(0,0,0,0)", color: colours.axis, activecolor: colours.ink };
  const old = layout.template?.layout ?? {};
  layout.template = {
    ...layout.template,
    layout: { ...old, ...clear, xaxis: { ...old.xaxis, ...axis }, yaxis: { ...old.yaxis, ...axis } },
  };
  return layout;
}

// On a narrow screen the legend goes below and the margins shrink.
function fit(layout, width) {
  if (width >= 600) return layout;
  layout.margin = { ...layout.margin, l: 46, r: 10 };
  layout.font = { ...layout.font, size: 11 };
  layout.legend = { ...layout.legend, orientation: "h", x: 0, y: -0.22, yanchor: "top" };
  for (const axis of ["xaxis", "yaxis"]) layout[axis] = { ...layout[axis], automargin: true };
  return layout;
}

function scheme() {
  return dark.matches && !window.matchMedia("print").matches ? "dark" : "light";
}

function redress(wanted) {
  for (const plot of document.querySelectorAll(".plot.drawn")) Plotly.relayout(plot, dress({ ...plot.layout }, wanted));
}

async function drawCharts() {
  const charts = [...document.querySelectorAll(".chart")];
  if (charts.length > 0) {
    if (!window.hakmemCharts) throw new Error(`${document.body.dataset.chartFile} is not beside this page`);
    const script = document.createElement("script");
    script.textContent = await unpack(window.hakmemCharts);
    document.head.append(script);
  }
  for (const chart of charts) {
    const figure = JSON.parse(chart.querySelector("script").textContent);
    const layout = fit(dress(figure.layout, scheme()), window.innerWidth);
    const plot = chart.querySelector(".plot");
    await Plotly.newPlot(plot, figure.data, layout, { responsive: true, displaylogo: false });
    plot.classList.add("drawn");
  }
  dark.addEventListener("change", () => redress(scheme()));
  window.addEventListener("beforeprint", () => redress("light"));
  window.addEventListener("afterprint", () => redress(scheme()));
  document.body.dataset.charts = String(charts.length);
}

function sortBy(table, column, descending) {
  const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (one, other) => {
    const [x, y] = [key(one), key(other)];
    const numbers = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
    return numbers ? x - y : x.localeCompare(y);
  };
  const rows = [...table.tBodies[0].rows].sort((one, other) => (descending ? compare(other, one) : compare(one, other)));
  table.tBodies[0].append(...rows);
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortBy(table, column, descending);
    });
  });
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
drawCharts().catch((problem) => {
  document.body.dataset.charts = "failed";
  document.querySelectorAll(".plot").forEach((plot) => {
    plot.textContent = `The chart cannot be drawn (${problem.message}). It needs a browser of 2023 or later, and the chart
      library beside the page; 'hakmem report --single' makes a page without it.`;
    plot.classList.add("problem");
  });
});
