// Fifty charts of two lines and 600 points each, all in sight, in place of a view.
(async () => {
  const { Panel } = await import(new URL("page/panel.js", document.baseURI));
  const main = document.getElementById("main");
  const grid = document.createElement("div");
  grid.className = "panels";
  main.replaceChildren(grid);
  window.names = ['pegel_received_total{input="collect"}'];
  for (let at = 0; at < 50; at += 1) {
    const name = `bench_${at}`;
    window.names.push(`${name}{line="a"}`, `${name}{line="b"}`);
    grid.append(new Panel({ title: name, unit: "", queries: [{ name, by: ["line"] }] }).element);
  }
})();
