/* Charts take the colours of the page, and change with them. */
function dressCharts() {
  const styles = getComputedStyle(document.body), ink = styles.getPropertyValue("--md-default-fg-color--light").trim(),
        grid = styles.getPropertyValue("--md-typeset-table-color").trim();
  document.querySelectorAll(".plotly-graph-div").forEach(chart => {
    if (!window.Plotly || !chart.layout)
      return;
    const change = { "font.color": ink, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
    Object.keys(chart.layout).filter(name => /^[xy]axis\d*$/.test(name)).forEach(axis => {
      change[axis + ".gridcolor"] = grid;
      change[axis + ".linecolor"] = grid;
      change[axis + ".zerolinecolor"] = grid;
    });
    window.Plotly.relayout(chart, change);
  });
}
window.addEventListener("load", dressCharts);
new MutationObserver(dressCharts).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
