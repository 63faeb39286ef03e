"use strict";

// The chart library is kept compressed in the page; charts are drawn once it is unpacked.
async function unpack(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function drawCharts() {
  const charts = [...document.querySelectorAll(".chart")];
  if (charts.length > 0) {
    const script = document.createElement("script");
    script.textContent = await unpack(window.hakmemCharts);
    document.head.append(script);
  }
  for (const chart of charts) {
    const figure = JSON.parse(chart.querySelector("script").textContent);
    await Plotly.newPlot(chart.querySelector(".plot"), figure.data, figure.layout, { responsive: true, displaylogo: false });
  }
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
    plot.textContent = `The chart cannot be drawn (${problem.message}). It needs a browser of 2023 or later.`;
    plot.classList.add("problem");
  });
});
